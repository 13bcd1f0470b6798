"""Small streams for tests of joins, and what comes out of a step."""

import pyarrow as pa

from headrace.streams.operators.operator import STAMPS, stamp_fields

NEVER, ALWAYS = -(1 << 63), (1 << 63) - 1


def stream(schema, *rows, partition=0, watermark=None, offset=0):
    """Rows, each a time and the values of its columns, all behind one watermark of their partition."""
    if not rows:
        return None
    listed = [
        dict(zip(schema.names, row[1:], strict=True))
        | dict(zip(STAMPS, (partition, offset + number, row[0], watermark, 1), strict=True))
        for number, row in enumerate(rows)
    ]
    return pa.Table.from_pylist(listed, schema=pa.schema([*schema, *stamp_fields()]))


def given(step):
    """The rows of a step, with time and weight, in an order of their own."""
    if step.changes is None:
        return []
    names = [name for name in step.changes.column_names if not name.startswith("_")]
    names = ["_event_time", *names, "_weight"]
    return sorted(zip(*(step.changes[name].to_pylist() for name in names), strict=True), key=repr)


def aside(step, number):
    """The rows of an input that a step put aside: times and reasons."""
    table = step.aside.get(number)
    return (
        []
        if table is None
        else list(zip(table["_event_time"].to_pylist(), table["_reason"].to_pylist(), strict=True))
    )
