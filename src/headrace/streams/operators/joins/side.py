"""One input of a join of tables as it is held: its rows by key, how many there are of each key, or both."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.hashing import distinct, same
from headrace.streams.operators.joins.columns import ROW, Columns, keyed
from headrace.streams.operators.joins.values import Flags, any_null, columns_of, summed
from headrace.streams.operators.keys import HASH, grouped, hashes_of
from headrace.streams.operators.operator import WEIGHT, numbers
from headrace.streams.operators.runs import Runs

__all__ = ["Side"]


class Side:
    """One input: the rows that are there, and how many there are of each key, as far as they are needed."""

    def __init__(self, columns: Columns, side: int, *, rows: bool, counts: bool) -> None:
        self.keys = columns.keys[side]
        self.names = [each.name for each in columns.fields[side]]
        self.beside = [name for name in self.names if name not in self.keys]
        self.given = columns.beside[side]
        self.touched = 0
        self.rows = Runs(self._merged_rows) if rows else None
        self.counts = Runs(self._merged_counts) if counts else None

    @property
    def row_count(self) -> int:
        return sum(each.row_count for each in (self.rows, self.counts) if each is not None)

    def prepared(self, arrived: pa.Table | None) -> pa.Table | None:
        """What arrived: keys in normal form, hashed, ordered by hash, equal rows summed.

        Where no rows are kept, only the number of rows of each key.
        """
        if arrived is None or not arrived.num_rows:
            return None
        self.touched += arrived.num_rows
        if self.rows is None:
            return self.counted(keyed(arrived.select([*self.keys, WEIGHT]), self.keys, None))
        table = keyed(arrived.select([*self.names, WEIGHT]), self.keys, self.given)
        return self._merged_rows(table)

    def counted(self, table: pa.Table) -> pa.Table:
        """How much the number of rows of each key changes."""
        order, groups = grouped(table, self.keys)
        weights = groups.sum(numbers(table, WEIGHT)[order])
        first = pa.array(order[groups.representatives])
        counts = table.select([*self.keys, HASH]).take(first).append_column(WEIGHT, pa.array(weights))
        return counts if weights.all() else counts.filter(pa.array(weights != 0))

    def counts_of(self, table: pa.Table | None) -> pa.Table | None:
        """What the numbers by key change by when these rows, which are prepared, are added."""
        if table is None or self.counts is None:
            return None
        return table if self.rows is None else self.counted(table)

    def partners(self, others: pa.Table, keys: Sequence[str]) -> Ints:
        """How many rows have the key of each of these."""
        found = np.zeros(others.num_rows, np.int64)
        if self.counts is not None:
            for table, places, rows in self.pairs(self.counts, others, keys):
                np.add.at(found, places, numbers(table, WEIGHT)[rows])
        return found

    def pairs(self, runs: Runs, others: pa.Table, keys: Sequence[str]) -> list[tuple[pa.Table, Ints, Ints]]:
        """For each run that has rows with the keys of others: it, places among the others, its rows."""
        found = []
        for table, places, rows in runs.matches(hashes_of(others)):
            self.touched += len(rows)
            equal: Flags | None = None
            for ours, theirs in zip(self.keys, keys, strict=True):
                held = one_chunk(table[ours]).take(pa.array(rows))
                alike = same(held, one_chunk(others[theirs]).take(pa.array(places)))
                equal = alike if equal is None else equal & alike
            if equal is not None and not equal.all():
                places, rows = places[equal], rows[equal]
            found.append((table, places, rows))
        return found

    def add(self, table: pa.Table | None, counts: pa.Table | None) -> None:
        if self.rows is not None and table is not None and table.num_rows:
            self.rows.add(table)
        if self.counts is not None and counts is not None and counts.num_rows:
            self.counts.add(counts)

    def _merged_rows(self, table: pa.Table) -> pa.Table:
        self.touched += table.num_rows
        columns = columns_of(table, self.names)
        hashes = [hashes_of(table), np.asarray(one_chunk(table[ROW]).to_numpy())]
        order, weights, _ = summed(hashes, columns, numbers(table, WEIGHT))
        merged = table.drop_columns(WEIGHT).take(pa.array(order))
        return merged.append_column(WEIGHT, pa.array(weights))

    def _merged_counts(self, table: pa.Table) -> pa.Table:
        self.touched += table.num_rows
        return self.counted(table)

    def now(self, others: pa.Table, keys: Sequence[str]) -> list[tuple[pa.Table, Ints, Ints]]:
        """The same for the rows that there are now, as one run: what came and went again is in none."""
        held = None if self.rows is None else self.rows.find(distinct(hashes_of(others)))
        if held is None:
            return []
        runs = Runs(self._merged_rows)
        runs.add(self._merged_rows(held))
        return self.pairs(runs, others, keys)

    def with_keys(self, table: pa.Table | None) -> pa.Table | None:
        """Rows that may have partners: those without a null in their key."""
        nulls = None if table is None else any_null(columns_of(table, self.keys), table.num_rows)
        return table if table is None or nulls is None else table.filter(pa.array(~nulls))
