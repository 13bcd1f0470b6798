"""A log of upserts and deletes into changes of a table.

The row of a key is the last that its partition has of it. Producers send a key to one partition
as long as the topic has as many; a key that occurs in several, since partitions were added, has
the row that is valid from the latest time, and of equal ones that of the higher partition. So
what the table holds depends on the records alone, and not on the order in which partitions were
read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.column_hash import hash_columns
from headrace.errors import RequestError
from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.keys import HASH, grouped, key_columns, of_keys
from headrace.streams.operators.operator import (
    DELETED,
    WEIGHT,
    OperatorDefaults,
    OperatorStep,
    numbers,
    own_fields,
    stamp_fields,
)
from headrace.streams.operators.run_state import RunState
from headrace.streams.operators.runs import Runs
from headrace.streams.operators.tables.unchanged import UNCHANGED, filled

__all__ = ["UpsertState", "Upserts", "stamped_changes", "without_pairs"]


@dataclass(frozen=True)
class Upserts(OperatorDefaults):
    """The newest row of each key. Input rows have a bool column `_deleted` beside their own.

    Those of changes also have `_unchanged`: fields that kept their value (`unchanged`).

    That a key was deleted is remembered for `keep_us`, by event time, should another partition
    still bring an older row of it.
    """

    key: tuple[str, ...]
    keep_us: int = 86_400_000_000

    @property
    def inputs(self) -> tuple[tuple[str, ...], ...]:
        return (self.key,)

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        for name in self.key:
            if name not in schemas[0].names:
                raise RequestError(f"there is no key column {name!r}; there are {schemas[0].names}")
        return pa.schema([each for each in own_fields(schemas[0]) if each.name not in (DELETED, UNCHANGED)])

    def new_state(self, schemas: Sequence[pa.Schema]) -> "UpsertState":
        return UpsertState(self, self.result(schemas))

    def describe(self) -> dict[str, Any]:
        return {"operator": "table", "version": 1, "key": list(self.key), "keep_us": self.keep_us}


class UpsertState(RunState):
    """The rows of one bucket of keys, deleted ones included until the next snapshot."""

    def __init__(self, operator: Upserts, schema: pa.Schema) -> None:
        self._operator = operator
        self._schema = schema
        super().__init__(Runs(self._newest, one_each=True))
        self._watermark_us = NO_WATERMARK

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        self._watermark_us = max(self._watermark_us, watermarks[0])
        return super().advance(arrived, watermarks)

    def _run(self, rows: pa.Table) -> pa.Table:
        return self._newest(self._hashed(rows))

    def _step(self, before: pa.Table | None, run: pa.Table) -> OperatorStep:
        return OperatorStep(changes=self._changes(before, run), delta=self._encoded(run))

    def _reduce(self) -> None:
        merged = self._runs.merged()
        if merged is not None:
            self._runs.replace(self._without_old_deletes(merged))

    def _hashed(self, rows: pa.Table) -> pa.Table:
        keys = key_columns(rows, self._operator.key)
        for name, column in zip(self._operator.key, keys, strict=True):
            rows = rows.set_column(rows.column_names.index(name), name, column)
        return rows.append_column(HASH, pa.array(hash_columns(keys, rows.num_rows)))

    def _newest(self, table: pa.Table) -> pa.Table:
        """Of each key and partition the last row, with all that is known of it, ordered by hash."""
        order, ids, partitions = self._ordered(table)
        last = _last_of(ids, partitions)
        if self._has_unchanged(table):
            whole = filled(table.take(pa.array(order)), np.append(0, last[:-1] + 1))
            return whole.take(pa.array(last)).combine_chunks()
        return table.take(pa.array(order[last])).combine_chunks()

    def _by_offset(self, table: pa.Table) -> pa.Table:
        """All rows by key, partition and offset, each with all that is known of it."""
        order, ids, partitions = self._ordered(table)
        table = table.take(pa.array(order))
        last = _last_of(ids, partitions)
        return filled(table, np.append(0, last[:-1] + 1)) if self._has_unchanged(table) else table

    def _ordered(self, table: pa.Table) -> tuple[Ints, Ints, Ints]:
        """An order by key, partition and offset; in it, the keys' numbers and the partitions."""
        order, groups = grouped(table, self._operator.key)
        partitions, offsets = numbers(table, "_partition")[order], numbers(table, "_offset")[order]
        if _ascend(groups.ids, partitions, offsets):  # as rows of a log that is read in its order do
            return order, groups.ids, partitions
        ranked = np.lexsort((offsets, partitions, groups.ids))
        return order[ranked], groups.ids[ranked], partitions[ranked]

    def _has_unchanged(self, table: pa.Table) -> bool:
        return UNCHANGED in table.column_names and table[UNCHANGED].null_count < table.num_rows

    def _without_old_deletes(self, table: pa.Table) -> pa.Table:
        """Deletes of long ago are forgotten, unless another partition's row stands behind them."""
        if self._watermark_us == NO_WATERMARK:
            return table
        order, groups = grouped(table, self._operator.key)
        is_old = numbers(table, "_event_time")[order] < self._watermark_us - self._operator.keep_us
        gone = _flags(table, DELETED)[order] & is_old & (groups.sizes[groups.ids] == 1)
        return table.take(pa.array(order[~gone])).combine_chunks()

    def _changes(self, before: pa.Table | None, run: pa.Table) -> pa.Table | None:
        """What the keys of a run showed before it, withdrawn; and what they show with it."""
        touched = run.slice(0, 0) if before is None else of_keys(before, run, self._operator.key)
        return self._weighted(self._shown(touched), self._shown(pa.concat_tables([touched, run])))

    def _shown(self, table: pa.Table) -> pa.Table:
        """Of each key the row that the table shows; none where the newest is a delete."""
        table = self._newest(table)
        order, groups = grouped(table, self._operator.key)
        times, partitions = numbers(table, "_event_time")[order], numbers(table, "_partition")[order]
        if not _ascend(groups.ids, times, partitions):
            order = order[np.lexsort((partitions, times, groups.ids))]
        last = order[_last_of(groups.ids)]
        shown = table.take(pa.array(last)).combine_chunks()
        return shown.filter(pa.array(~_flags(shown, DELETED)))

    def _weighted(self, old: pa.Table, new: pa.Table) -> pa.Table | None:
        parts = [stamped_changes(old, self._schema, -1), stamped_changes(new, self._schema, 1)]
        changes = without_pairs(pa.concat_tables(parts).combine_chunks(), self._operator.key)
        return changes if changes.num_rows else None


def without_pairs(changes: pa.Table, key: Sequence[str]) -> pa.Table:
    """Changes of a table with at most one row a key, without rows that are withdrawn and put back alike."""
    hashed = changes.append_column(
        HASH, pa.array(hash_columns(key_columns(changes, key), changes.num_rows))
    ).combine_chunks()
    order, groups = grouped(hashed, key)
    pairs = np.flatnonzero(groups.sizes == 2)
    if not len(pairs):
        return changes
    starts = groups.representatives
    first, second = pa.array(order[starts[pairs]]), pa.array(order[starts[pairs] + 1])
    alike = np.ones(len(pairs), np.bool_)
    for field in own_fields(changes.schema):
        column = one_chunk(changes[field.name])
        alike &= _equal(column.take(first), column.take(second))
    gone = np.zeros(changes.num_rows, np.bool_)
    gone[first.to_numpy()[alike]] = gone[second.to_numpy()[alike]] = True
    return changes.filter(pa.array(~gone))


def _equal(left: pa.Array, right: pa.Array) -> npt.NDArray[np.bool_]:
    """Which values are the same, bit by bit; nulls are, and so are NaNs of one kind."""
    if pa.types.is_nested(left.type):
        return np.array([a.equals(b) for a, b in zip(left, right, strict=True)], np.bool_)
    if pa.types.is_floating(left.type):
        width = pa.int64() if left.type.bit_width == 64 else pa.int32()
        left, right = left.view(width), right.view(width)
    equal = pa.compute.equal(left, right).fill_null(False)
    both_null = pa.compute.and_(left.is_null(), right.is_null())
    return np.asarray(pa.compute.or_(equal, both_null).to_numpy(zero_copy_only=False))


def stamped_changes(table: pa.Table, schema: pa.Schema, weight: int) -> pa.Table:
    """Rows of a table as changes: their own columns, the weight, and stamps that mean nothing."""
    count = table.num_rows
    columns = [one_chunk(table[each.name]).cast(each.type) for each in schema]
    for field in stamp_fields():
        value = pa.scalar(weight, field.type) if field.name == WEIGHT else pa.scalar(None, field.type)
        columns.append(pa.repeat(value, count))
    return pa.Table.from_arrays(columns, schema=pa.schema([*schema, *stamp_fields()]))


def _flags(table: pa.Table, name: str) -> npt.NDArray[np.bool_]:
    return np.asarray(one_chunk(table[name]).to_numpy(zero_copy_only=False))


def _ascend(ids: Ints, first: Ints, second: Ints) -> bool:
    """Whether rows, which ascend by id, ascend by the two other columns where they share one."""
    again = np.flatnonzero(ids[1:] == ids[:-1])
    before, behind = first[again], first[again + 1]
    level = before == behind
    return not ((before > behind) | (level & (second[again] > second[again + 1]))).any()


def _last_of(*columns: npt.NDArray[np.generic]) -> Ints:
    """The last row of each run of equal rows, in columns that are sorted together."""
    rows = len(columns[0])
    if not rows:
        return np.zeros(0, np.int64)
    last = np.zeros(rows, np.bool_)
    last[-1] = True
    for column in columns:
        last[:-1] |= column[1:] != column[:-1]
    return np.flatnonzero(last)
