"""Results of groups as changes: what was there is withdrawn, what is there now takes its place."""

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.streams.operators.aggregates.layout import Layout
from headrace.streams.operators.grouping import one_chunk
from headrace.streams.operators.keys import HASH
from headrace.streams.operators.operator import WEIGHT, stamp_fields
from headrace.streams.operators.tables.upserts import without_pairs

__all__ = ["GroupResults", "group_results", "result_changes"]


@dataclass(frozen=True, slots=True)
class GroupResults:
    """The results of groups: those there are, and, with the `_error`, those that do not fit their type."""

    rows: pa.Table
    unfit: pa.Table | None = None


def group_results(layout: Layout, table: pa.Table) -> GroupResults:
    """The aggregates of a table of state, one row for each group, beside its keys and their hash."""
    results = layout.finished(table)
    keys = {name: one_chunk(table[name]) for name in layout.keys}
    columns = dict(zip([each.name for each in results.type], results.flatten(), strict=True))
    rows = pa.table({**keys, **columns, HASH: one_chunk(table[HASH])})
    reasons = layout.unfit(table) if results.null_count else {}
    if not reasons:
        return GroupResults(rows)
    unfit = rows.select(layout.keys).take(pa.array(list(reasons), pa.int64()))
    unfit = unfit.append_column("_error", pa.array(list(reasons.values()), pa.string()))
    return GroupResults(rows.filter(results.is_valid()), unfit)


def result_changes(keys: Sequence[str], old: pa.Table | None, new: pa.Table) -> pa.Table | None:
    """Rows that are gone, and rows that are new; those that stay as they are do not show."""
    parts = [_weighted(new, 1)] if old is None else [_weighted(old, -1), _weighted(new, 1)]
    changes = pa.concat_tables(parts).combine_chunks()
    if old is not None and changes.num_rows:
        changes = without_pairs(changes, keys)
    return changes if changes.num_rows else None


def _weighted(table: pa.Table, weight: int) -> pa.Table:
    table = table.drop_columns([HASH]) if HASH in table.column_names else table
    columns = {name: one_chunk(table[name]) for name in table.column_names}
    for field in stamp_fields():
        value = pa.scalar(weight, field.type) if field.name == WEIGHT else pa.scalar(None, field.type)
        columns[field.name] = pa.repeat(value, table.num_rows)
    return pa.table(columns)
