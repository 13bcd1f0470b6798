"""State of sliding windows: the events themselves, for as long as a window can reach back.

The result of an event at t is over the events of its key in (t - size, t]. A step looks
at the keys that it brings and at those whose events are due; a late event changes the
results of those that follow it within the size. One that came after its own window had
ended has no result, and counts from the first later window on that had not.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.operators.aggregates.layout import CORRECTED, FROM, ON_TIME
from headrace.streams.operators.changes import (
    CLOSE,
    CORRECTION,
    UPDATE,
)
from headrace.streams.operators.grouping import Groups, Ints, one_chunk
from headrace.streams.operators.keys import grouped, hashes_of
from headrace.streams.operators.ranges import Merge, Only, merge_ranges, range_extremes, range_sums
from headrace.streams.operators.windows.event_state import EventState
from headrace.streams.operators.windows.partials import by_two
from headrace.streams.operators.windows.state import numbers
from headrace.streams.operators.windows.windows import Sliding, first_counted

if TYPE_CHECKING:
    from headrace.streams.operators.windows.operator import WindowOperator

__all__ = ["SlidingState"]

_TIME, _PARTITION, _OFFSET = "_event_time", "_partition", "_offset"

Over = Callable[[Sequence[pa.Array], Ints, Ints], list[pa.Array]]


class SlidingState(EventState):
    def __init__(self, operator: "WindowOperator") -> None:
        assert isinstance(operator.window, Sliding)
        self._window = operator.window
        self._size_us = operator.window.size_us
        super().__init__(operator, self._size_us)

    @property
    def _lifetime_us(self) -> int:
        return self._size_us + self.operator.keep_us + 1

    def _ends(self, table: pa.Table) -> tuple[Ints, Ints]:
        return numbers(table, FROM) + 1, numbers(table, _TIME) + self._size_us

    def _is_cut(self, table: pa.Table) -> npt.NDArray[np.bool_]:
        return numbers(table, FROM) > numbers(table, _TIME)

    def _earliest(self, table: pa.Table) -> tuple[Ints, Ints]:
        times = numbers(table, _TIME)
        return times - self._size_us, times

    def _cut(self, table: pa.Table, watermark_us: int) -> list[pa.Table]:
        counted = first_counted(self._window, numbers(table, FROM), watermark_us)
        return [table.set_column(table.column_names.index(FROM), FROM, pa.array(counted))]

    def _due(self, table: pa.Table) -> Ints:
        return numbers(table, _TIME) + 1

    def _gone(self, table: pa.Table) -> Ints:
        return numbers(table, _TIME) + self._lifetime_us

    def _compared(
        self, table: pa.Table, keys: Ints, is_new: npt.NDArray[np.bool_], watermark_us: int
    ) -> list[pa.Table]:
        times = numbers(table, _TIME)
        begins, ends = self._reach(keys, times)
        own = ~self._is_cut(table)
        was = self._visible(times, self.watermark_us) & own & ~is_new
        fresh = self._brings_new(table, is_new, begins, ends)
        changed = np.flatnonzero(self._visible(times, watermark_us) & own & (fresh | ~was))
        rows = self._over(table, changed, begins[changed], ends[changed])
        before = self._before(table, keys, is_new, changed, was[changed])
        early = UPDATE if self.operator.emit == "update" else CLOSE
        kinds = np.where(times[changed] < self.watermark_us, CORRECTION, early)
        bounds = (times[changed] - self._size_us, times[changed])
        return [self._published(rows, bounds, kinds, before)]

    def _before(
        self,
        table: pa.Table,
        keys: Ints,
        is_new: npt.NDArray[np.bool_],
        changed: Ints,
        was: npt.NDArray[np.bool_],
    ) -> pa.Array:
        """The results that the changed events had, from the old events alone; null for those without."""
        old = np.flatnonzero(~is_new)
        table, keys = table.take(pa.array(old)), keys[old]
        begins, ends = self._reach(keys, numbers(table, _TIME))
        rows = np.searchsorted(old, changed[was])
        results = self.layout.finished(self._over(table, rows, begins[rows], ends[rows]))
        places = np.cumsum(was) - 1
        return results.take(pa.array(places, mask=~was))

    def _visible(self, times: Ints, watermark_us: int) -> npt.NDArray[np.bool_]:
        if self.operator.emit == "update":
            return np.ones(len(times), np.bool_)
        return np.asarray(times < watermark_us)

    def _over(self, table: pa.Table, rows: Ints, begins: Ints, ends: Ints) -> pa.Table:
        """These rows, with the state of each window: over its range of the table."""
        layout, times = self.layout, numbers(table, _TIME)[rows]
        split = _split(numbers(table, FROM), times, begins, ends)
        cells = []
        for number, cell in enumerate(layout.cells):
            columns = [one_chunk(table[name]) for name in layout.cell_columns(number)]
            cells.append(split.over(cell.over, cell.merge, columns))
        counts = [split.over(_sums, _sums_of, [one_chunk(table[name])])[0] for name in (ON_TIME, CORRECTED)]
        taken = pa.array(rows)
        keys = [one_chunk(table[name]).take(taken) for name in layout.keys]
        places = [one_chunk(table[name]).take(taken) for name in layout.places]
        return layout.table(keys, pa.array(hashes_of(table)[rows]), places, counts, cells)

    def _brings_new(
        self, table: pa.Table, is_new: npt.NDArray[np.bool_], begins: Ints, ends: Ints
    ) -> npt.NDArray[np.bool_]:
        """Whether a new row counts in the window of each row that has one."""
        own = np.flatnonzero(~self._is_cut(table))
        split = _split(numbers(table, FROM), numbers(table, _TIME)[own], begins[own], ends[own])
        found = np.zeros(table.num_rows, np.bool_)
        (sums,) = split.over(_sums, _sums_of, [pa.array(is_new.astype(np.int64))])
        found[own] = sums.to_numpy() > 0
        return found

    def _reach(self, keys: Ints, times: Ints) -> tuple[Ints, Ints]:
        """The range of rows that the window of each row covers; rows are ordered by key and time."""
        if not len(keys):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        least = int(times.min())
        span = int(times.max()) - least + 2
        if int(keys[-1]) * span < 1 << 62:
            places = keys * span + (times - least)
            earliest = keys * span + np.maximum(times - least - self._size_us, -1)
            return np.searchsorted(places, earliest, "right"), np.searchsorted(places, places, "right")
        begins, ends = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
        groups = Groups.adjacent(np.flatnonzero(np.diff(keys, prepend=-1)), len(keys))
        for begin, size in zip(groups.representatives.tolist(), groups.sizes.tolist(), strict=True):
            own = times[begin : begin + size]
            begins[begin : begin + size] = begin + np.searchsorted(own, own - self._size_us, "right")
            ends[begin : begin + size] = begin + np.searchsorted(own, own, "right")
        return begins, ends

    def _ordered(self, table: pa.Table) -> tuple[Ints, Ints]:
        """An order by key, time, partition and offset; and the number of each row's key, in that order."""
        order, groups = grouped(table, self.layout.keys)
        times = numbers(table, _TIME)[order]
        inner = by_two(groups.ids, times)
        times = times[inner]
        if ((times[1:] == times[:-1]) & (groups.ids[1:] == groups.ids[:-1])).any():
            parts = [numbers(table, name)[order] for name in (_OFFSET, _PARTITION, _TIME)]
            inner = np.lexsort((*parts, groups.ids))
        return order[inner], groups.ids

    def _merge(self, table: pa.Table) -> pa.Table:
        order, _ = self._ordered(table)
        return table.take(pa.array(order))


@dataclass(frozen=True, slots=True)
class _Split:
    """Ranges of rows, those in which all rows count apart from those in which some do not."""

    begins: Ints
    ends: Ints
    whole: Ints
    partly: Ints
    only: Only

    def over(self, over: Over, merge: Merge, columns: list[pa.Array]) -> list[pa.Array]:
        """One cell per range."""
        if not len(self.partly):
            return over(columns, self.begins, self.ends)
        parts = [
            over(columns, self.begins[self.whole], self.ends[self.whole]),
            merge_ranges(merge, columns, self.begins[self.partly], self.ends[self.partly], self.only),
        ]
        order = pa.array(np.argsort(np.concatenate([self.whole, self.partly])))
        return [pa.concat_arrays(each).take(order) for each in zip(*parts, strict=True)]


def _split(froms: Ints, times: Ints, begins: Ints, ends: Ints) -> _Split:
    """The windows at these times; in each its own event counts, so that none is empty."""
    latest: Ints = np.asarray(range_extremes(np.maximum, froms, begins, ends), np.int64)
    cut = latest > times
    partly = np.flatnonzero(cut)
    return _Split(begins, ends, np.flatnonzero(~cut), partly, Only(froms, times[partly]))


def _sums(columns: Sequence[pa.Array], begins: Ints, ends: Ints) -> list[pa.Array]:
    return [pa.array(range_sums(columns[0].to_numpy(), begins, ends))]


def _sums_of(columns: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
    return [pa.array(groups.sum(columns[0].to_numpy()))]
