"""The state of groups whose aggregates add up: one row of cells for each group.

Rows that go are reduced to cells as rows that come are, and those cells are negated. Of doubles, NaN
and the infinities are not numbers that could be taken away again: how many there are of each is
counted beside the sums, and the flags of a sum are made from these counts when it is finished.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.operators.aggregates.aggregates import Aggregate
from headrace.streams.operators.aggregates.cells import MomentsCell, SumCell
from headrace.streams.operators.aggregates.float_sums import negated_wide
from headrace.streams.operators.aggregates.layout import CORRECTED, ON_TIME, Layout, layout_for
from headrace.streams.operators.aggregates.limbs import normal
from headrace.streams.operators.grouping import Groups, Ints, one_chunk
from headrace.streams.operators.groups.results import GroupResults, group_results, result_changes
from headrace.streams.operators.keys import HASH, grouped, key_columns, numbered, of_keys
from headrace.streams.operators.operator import WEIGHT, OperatorStep, numbers
from headrace.streams.operators.run_state import RunState
from headrace.streams.operators.runs import Runs

__all__ = ["AdditiveState"]

_NAN, _PLUS, _MINUS = 1, 2, 4
_SPECIALS = (("nan", _NAN), ("plus", _PLUS), ("minus", _MINUS))


class AdditiveState(RunState):
    """One bucket of groups."""

    stored_as = "cells"

    def __init__(
        self, keys: tuple[str, ...], aggregates: tuple[tuple[str, Aggregate], ...], schema: pa.Schema
    ) -> None:
        self._layout: Layout = layout_for(keys, (), aggregates, schema)
        read = dict.fromkeys(name for _, each in aggregates for name in each.columns())
        self._doubles = [name for name in read if pa.types.is_floating(schema.field(name).type)]
        super().__init__(Runs(self._merged))

    def _step(self, before: pa.Table | None, run: pa.Table) -> OperatorStep:
        old, new = self._before_and_after(before, run)
        changes = result_changes(self._layout.keys, old, new.rows)
        return OperatorStep(changes=changes, delta=self._encoded(run), unfit=new.unfit)

    def _reduce(self) -> None:
        merged = self._runs.merged()
        if merged is not None:
            self._runs.replace(merged.filter(pc.not_equal(merged[ON_TIME], 0)).combine_chunks())

    def _run(self, rows: pa.Table) -> pa.Table:
        """What the rows add to each group, as cells."""
        weights = numbers(rows, WEIGHT)
        parts = [
            self._cells(_repeated(rows, np.where(sign * weights > 0, np.abs(weights), 0)), sign)
            for sign in (1, -1)
            if (sign * weights > 0).any()
        ]
        return self._merged(pa.concat_tables(parts)) if parts else self._cells(rows.slice(0, 0), 1)

    def _cells(self, rows: pa.Table, sign: int) -> pa.Table:
        layout = self._layout
        ids, keys, hashes = numbered(key_columns(rows, layout.keys), rows.num_rows)
        groups = Groups(ids, len(hashes))
        specials = self._specials(rows, groups)
        finite = self._finite(rows)
        cells = [
            cell.partial(finite if isinstance(cell, SumCell | MomentsCell) else rows, groups)
            for cell in layout.cells
        ]
        counts = groups.sizes
        if sign < 0:
            cells = [_negated(each) for each in cells]
            counts, specials = -counts, {name: -each for name, each in specials.items()}
        table = layout.table(
            keys, pa.array(hashes), [], [pa.array(counts), pa.array(np.zeros(len(counts), np.int64))], cells
        )
        for name, each in specials.items():
            table = table.append_column(name, pa.array(each))
        return table

    def _finite(self, rows: pa.Table) -> pa.Table:
        """The rows with 0 in place of NaN and the infinities."""
        for name in self._doubles:
            column = one_chunk(rows[name])
            column = pc.if_else(pc.is_finite(column), column, pa.scalar(0.0, column.type))
            rows = rows.set_column(rows.column_names.index(name), name, column)
        return rows

    def _specials(self, rows: pa.Table, groups: Groups) -> dict[str, Ints]:
        """How many values of each column of doubles are no finite numbers, by group."""
        found = {}
        for name in self._doubles:
            values = one_chunk(rows[name]).fill_null(0).to_numpy(zero_copy_only=False)
            for kind, mask in (
                ("nan", np.isnan(values)),
                ("plus", np.isposinf(values)),
                ("minus", np.isneginf(values)),
            ):
                found[_special(name, kind)] = groups.sum(mask.astype(np.int64))
        return found

    def _merged(self, table: pa.Table) -> pa.Table:
        """One row for each group."""
        order, groups = grouped(table, self._layout.keys)
        table = table.take(pa.array(order)).combine_chunks()
        merged = self._layout.merged(table, groups, []).select(self._own_columns())
        for name in self._special_columns():
            sums = groups.sum(numbers(table, name))
            merged = merged.append_column(name, pa.array(sums))
        return merged

    def _before_and_after(
        self, before: pa.Table | None, run: pa.Table
    ) -> tuple[pa.Table | None, GroupResults]:
        """The results of the groups that a run changes."""
        if before is None:
            return None, self._results(run)
        before = self._merged(before)
        after = self._merged(pa.concat_tables([before, run]))
        old = self._results(of_keys(before, run, self._layout.keys))
        return old.rows, self._results(of_keys(after, run, self._layout.keys))

    def _results(self, table: pa.Table) -> GroupResults:
        """The aggregates of the groups that have rows."""
        table = table.filter(pc.greater(table[ON_TIME], 0)).combine_chunks()
        return group_results(self._layout, self._flagged(table))

    def _flagged(self, table: pa.Table) -> pa.Table:
        """The cells with the flags of doubles that their counts say."""
        for number, cell in enumerate(self._layout.cells):
            if not isinstance(cell, SumCell | MomentsCell) or cell.column not in self._doubles:
                continue
            for name in self._layout.cell_columns(number):
                if name.endswith("flags"):
                    squares = name.endswith("squares.flags")
                    flags = self._flags(table, cell.column, squares=squares)
                    table = table.set_column(table.column_names.index(name), name, pa.array(flags))
        return table

    def _flags(self, table: pa.Table, column: str, *, squares: bool) -> npt.NDArray[np.int8]:
        flags = np.zeros(table.num_rows, np.int8)
        for kind, bit in _SPECIALS:
            present = numbers(table, _special(column, kind)) > 0
            flags |= np.where(present, _PLUS if squares and bit == _MINUS else bit, 0).astype(np.int8)
        return flags

    def _special_columns(self) -> list[str]:
        return [_special(name, kind) for name in self._doubles for kind, _ in _SPECIALS]

    def _own_columns(self) -> list[str]:
        cells = [
            name for number in range(len(self._layout.cells)) for name in self._layout.cell_columns(number)
        ]
        return [*self._layout.keys, HASH, ON_TIME, CORRECTED, *cells]


def _special(column: str, kind: str) -> str:
    return f"#{kind} {column}"


def _repeated(rows: pa.Table, times: Ints) -> pa.Table:
    if (times == 1).all():
        return rows
    return rows.take(pa.array(np.repeat(np.arange(rows.num_rows), times))).combine_chunks()


def _negated(columns: Sequence[pa.Array]) -> list[pa.Array]:
    """A cell that takes away what the given one brings. Sums are runs of limbs, flags and wide values."""
    found: list[pa.Array] = []
    limbs: list[npt.NDArray[np.int64]] = []
    for column in columns:
        if pa.types.is_int64(column.type):
            limbs.append(-column.to_numpy())
            continue
        found += [pa.array(each) for each in normal(limbs)] if limbs else []
        limbs = []
        found.append(negated_wide(column) if pa.types.is_binary(column.type) else column)
    return found + ([pa.array(each) for each in normal(limbs)] if limbs else [])
