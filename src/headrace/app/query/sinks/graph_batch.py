"""The messages of one batch of a dataflow, sorted by what they mean, and its rows as changes; no I/O."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams import Mark
from headrace.streams.dataflow import raw_producer
from headrace.streams.engine import BlobKind, Message, decode_json, decode_table
from headrace.streams.operators import STAMPS, WEIGHT, normal_key
from headrace.views import ChangeKind, StagedChanges, ViewSchema

__all__ = ["GraphBatch", "collect_graph", "weighted_changes"]


@dataclass(slots=True)
class GraphBatch:
    """What one batch brought: rows of the view, and by edge or source what fell aside and was counted."""

    rows: list[pa.Table] = field(default_factory=list)
    late: dict[int, list[pa.Table]] = field(default_factory=dict)
    dead: dict[int, list[pa.Table]] = field(default_factory=dict)
    failed: dict[int, list[pa.Table]] = field(default_factory=dict)
    unfit: dict[int, list[pa.Table]] = field(default_factory=dict)
    counts: dict[int, Counter[str]] = field(default_factory=dict)
    marks: dict[tuple[str, int], Mark] = field(default_factory=dict)
    clock: dict[str, int] = field(default_factory=dict)
    staged: list[StagedChanges] = field(default_factory=list)

    def offsets(self) -> dict[str, dict[int, int]]:
        """The next offset of every partition that the batch knows of, by topic."""
        found: dict[str, dict[int, int]] = {}
        for (topic, partition), mark in sorted(self.marks.items()):
            found.setdefault(topic, {})[partition] = mark.next
        return found

    @property
    def records(self) -> int:
        return sum(mark.records for mark in self.marks.values())


def collect_graph(view_edge: int, messages: Iterable[Message]) -> GraphBatch:
    """The messages of a batch, sorted by what they mean; rows are those of the edge to the view."""
    batch = GraphBatch()
    for _, number, kind, blob in messages:
        if kind is BlobKind.MARK:  # every bucket passes them on
            mark = Mark.from_json(decode_json(blob))
            batch.marks[mark.topic, mark.partition] = mark
        elif kind is BlobKind.CLOCK:
            batch.clock = decode_json(blob)
        elif kind is BlobKind.STAGED:
            batch.staged.append(StagedChanges(**decode_json(blob)))
        elif kind is BlobKind.COUNTERS:
            batch.counts.setdefault(number, Counter()).update(decode_json(blob))
        elif kind is BlobKind.DEAD:
            source = raw_producer(number)
            assert source is not None
            batch.dead.setdefault(source, []).append(decode_table(blob))
        elif kind is BlobKind.FAILED:
            batch.failed.setdefault(number, []).append(decode_table(blob))
        elif kind is BlobKind.UNFIT:
            batch.unfit.setdefault(number, []).append(decode_table(blob))
        elif kind in (BlobKind.LATE, BlobKind.FORGOTTEN):
            batch.late.setdefault(number, []).append(decode_table(blob))
        else:
            assert number == view_edge, (number, kind)
            batch.rows.append(decode_table(blob))
    return batch


def weighted_changes(schema: ViewSchema, tables: Sequence[pa.Table]) -> pa.Table | None:
    """What rows with weights change of a view, key by key: the row that was there, and the one that is.

    There is at most one row for a key: the graph sees to that. Of a stream, which does not take back
    what another row replaces, it is the newest, by event time, partition and offset, and what was there
    is not known.
    """
    if not tables:
        return None
    table = pa.concat_tables(tables, promote_options="none")
    table = _consolidated(_with_normal_keys(table, schema), schema)
    if not table.num_rows:
        return None
    old, new = (table.filter(pc.field(WEIGHT) < 0), table.filter(pc.field(WEIGHT) > 0))
    old, new = _newest(old, schema), _newest(new, schema)
    return _change_table(schema, old, new, _same_keys(old, new, schema))


def _with_normal_keys(table: pa.Table, schema: ViewSchema) -> pa.Table:
    """Keys as stores tell them apart: -0.0 is 0.0, and every NaN is the same."""
    for name in schema.key:
        number = table.column_names.index(name)
        if pa.types.is_floating(table.schema.field(number).type):
            table = table.set_column(number, name, normal_key(table[name].combine_chunks(), name))
    return table


def _consolidated(table: pa.Table, schema: ViewSchema) -> pa.Table:
    """Equal rows as one with the sum of their weights; those that come to nothing are left out.

    Its stamps are those of the last of them.
    """
    names = schema.columns.names
    stamps = [each for each in STAMPS if each != WEIGHT and each not in names]
    table = table.select([*names, *stamps, WEIGHT]).combine_chunks()
    if not (pc.min(table[WEIGHT]).as_py() or 0) < 0:
        return table
    compared = table.select([*names, WEIGHT]).append_column("\0row", pa.array(np.arange(table.num_rows)))
    for number, column in enumerate(schema.columns):
        if pa.types.is_nested(column.type):
            texts = pa.array([repr(each) for each in compared[number].to_pylist()], pa.large_string())
            compared = compared.set_column(number, column.name, texts)
    grouped = compared.group_by(names, use_threads=False).aggregate([(WEIGHT, "sum"), ("\0row", "max")])
    grouped = grouped.filter(pc.field(f"{WEIGHT}_sum") != 0)
    rows = table.take(grouped["\0row_max"]).combine_chunks()
    return rows.set_column(rows.column_names.index(WEIGHT), WEIGHT, grouped[f"{WEIGHT}_sum"])


def _newest(table: pa.Table, schema: ViewSchema) -> pa.Table:
    key = list(schema.key)
    if table.group_by(key, use_threads=False).aggregate([]).num_rows == table.num_rows:
        return table  # one row for each key: nothing to put in order
    order = [(each, "ascending") for each in ("_event_time", "_partition", "_offset")]
    table = table.sort_by(order)
    numbered = table.append_column("\0row", pa.array(np.arange(table.num_rows)))
    last = numbered.group_by(key, use_threads=False).aggregate([("\0row", "max")])
    return table.take(last["\0row_max"])


def _same_keys(old: pa.Table, new: pa.Table, schema: ViewSchema) -> pa.Table:
    """The rows of two tables that have one key, by their numbers. Null is a key."""
    key = list(schema.key)
    both = pa.concat_tables(
        table.select(key)
        .append_column("\0old", pa.array(np.arange(table.num_rows), mask=np.full(table.num_rows, is_new)))
        .append_column("\0new", pa.array(np.arange(table.num_rows), mask=np.full(table.num_rows, not is_new)))
        for table, is_new in ((old, False), (new, True))
    )
    found = both.group_by(key, use_threads=False).aggregate([("\0old", "max"), ("\0new", "max")])
    return found.select(["\0old_max", "\0new_max"]).rename_columns(["old", "new"]).combine_chunks()


def _change_table(schema: ViewSchema, old: pa.Table, new: pa.Table, numbers: pa.Table) -> pa.Table:
    """Rows that go and have no successor first, then those that are new or take another's place."""
    gone = numbers.filter(pc.is_null(numbers["new"]))
    here = numbers.filter(pc.is_valid(numbers["new"])).sort_by("new")
    parts = []
    for rows, kind in ((gone, ChangeKind.RETRACTION), (here, ChangeKind.UPDATE)):
        before, after = _rows(schema, old, rows["old"]), _rows(schema, new, rows["new"])
        shown = after if kind is ChangeKind.UPDATE else before
        keys = dict(zip(shown.type.names, shown.flatten(), strict=True))
        parts.append(
            pa.table(
                {
                    **{name: keys[name] for name in schema.key},
                    "kind": pa.repeat(pa.scalar(int(kind), pa.int8()), rows.num_rows),
                    "before": before,
                    "after": after,
                }
            )
        )
    return pa.concat_tables(parts)


def _rows(schema: ViewSchema, table: pa.Table, numbers: pa.ChunkedArray) -> pa.StructArray:
    """Rows of a table by their numbers, as structs of the view's columns; null where there is none."""
    numbers = pa.concat_arrays(numbers.chunks or [pa.array([], pa.int64())])
    columns = [
        pa.concat_arrays(table[each.name].cast(each.type).chunks or [pa.array([], each.type)]).take(numbers)
        for each in schema.columns
    ]
    mask = pc.is_null(numbers) if numbers.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(schema.columns), mask=mask)
