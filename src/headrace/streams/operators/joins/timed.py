"""Rows that are held for a time: in runs ordered by hash and time, found by key within a range of times.

Like `Runs`, with time: a run is only appended, and similar ones are merged when there are many.
What is before `horizon_us` is forgotten: it is not found any more from that moment, and leaves
memory when a run is merged, or when half of it is forgotten. Rows may be marked, and may be
settled once, in the order of their times; a mark stays with its row.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.column_hash import Hashes
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.hash_index import HashIndex
from headrace.streams.operators.hashing import same
from headrace.streams.operators.joins.values import Flags, ordered
from headrace.streams.operators.keys import HASH, hashes_of
from headrace.streams.operators.operator import numbers
from headrace.streams.operators.runs import Held, expanded, in_one_chunk

__all__ = ["EARLIEST_US", "LATEST_US", "MARK", "FoundRows", "TimedRun", "TimedRuns", "clipped"]

EARLIEST_US, LATEST_US = -(1 << 63), (1 << 63) - 1
MARK = "_marked"
_MANY_RUNS = 8
_FEW_ROWS = 8  # of one hash: looking at each is cheaper than bisection


class TimedRun:
    """Rows ordered by hash and time, each marked or not; those before `settled_us` are settled."""

    def __init__(self, table: pa.Table, marked: Flags, settled_us: int) -> None:
        self.table = table
        self.index = HashIndex(hashes_of(table))
        self.times = numbers(table, "_event_time")
        self.marked = marked
        self.settled_us = settled_us

    @cached_property
    def first_us(self) -> int:
        return int(self.times.min(initial=LATEST_US))

    @cached_property
    def last_us(self) -> int:
        return int(self.times.max(initial=EARLIEST_US))

    @cached_property
    def middle_us(self) -> int:
        """The time before which half of the rows are."""
        middle = len(self.times) // 2
        return int(np.partition(self.times, middle)[middle])

    @cached_property
    def by_time(self) -> tuple[Ints, Ints]:
        """The rows in the order of their times, and these times."""
        order = np.argsort(self.times)
        return order, self.times[order]

    def count_before(self, time_us: int) -> int:
        if self.first_us >= time_us:
            return 0
        return int(np.searchsorted(self.by_time[1], time_us))

    def settle(self, before_us: int) -> Ints:
        """The rows that are settled by this and were not before."""
        begin_us, self.settled_us = self.settled_us, max(before_us, self.settled_us)
        if self.first_us >= before_us or begin_us >= before_us:
            return np.zeros(0, np.int64)
        if begin_us <= self.first_us and self.last_us < before_us:
            return np.arange(len(self.times))
        order, times = self.by_time
        return order[np.searchsorted(times, begin_us) : np.searchsorted(times, before_us)]

    def within(self, hashes: Hashes, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """Pairs of a place among the hashes, which ascend, and a row that has it, at low <= time <= high."""
        there, begins, ends = self.index.places_of(hashes)
        low, high = low[there], high[there]
        many = np.flatnonzero(ends - begins > _FEW_ROWS)
        if len(many):
            first, last = begins[many], ends[many]
            begins[many] = bisected(self.times, first, last, low[many])
            ends[many] = np.maximum(begins[many], bisected(self.times, first, last, high[many], behind=True))
        rows, _ = expanded(begins, ends)
        places = np.repeat(np.arange(len(there)), ends - begins)
        times = self.times[rows]
        fits = (times >= low[places]) & (times <= high[places])
        return there[places[fits]], rows[fits]


FoundRows = tuple[TimedRun, Ints, Ints]


class TimedRuns:
    """The rows of one input that are held, by key."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys
        self.runs: list[TimedRun] = []
        self.horizon_us = EARLIEST_US
        self.touched = 0

    @property
    def row_count(self) -> int:
        """Rows held, without those that are forgotten and still in memory."""
        return sum(len(run.times) - run.count_before(self.horizon_us) for run in self.runs)

    def held(self) -> Held:
        """The rows that count, and the time of the oldest."""
        oldest_us = min((run.first_us for run in self.runs), default=None)
        return Held(self.row_count, None if oldest_us is None else max(oldest_us, self.horizon_us))

    def add(self, table: pa.Table) -> TimedRun:
        """Takes in rows, which are ordered by hash and time, neither marked nor settled."""
        run = TimedRun(table, np.zeros(table.num_rows, np.bool_), EARLIEST_US)
        if table.num_rows:
            self.runs.append(run)
        return run

    def find(self, probe: pa.Table, keys: Sequence[str], low: Ints, high: Ints) -> list[FoundRows]:
        """By run, rows with low <= time <= high that have the key of a row of `probe`, and its place there.

        The rows of `probe` ascend by hash.
        """
        found: list[FoundRows] = []
        if not probe.num_rows:
            return found
        hashes = hashes_of(probe)
        low = np.maximum(low, self.horizon_us)
        first_us, last_us = int(low.min()), int(high.max())
        for run in self.runs:
            if run.last_us < first_us or run.first_us > last_us:
                continue
            places, rows = run.within(hashes, low, high)
            self.touched += len(rows)
            if len(rows):
                found.append((run, *same_keys((run.table, self.keys, rows), (probe, keys, places))))
        return [each for each in found if len(each[1])]

    def settle(self, before_us: int) -> list[tuple[TimedRun, Ints]]:
        """Settles what is before this time: what was not yet, by run."""
        settled = [(run, run.settle(before_us)) for run in self.runs]
        self.touched += sum(len(rows) for _, rows in settled)
        return [each for each in settled if len(each[1])]

    def forget(self, before_us: int) -> None:
        """Forgets what is before this time. Settle first."""
        self.horizon_us = max(before_us, self.horizon_us)
        self.runs = [run for run in self.runs if run.last_us >= self.horizon_us]
        for number, run in enumerate(self.runs):
            if run.first_us < self.horizon_us and run.middle_us < self.horizon_us:
                self.runs[number] = self._merged([run])
        if len(self.runs) > _MANY_RUNS:
            begin = self._suffix()
            self.runs[begin:] = [self._merged(self.runs[begin:])]

    def stored(self) -> pa.Table | None:
        """Everything held, with marks."""
        if not self.runs:
            return None
        self.runs = [self._merged(self.runs)]
        run = self.runs[0]
        return run.table.drop_columns(HASH).append_column(MARK, pa.array(run.marked))

    def restore(self, table: pa.Table, settled_us: int) -> None:
        """Takes in what `stored` gave, with hashes again, everything before a time settled."""
        marked = np.asarray(one_chunk(table[MARK]).to_numpy(zero_copy_only=False))
        self.runs.append(TimedRun(in_one_chunk([table.drop_columns(MARK)]), marked, settled_us))

    def _merged(self, runs: Sequence[TimedRun]) -> TimedRun:
        table = in_one_chunk([run.table for run in runs])
        marked = np.concatenate([run.marked for run in runs])
        self.touched += table.num_rows
        order = ordered(hashes_of(table), numbers(table, "_event_time")) if len(runs) > 1 else None
        if any(run.first_us < self.horizon_us for run in runs):
            order = np.arange(table.num_rows) if order is None else order
            order = order[numbers(table, "_event_time")[order] >= self.horizon_us]
        if order is not None:
            table, marked = table.take(pa.array(order)), marked[order]
        return TimedRun(table, marked, runs[0].settled_us)

    def _suffix(self) -> int:
        sizes = [len(run.times) for run in self.runs]
        begin = len(sizes) - _MANY_RUNS // 2
        total = sum(sizes[begin:])
        while begin and sizes[begin - 1] <= 2 * total:
            begin -= 1
            total += sizes[begin]
        return begin


Rows = tuple[pa.Table, Sequence[str], Ints]


def same_keys(one: Rows, other: Rows) -> tuple[Ints, Ints]:
    """Of pairs of rows with equal hashes those with equal keys: the other's rows, and the one's."""
    equal: Flags | None = None
    for ours, theirs in zip(one[1], other[1], strict=True):
        held = one_chunk(one[0][ours]).take(pa.array(one[2]))
        alike = same(held, one_chunk(other[0][theirs]).take(pa.array(other[2])))
        equal = alike if equal is None else equal & alike
    if equal is None or equal.all():
        return other[2], one[2]
    return other[2][equal], one[2][equal]


def bisected(times: Ints, begins: Ints, ends: Ints, at: Ints, *, behind: bool = False) -> Ints:
    """The first place in each range, in which times ascend, that is not before `at`, or is behind it."""
    low, high = begins.copy(), ends.copy()
    while True:
        left = np.flatnonzero(low < high)
        if not len(left):
            return low
        middle = (low[left] + high[left]) >> 1
        before = times[middle] <= at[left] if behind else times[middle] < at[left]
        low[left] = np.where(before, middle + 1, low[left])
        high[left] = np.where(before, high[left], middle)


def by_hash_and_time(table: pa.Table) -> pa.Table:
    """The rows in the order of a run."""
    return table.take(pa.array(ordered(hashes_of(table), numbers(table, "_event_time"))))


def clipped(time_us: int) -> int:
    """A time that may be beyond all times, as one that fits."""
    return max(EARLIEST_US, min(time_us, LATEST_US))
