"""Rows that nothing on the log has made, in a view's own store: what a wrong query would have written.

They are written as any batch is. A row that is changed by other programs is damage, and not shown at all.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.views import ChangeKind, ViewBatch, open_store, rows_as_changes


def forge(store: str, view: str, change: Callable[[pa.Table], pa.Table]) -> int:
    """Gives a view what `change` makes of some of its rows, their keys as they were: how many."""
    with contextlib.closing(open_store(store)) as opened:
        wrong = change(opened.read(view))
    put_rows(store, view, wrong)
    return wrong.num_rows


def put_rows(store: str, view: str, rows: pa.Table, removed: pa.Table | None = None) -> None:
    """Writes rows into a view, and takes others out of it, as its query would."""
    changes = rows_as_changes(rows)
    if removed is not None and removed.num_rows:
        kind = pa.repeat(pa.scalar(int(ChangeKind.RETRACTION), pa.int8()), removed.num_rows)
        gone = rows_as_changes(removed).rename_columns(["kind", "after", "before"])
        changes = pa.concat_tables([changes, gone.set_column(0, "kind", kind).select(changes.column_names)])
    with contextlib.closing(open_store(store)) as opened:
        reflected = opened.reflected(view)
        batch = ViewBatch(
            reflected.query_id,
            reflected.batch_id + 1,
            changes,
            offsets=reflected.offsets,
            watermark_us=reflected.watermark_us,
            watermarks=reflected.watermarks,
        )
        assert opened.apply(view, batch)


def where_greatest(column: str, put_into: str, wrong: Callable[[Any], Any]) -> Callable[[pa.Table], pa.Table]:
    """The rows with the greatest value of one column, and something else in another (or the same)."""

    def change(rows: pa.Table) -> pa.Table:
        values = rows[column].to_pylist()
        greatest = max(each for each in values if each is not None)
        found = rows.filter(pa.array([each == greatest for each in values]))
        field = rows.schema.field(put_into)
        put = pa.array([wrong(each) for each in found[put_into].to_pylist()], field.type)
        return found.set_column(rows.schema.get_field_index(put_into), field, put)

    return change
