"""The versions of a table's rows: which of them was valid at a time.

Runs are ordered by hash, time from which a version is valid, partition and offset; of versions
that are valid by a time the last in this order counts. A version is seen by events from
`seen_from_us` on: one that came late is not seen by events that had been given out before it.

What no event can see any more leaves with a merge: of each key the versions before the last one
that every event at or after the horizon sees, and that one too, if it is a delete and nothing
older is left in another run.
"""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.hash_index import HashIndex
from headrace.streams.operators.hashing import same
from headrace.streams.operators.joins.lateness import watermarks_of
from headrace.streams.operators.joins.timed import EARLIEST_US, LATEST_US, bisected
from headrace.streams.operators.joins.values import Flags, ordered
from headrace.streams.operators.keys import grouped, hashes_of
from headrace.streams.operators.operator import DELETED, numbers
from headrace.streams.operators.runs import Held, held_in, in_one_chunk

__all__ = ["VersionMatches", "VersionRun", "Versions"]

_MANY_RUNS = 6
_MANY_ROWS = 1 << 18


class VersionRun:
    """Versions in their order."""

    def __init__(self, table: pa.Table, correct_for_us: int) -> None:
        self.table = table
        self.index = HashIndex(hashes_of(table))
        self.times = numbers(table, "_event_time")
        self._correct_for_us = correct_for_us

    @cached_property
    def seen_from_us(self) -> Ints:
        watermarks = watermarks_of(self.table)
        return np.where(watermarks > EARLIEST_US, watermarks - self._correct_for_us, EARLIEST_US)

    @cached_property
    def first_us(self) -> int | None:
        """From when the oldest is valid."""
        return int(self.times.min()) if len(self.times) else None

    @cached_property
    def places(self) -> tuple[Ints, Ints]:
        """Partition and offset."""
        return (
            np.asarray(one_chunk(self.table["_partition"]).to_numpy()).astype(np.int64),
            numbers(self.table, "_offset"),
        )

    @cached_property
    def deleted(self) -> Flags:
        return np.asarray(one_chunk(self.table[DELETED]).fill_null(False).to_numpy(zero_copy_only=False))

    def last(self, probe: pa.Table, keys: tuple[Sequence[str], Sequence[str]], at: Ints) -> tuple[Ints, Ints]:
        """Places of rows of `probe` and the last version with their key that an event at that time sees."""
        hashes = hashes_of(probe)
        there, begins, ends = self.index.places_of(hashes)
        at = at[there]
        rows = bisected(self.times, begins, ends, at, behind=True) - 1
        wrong = np.arange(len(there))
        while True:  # again only for versions not seen by their event, and for keys that share a hash
            wrong = wrong[rows[wrong] >= begins[wrong]]
            wrong = wrong[~self._fits(probe, keys, there[wrong], rows[wrong], at[wrong])]
            if not len(wrong):
                found = rows >= begins
                return there[found], rows[found]
            rows[wrong] -= 1

    def _fits(
        self,
        probe: pa.Table,
        keys: tuple[Sequence[str], Sequence[str]],
        places: Ints,
        rows: Ints,
        at: Ints,
    ) -> Flags:
        fits = self.seen_from_us[rows] <= at
        for ours, theirs in zip(*keys, strict=True):
            held = one_chunk(self.table[ours]).take(pa.array(rows))
            fits &= same(held, one_chunk(probe[theirs]).take(pa.array(places)))
        return fits


class VersionMatches:
    """For each row that asked the version it gets: its run, and its row there; none where `runs` is -1."""

    def __init__(self, count: int) -> None:
        self.runs = np.full(count, -1, np.int64)
        self.rows = np.zeros(count, np.int64)
        self._order = [np.zeros(count, np.int64) for _ in range(3)]

    def offer(self, number: int, run: VersionRun, places: Ints, rows: Ints) -> None:
        """Takes versions that are later than those there are."""
        order = [run.times[rows], *(each[rows] for each in run.places)]
        better, level = self.runs[places] < 0, self.runs[places] >= 0
        for mine, theirs in zip(self._order, order, strict=True):
            better |= level & (theirs > mine[places])
            level &= theirs == mine[places]
        places, rows = places[better], rows[better]
        self.runs[places], self.rows[places] = number, rows
        for mine, theirs in zip(self._order, order, strict=True):
            mine[places] = theirs[better]

    def without_deletes(self, runs: Sequence[VersionRun]) -> "VersionMatches":
        for number, run in enumerate(runs):
            places = np.flatnonzero(self.runs == number)
            self.runs[places[run.deleted[self.rows[places]]]] = -1
        return self

    def same_as(self, other: "VersionMatches") -> Flags:
        return np.equal(self.runs, other.runs) & (np.equal(self.rows, other.rows) | (self.runs < 0))


class Versions:
    """All versions that an event may still ask for."""

    def __init__(self, keys: Sequence[str], correct_for_us: int, *, only_last: bool) -> None:
        self.keys = keys
        self.runs: list[VersionRun] = []
        self.horizon_us = EARLIEST_US
        self.touched = 0
        self._correct_for_us = correct_for_us
        self._only_last = only_last
        self._merged_rows = 0

    @property
    def row_count(self) -> int:
        return sum(run.table.num_rows for run in self.runs)

    def held(self) -> Held:
        """The versions, and from when the oldest is valid."""
        return held_in(Held(len(run.times), run.first_us) for run in self.runs)

    def run_of(self, table: pa.Table) -> VersionRun:
        """Rows, with hashes, as a run."""
        return VersionRun(_in_order(table), self._correct_for_us)

    def add(self, run: VersionRun) -> None:
        self.touched += run.table.num_rows
        if run.table.num_rows:
            self.runs.append(run)

    def look_up(self, probe: pa.Table, keys: Sequence[str], at: Ints) -> VersionMatches:
        """What the rows of `probe`, at these times, get; a delete is nothing."""
        answer = VersionMatches(probe.num_rows)
        for number, run in enumerate(self.runs):
            places, rows = run.last(probe, (self.keys, keys), at)
            self.touched += len(places)
            answer.offer(number, run, places, rows)
        return answer.without_deletes(self.runs)

    def forget(self, before_us: int) -> None:
        """Lets go, now and then, of what no event at or behind this time gets. Numbers of runs change."""
        self.horizon_us = max(self.horizon_us, before_us)
        rows = self.row_count
        if rows - self._merged_rows > max(_MANY_ROWS, self._merged_rows):
            self._merge_from(0)
        elif len(self.runs) > _MANY_RUNS:
            self._merge_from(self._suffix())

    def merged(self) -> pa.Table | None:
        """Everything that is needed, in one run, which is kept."""
        self._merge_from(0)
        return self.runs[0].table if self.runs else None

    def _merge_from(self, begin: int) -> None:
        if len(self.runs) == begin:
            return
        table = in_one_chunk([run.table for run in self.runs[begin:]])
        self.touched += table.num_rows
        run = self._reduced(VersionRun(_in_order(table), self._correct_for_us), whole=begin == 0)
        self.runs[begin:] = [run] if run.table.num_rows else []
        if begin == 0:
            self._merged_rows = run.table.num_rows

    def _reduced(self, run: VersionRun, *, whole: bool) -> VersionRun:
        if self.horizon_us == EARLIEST_US and not self._only_last:
            return run
        base_us = LATEST_US if self._only_last else self.horizon_us
        order, groups = grouped(run.table, self.keys)
        at = np.arange(len(order))
        seen = np.maximum(run.times, EARLIEST_US if self._only_last else run.seen_from_us)[order] <= base_us
        bases = np.maximum.reduceat(np.where(seen, at, -1), groups.representatives)
        kept = at >= bases[groups.ids]
        if whole:
            bases = bases[bases >= 0]
            rows = order[bases]
            kept[bases[run.deleted[rows] & (run.times[rows] < self.horizon_us)]] = False
        if kept.all():
            return run
        return VersionRun(run.table.take(pa.array(np.sort(order[kept]))), self._correct_for_us)

    def _suffix(self) -> int:
        sizes = [run.table.num_rows for run in self.runs]
        begin = len(sizes) - _MANY_RUNS // 2
        total = sum(sizes[begin:])
        while begin and sizes[begin - 1] <= 2 * total:
            begin -= 1
            total += sizes[begin]
        return begin


def _in_order(table: pa.Table) -> pa.Table:
    partitions = np.asarray(one_chunk(table["_partition"]).to_numpy()).astype(np.int64)
    order = ordered(hashes_of(table), numbers(table, "_event_time"), partitions, numbers(table, "_offset"))
    return table.take(pa.array(order))
