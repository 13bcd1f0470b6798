"""State of sliding windows: the events themselves, for as long as a window can reach back.

The result of an event at t is over the events of its key in (t - size, t]. A step looks
at the keys that it brings and at those whose events are due; a late event changes the
results of those that follow it within the size.
"""

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.operators.changes import (
    CLOSE,
    CORRECTION,
    UPDATE,
    change_table,
    instants,
)
from headrace.streams.operators.event_state import EventState
from headrace.streams.operators.grouping import Groups, Ints, one_chunk
from headrace.streams.operators.keys import grouped, hashes_of
from headrace.streams.operators.layout import CORRECTED, ON_TIME
from headrace.streams.operators.partials import by_two
from headrace.streams.operators.ranges import range_sums
from headrace.streams.operators.state import numbers
from headrace.streams.operators.windows import Sliding

if TYPE_CHECKING:
    from headrace.streams.operators.operator import WindowOperator

__all__ = ["SlidingState"]

_TIME, _PARTITION, _OFFSET = "_event_time", "_partition", "_offset"


class SlidingState(EventState):
    def __init__(self, operator: "WindowOperator") -> None:
        assert isinstance(operator.window, Sliding)
        self._size_us = operator.window.size_us
        super().__init__(operator, self._size_us)

    @property
    def _lifetime_us(self) -> int:
        return self._size_us + self.operator.keep_us + 1

    def _deadlines(self, table: pa.Table) -> Ints:
        return numbers(table, _TIME) + 1

    def _windows(self, table: pa.Table) -> list[pa.Array]:
        times = numbers(table, _TIME)
        return [instants(times - self._size_us), instants(times)]

    def _due(self, table: pa.Table) -> Ints:
        return numbers(table, _TIME) + 1

    def _gone(self, table: pa.Table) -> Ints:
        return numbers(table, _TIME) + self._lifetime_us

    def _compared(
        self, table: pa.Table, keys: Ints, is_new: npt.NDArray[np.bool_], watermark_us: int
    ) -> list[pa.Table]:
        times = numbers(table, _TIME)
        begins, ends = self._reach(keys, times)
        fresh = range_sums(is_new.astype(np.int64), begins, ends) > 0
        was = self._visible(times, self.watermark_us) & ~is_new
        changed = np.flatnonzero(self._visible(times, watermark_us) & (fresh | ~was))
        after = self._results(table, changed, begins[changed], ends[changed])
        before = self._before(table, keys, is_new, changed, was[changed])
        early = UPDATE if self.operator.emit == "update" else CLOSE
        kinds = np.where(times[changed] < self.watermark_us, CORRECTION, early)
        rows = table.take(pa.array(changed))
        bounds = (times[changed] - self._size_us, times[changed])
        return [change_table(self.layout, rows, bounds, kinds, before, after)]

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
        results = self._results(table, rows, begins[rows], ends[rows])
        places = np.cumsum(was) - 1
        return results.take(pa.array(places, mask=~was))

    def _visible(self, times: Ints, watermark_us: int) -> npt.NDArray[np.bool_]:
        if self.operator.emit == "update":
            return np.ones(len(times), np.bool_)
        return np.asarray(times < watermark_us)

    def _results(self, table: pa.Table, rows: Ints, begins: Ints, ends: Ints) -> pa.Array:
        """The results of these rows, each over its range of the table."""
        layout = self.layout
        cells = [
            cell.over([one_chunk(table[name]) for name in layout.cell_columns(number)], begins, ends)
            for number, cell in enumerate(layout.cells)
        ]
        counts = [pa.array(range_sums(numbers(table, name), begins, ends)) for name in (ON_TIME, CORRECTED)]
        taken = pa.array(rows)
        keys = [one_chunk(table[name]).take(taken) for name in layout.keys]
        places = [one_chunk(table[name]).take(taken) for name in layout.places]
        return layout.finished(layout.table(keys, pa.array(hashes_of(table)[rows]), places, counts, cells))

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
