"""Rows of state in runs ordered by hash: cheap to add to, found by bisection, merged now and then.

A new run is only appended. Runs are merged when there are too many to look into, each
time a suffix of similar sizes, so that a row is merged about as often as the logarithm
of the state's size over a batch's. A merge may reduce rows; what it makes of the rows of
one key must not depend on which runs were merged before.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.column_hash import Hashes
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.keys import hashes_of

__all__ = ["Held", "Runs", "expanded", "held_in", "held_rows", "in_one_chunk", "places_of"]

_MANY_RUNS = 8
_MANY_ROWS = 1 << 18

Merge = Callable[[pa.Table], pa.Table]


class Held(NamedTuple):
    """What a state holds of one input: rows, and the event time of the oldest, where rows have one."""

    rows: int
    oldest_us: int | None = None


def held_rows(tables: Iterable[pa.Table], time: str = "_event_time") -> Held:
    """The rows of some tables, whose event time is in that column."""
    return held_in(
        Held(
            table.num_rows,
            pc.min(table[time]).as_py() if time in table.column_names and table.num_rows else None,
        )
        for table in tables
    )


def held_in(parts: Iterable[Held]) -> Held:
    """What parts of a state hold together."""
    found = list(parts)
    times = [each.oldest_us for each in found if each.oldest_us is not None]
    return Held(sum(each.rows for each in found), min(times, default=None))


class Runs:
    """`merge` takes runs one behind the other and gives one, ordered by hash."""

    def __init__(self, merge: Merge) -> None:
        self._merge = merge
        self._tables: list[pa.Table] = []
        self._hashes: list[Hashes | None] = []
        self._held: list[Held | None] = []
        self._merged_rows = 0  # in the first run

    @property
    def row_count(self) -> int:
        return sum(table.num_rows for table in self._tables)

    @property
    def tables(self) -> Sequence[pa.Table]:
        return self._tables

    def held(self) -> Held:
        """The rows, and the event time of the oldest, where they have one. Each run is looked at once."""
        for number, table in enumerate(self._tables):
            if self._held[number] is None:
                self._held[number] = held_rows([table])
        return held_in(each for each in self._held if each is not None)

    def add(self, run: pa.Table) -> None:
        """The run is ordered by hash, and merged in itself. Costs nothing, until there are more rows
        than merged ones.
        """
        if not self._tables:
            self._merged_rows = run.num_rows
        self._tables.append(run)
        self._hashes.append(None)
        self._held.append(None)
        if self.row_count - self._merged_rows > max(_MANY_ROWS, self._merged_rows):
            self.merged()

    def merged(self) -> pa.Table | None:
        """Everything as one run, which is kept."""
        if len(self._tables) > 1:
            self._merge_from(0)
        return self._tables[0] if self._tables else None

    def replace(self, run: pa.Table) -> None:
        """Keeps this run instead of everything."""
        self._tables, self._hashes, self._held, self._merged_rows = [run], [None], [None], run.num_rows

    def find(self, hashes: Hashes) -> pa.Table | None:
        """All rows with one of the hashes, which are ascending and distinct."""
        if len(self._tables) > _MANY_RUNS:
            self._merge_from(self._suffix())
        found = []
        for number, table in enumerate(self._tables):
            rows = self._rows_of(number, hashes)
            if len(rows):
                found.append(table.take(pa.array(rows)))
        return pa.concat_tables(found) if found else None

    def matches(self, hashes: Hashes) -> list[tuple[pa.Table, Ints, Ints]]:
        """For each run with rows of these hashes, which ascend: it, and in pairs the places of the
        hashes and its rows that have them.
        """
        if len(self._tables) > _MANY_RUNS:
            self._merge_from(self._suffix())
        found = []
        for number, table in enumerate(self._tables):
            held = self._hashes_of(number)
            if not len(held):
                continue
            there, begins, ends = places_of(held, hashes)
            if len(there):
                found.append((table, np.repeat(there, ends - begins), expanded(begins, ends)[0]))
        return found

    def _rows_of(self, number: int, hashes: Hashes) -> Ints:
        held = self._hashes_of(number)
        if not len(held):
            return np.zeros(0, np.int64)
        _, begins, ends = places_of(held, hashes)
        return expanded(begins, ends)[0]

    def _hashes_of(self, number: int) -> Hashes:
        held = self._hashes[number]
        if held is None:
            held = self._hashes[number] = hashes_of(self._tables[number])
        return held

    def _suffix(self) -> int:
        sizes = [table.num_rows for table in self._tables]
        begin = len(sizes) - _MANY_RUNS // 2
        total = sum(sizes[begin:])
        while begin and sizes[begin - 1] <= 2 * total:
            begin -= 1
            total += sizes[begin]
        return begin

    def _merge_from(self, begin: int) -> None:
        if not self._tables:
            return
        run = self._merge(in_one_chunk(self._tables[begin:]))
        self._tables[begin:], self._hashes[begin:], self._held[begin:] = [run], [None], [None]
        self._merged_rows = self._tables[0].num_rows if begin == 0 else self._merged_rows


def in_one_chunk(tables: Sequence[pa.Table]) -> pa.Table:
    """One behind the other, every column in one chunk."""
    table = pa.concat_tables(tables)
    columns = [one_chunk(column) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def places_of(held: Hashes, hashes: Hashes) -> tuple[Ints, Ints, Ints]:
    """Which of the hashes are held, and where each of these begins and ends; both columns ascend.

    Most are there once, so that the end need not be looked for.
    """
    begins = np.searchsorted(held, hashes, "left")
    last = len(held) - 1
    there = np.flatnonzero(held[np.minimum(begins, last)] == hashes)
    begins, wanted = begins[there], hashes[there]
    ends = begins + 1
    more = np.flatnonzero((held[np.minimum(ends, last)] == wanted) & (ends <= last))
    ends[more] = np.searchsorted(held, wanted[more], "right")
    return there, begins, ends


def expanded(begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The numbers of all ranges one behind the other, and where in them each range begins."""
    sizes = ends - begins
    places = np.cumsum(sizes) - sizes
    total = int(sizes.sum())
    if total == len(begins) and (sizes == 1).all():
        return begins.astype(np.int64), places
    steps = np.arange(total, dtype=np.int64)
    return steps + np.repeat(begins - places, sizes), places
