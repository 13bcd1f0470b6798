"""The state of groups whose aggregates cannot be taken back: the rows themselves.

Equal rows are held once, with their number. A group is computed again from its rows when some come
or go, so a change costs what its group holds.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.column_hash import hash_columns
from headrace.streams.operators.aggregates.aggregates import Aggregate
from headrace.streams.operators.aggregates.layout import layout_for
from headrace.streams.operators.grouping import Groups, one_chunk, runs_of
from headrace.streams.operators.groups.results import GroupResults, group_results, result_changes
from headrace.streams.operators.keys import HASH, grouped, key_columns, of_keys
from headrace.streams.operators.operator import (
    STAMPS,
    WEIGHT,
    OperatorStep,
    numbers,
)
from headrace.streams.operators.order import ranks
from headrace.streams.operators.run_state import RunState
from headrace.streams.operators.runs import Runs

__all__ = ["HeldRowsState"]

_ORDER = tuple(name for name in STAMPS if name not in (WEIGHT, "_watermark"))


class HeldRowsState(RunState):
    """One bucket of groups."""

    def __init__(
        self,
        keys: tuple[str, ...],
        aggregates: tuple[tuple[str, Aggregate], ...],
        schema: pa.Schema,
        order: tuple[str, ...] | None = None,
    ) -> None:
        self._layout = layout_for(keys, (), aggregates, schema)
        read = dict.fromkeys(name for _, each in aggregates for name in each.columns())
        self._order = None if order is None else tuple(dict.fromkeys([*order, *read]))
        self._read = [name for name in dict.fromkeys([*read, *(order or ())]) if name not in keys]
        super().__init__(Runs(self._consolidated))

    def _run(self, rows: pa.Table) -> pa.Table:
        return self._consolidated(self._held(rows))

    def _step(self, before: pa.Table | None, run: pa.Table) -> OperatorStep:
        old, new = self._before_and_after(before, run)
        changes = result_changes(self._layout.keys, old, new.rows)
        return OperatorStep(changes=changes, delta=self._encoded(run), unfit=new.unfit)

    def _held(self, rows: pa.Table) -> pa.Table:
        """Of rows what their groups need: keys, what aggregates read, their place in time, the weight."""
        keys = key_columns(rows, self._layout.keys)
        columns = dict(zip(self._layout.keys, keys, strict=True))
        columns |= {name: one_chunk(rows[name]) for name in (*self._read, *_ORDER, WEIGHT)}
        columns[HASH] = pa.array(hash_columns(keys, rows.num_rows))
        return pa.table(columns)

    def _consolidated(self, table: pa.Table) -> pa.Table:
        """Equal rows once, with the sum of their weights; ordered by hash."""
        order, groups = grouped(table, self._layout.keys)
        table = table.take(pa.array(order)).combine_chunks()
        ids = [groups.ids, *(_ranks(one_chunk(table[name])) for name in (*self._read, *_ORDER))]
        ranked = np.lexsort(tuple(reversed(ids)))
        starts = runs_of(*(each[ranked] for each in ids)) if len(ranked) else np.zeros(0, np.int64)
        same = Groups.adjacent(starts, len(ranked))
        weights = same.sum(numbers(table, WEIGHT)[ranked])
        kept = table.take(pa.array(ranked[starts]))
        kept = kept.set_column(kept.column_names.index(WEIGHT), WEIGHT, pa.array(weights))
        return kept.filter(pa.array(weights != 0)).combine_chunks()

    def _before_and_after(
        self, before: pa.Table | None, run: pa.Table
    ) -> tuple[pa.Table | None, GroupResults]:
        """The results of the groups that a run changes."""
        if before is None:
            return None, self._results(run)
        touched = of_keys(before, run, self._layout.keys)
        old = self._results(self._consolidated(touched))
        return old.rows, self._results(self._consolidated(pa.concat_tables([touched, run])))

    def _results(self, rows: pa.Table) -> GroupResults:
        """The aggregates of each group of rows, each row as often as its weight says."""
        layout = self._layout
        weights = np.maximum(numbers(rows, WEIGHT), 0)
        rows = rows.take(pa.array(np.repeat(np.arange(rows.num_rows), weights))).combine_chunks()
        rows = rows if self._order is None else self._in_place(rows, self._order)
        order, groups = grouped(rows, layout.keys)
        rows = rows.take(pa.array(order)).combine_chunks()
        first = pa.array(groups.representatives)
        keys = [one_chunk(rows[name]).take(first) for name in layout.keys]
        hashes = one_chunk(rows[HASH]).take(first)
        zeros = pa.array(np.zeros(groups.count, np.int64))
        cells = layout.partial_cells(rows, groups)
        table = layout.table(keys, hashes, [], [pa.array(groups.sizes), zeros], cells)
        return group_results(layout, table)

    def _in_place(self, rows: pa.Table, order: Sequence[str]) -> pa.Table:
        """Rows of a table with a place in time each, by the order of their values."""
        columns = [one_chunk(rows[name]) for name in order]
        found = [ranks(each, exact=True) for each in columns if not pa.types.is_nested(each.type)]
        places = np.zeros(rows.num_rows, np.int64)
        if found:
            places[np.lexsort(tuple(reversed(found)))] = np.arange(rows.num_rows)
        for name in _ORDER:
            number = rows.column_names.index(name)
            own = pa.array(places if name == "_event_time" else np.zeros(rows.num_rows, np.int64))
            rows = rows.set_column(number, name, own.cast(rows.schema.field(name).type))
        return rows


def _ranks(column: pa.Array) -> np.ndarray:
    """Numbers that are equal exactly where the values are, bit by bit."""
    if pa.types.is_floating(column.type):
        column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    if pa.types.is_nested(column.type):
        column = pa.array([repr(each) for each in column.to_pylist()], pa.string())
    return np.asarray(column.dictionary_encode(null_encoding="encode").indices.to_numpy())
