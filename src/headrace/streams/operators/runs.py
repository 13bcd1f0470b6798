"""Rows of state in runs ordered by hash: cheap to add to, found by their hash, merged now and then.

A new run is only appended. Runs are merged when there are too many to look into, each
time a suffix of similar sizes, so that a row is merged about as often as the logarithm
of the state's size over a batch's. A merge may reduce rows; what it makes of the rows of one
key must not depend on which runs were merged before.

Where a merge leaves one row for each key, large ones only put rows one behind the other and merge
their hashes, which costs a tenth. Rows of a key that has several are superfluous then. They are
reduced when there are as many rows behind the first run as in it, or when looking at superfluous
ones has cost as much as reducing all.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.column_hash import Hashes
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.hash_index import HashIndex
from headrace.streams.operators.keys import hashes_of

__all__ = ["Held", "Runs", "expanded", "held_in", "held_rows", "in_one_chunk"]

_MANY_RUNS = 8
_FEW_RUNS = 4  # where it costs little to have no more
_MANY_ROWS = 1 << 18
_FEW_ROWS = 1 << 15  # which the processor's caches have

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


class _Run:
    """Rows, and their hashes as they ascend; `order` are the rows in that order, None if it is their own."""

    __slots__ = ("_held", "_index", "order", "table")

    def __init__(self, table: pa.Table, index: HashIndex | None = None, order: Ints | None = None) -> None:
        self.table = table
        self.order = order
        self._index = index
        self._held: Held | None = None

    @property
    def index(self) -> HashIndex:
        if self._index is None:
            self._index = HashIndex(hashes_of(self.table))
        return self._index

    @property
    def held(self) -> Held:
        if self._held is None:
            self._held = held_rows([self.table])
        return self._held

    def rows(self, places: Ints) -> Ints:
        """The rows whose hashes are at these places."""
        return places if self.order is None else self.order[places]


class Runs:
    """`merge` takes runs one behind the other and gives one, ordered by hash.

    `one_each` says that what it gives has one row for each key.
    """

    def __init__(self, merge: Merge, *, one_each: bool = False) -> None:
        self._merge = merge
        self._one_each = one_each
        self._most_runs = _FEW_RUNS if one_each else _MANY_RUNS
        self._runs: list[_Run] = []
        self._merged_rows = 0  # in the first run
        self._superfluous = 0  # rows that were looked at since all were merged

    @property
    def row_count(self) -> int:
        return sum(run.table.num_rows for run in self._runs)

    @property
    def tables(self) -> Sequence[pa.Table]:
        return [run.table for run in self._runs]

    def held(self) -> Held:
        """The rows, and the event time of the oldest, where they have one. Each run is looked at once."""
        return held_in(run.held for run in self._runs)

    def add(self, run: pa.Table) -> None:
        """The run is ordered by hash, and merged in itself. Costs nothing, until there are more rows
        than merged ones.
        """
        if not self._runs:
            self._merged_rows = run.num_rows
        self._runs.append(_Run(run))
        if self._rows_behind > max(_MANY_ROWS, self._merged_rows):
            self.merged()

    def merged(self) -> pa.Table | None:
        """Everything as one run, which is kept."""
        if len(self._runs) > 1:
            self._merge_from(0)
        return self._runs[0].table if self._runs else None

    def replace(self, run: pa.Table) -> None:
        """Keeps this run instead of everything."""
        self._runs, self._merged_rows, self._superfluous = [_Run(run)], run.num_rows, 0

    def find(self, hashes: Hashes) -> pa.Table | None:
        """All rows with one of the hashes, which are ascending and distinct."""
        self._make_few()
        found = []
        for run in self._runs:
            _, begins, ends = run.index.places_of(hashes)
            if len(begins):
                found.append(run.table.take(pa.array(run.rows(expanded(begins, ends)[0]))))
        if not found:
            return None
        self._superfluous += max(0, sum(each.num_rows for each in found) - len(hashes))
        return pa.concat_tables(found)

    def matches(self, hashes: Hashes) -> list[tuple[pa.Table, Ints, Ints]]:
        """For each run with rows of these hashes, which ascend: it, and in pairs the places of the
        hashes and its rows that have them.
        """
        self._make_few()
        found = []
        for run in self._runs:
            there, begins, ends = run.index.places_of(hashes)
            if len(there):
                rows = run.rows(expanded(begins, ends)[0])
                found.append((run.table, np.repeat(there, ends - begins), rows))
        return found

    @property
    def _rows_behind(self) -> int:
        """The rows behind the first run."""
        return self.row_count - self._merged_rows

    def _make_few(self) -> None:
        if len(self._runs) <= self._most_runs:
            return
        begin = self._suffix(1 if self._one_each else 0)
        if not self._one_each or sum(run.table.num_rows for run in self._runs[begin:]) < _FEW_ROWS:
            self._merge_from(begin)
        elif self._superfluous > self._rows_behind:
            self._merge_from(1)
        else:
            self._join_from(begin)

    def _suffix(self, first: int) -> int:
        """Where the runs begin that are merged next, not before the `first`."""
        sizes = [run.table.num_rows for run in self._runs]
        begin = len(sizes) - self._most_runs // 2
        total = sum(sizes[begin:])
        while begin > first and sizes[begin - 1] <= 2 * total:
            begin -= 1
            total += sizes[begin]
        return begin

    def _merge_from(self, begin: int) -> None:
        run = self._merge(in_one_chunk([run.table for run in self._runs[begin:]]))
        self._runs[begin:] = [_Run(run)]
        self._superfluous = 0 if begin <= 1 else self._superfluous
        self._merged_rows = run.num_rows if begin == 0 else self._merged_rows

    def _join_from(self, begin: int) -> None:
        """Puts runs one behind the other as they are, and merges their hashes."""
        runs = self._runs[begin:]
        first = np.cumsum([0, *(run.table.num_rows for run in runs[:-1])])
        hashes = np.concatenate([run.index.hashes for run in runs])
        rows = np.concatenate(
            [run.rows(np.arange(run.table.num_rows)) + at for run, at in zip(runs, first, strict=True)]
        )
        order = np.argsort(hashes, kind="stable")
        table = in_one_chunk([run.table for run in runs])
        self._runs[begin:] = [_Run(table, HashIndex(hashes[order]), rows[order])]


def in_one_chunk(tables: Sequence[pa.Table]) -> pa.Table:
    """One behind the other, every column in one chunk."""
    table = pa.concat_tables(tables)
    columns = [one_chunk(column) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=table.schema)


def expanded(begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """The numbers of all ranges one behind the other, and where in them each range begins."""
    sizes = ends - begins
    places = np.cumsum(sizes) - sizes
    total = int(sizes.sum())
    if total == len(begins) and (sizes == 1).all():
        return begins.astype(np.int64), places
    steps = np.arange(total, dtype=np.int64)
    return steps + np.repeat(begins - places, sizes), places
