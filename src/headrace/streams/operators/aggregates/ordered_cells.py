"""Cells that depend on the order of events: by event time, then partition, then offset.

That order is the events' own, not that of their arrival.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.aggregates.cells import Columns, plain, plain_type, type_of, valid
from headrace.streams.operators.grouping import Groups, Ints, one_chunk, runs_of
from headrace.streams.operators.ranges import merge_ranges

__all__ = ["CollectCell", "PickCell"]

_ORDER = ("_event_time", "_partition", "_offset")
_ORDER_COLUMNS: list[tuple[str, pa.DataType]] = [
    ("time", pa.int64()),
    ("partition", pa.int32()),
    ("offset", pa.int64()),
]


@dataclass(frozen=True, slots=True)
class PickCell:
    """The value of the first or the last event, and where that stands; null order: there was none."""

    column: str
    last: bool
    ignore_nulls: bool

    def columns(self, inputs: pa.Schema) -> list[tuple[str, pa.DataType]]:
        return [("value", plain_type(type_of(inputs, self.column))), *_ORDER_COLUMNS]

    def partial(self, rows: pa.Table, groups: Groups) -> Columns:
        value = plain(one_chunk(rows[self.column]))
        order = [one_chunk(rows[name]) for name in _ORDER]
        if self.ignore_nulls and value.null_count:
            missing = value.is_null()
            order = [pa.compute.if_else(missing, None, each) for each in order]
        return self.merge([value, *order], groups)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> Columns:
        rows = np.flatnonzero(valid(columns[1])) if columns[1].null_count else np.arange(len(columns[1]))
        for column in columns[1:]:  # narrow down to one row per group
            rows = self._extreme(column.take(pa.array(rows)).to_numpy(), rows, groups.of(rows))
        chosen = np.full(groups.count, -1)
        chosen[groups.ids[rows]] = rows
        taken = pa.array(chosen, mask=chosen < 0)
        return [column.take(taken) for column in columns]

    def over(self, columns: Sequence[pa.Array], begins: Ints, ends: Ints) -> Columns:
        if columns[1].null_count:
            return merge_ranges(self.merge, columns, begins, ends)
        taken = pa.array(ends - 1 if self.last else begins)
        return [column.take(taken) for column in columns]

    def _extreme(self, values: Ints, rows: Ints, groups: Groups) -> Ints:
        bounds = np.iinfo(values.dtype)
        best = groups.maximum(values, bounds.min) if self.last else groups.minimum(values, bounds.max)
        return np.asarray(rows[values == best[groups.ids]])


@dataclass(frozen=True, slots=True)
class CollectCell:
    """The values of the first `limit` events that have one, in order, and where those stand."""

    column: str
    limit: int

    def columns(self, inputs: pa.Schema) -> list[tuple[str, pa.DataType]]:
        kind = plain_type(type_of(inputs, self.column))
        parts = [("value", kind), *_ORDER_COLUMNS]
        return [(name, pa.list_(pa.field("item", each))) for name, each in parts]

    def partial(self, rows: pa.Table, groups: Groups) -> Columns:
        value = plain(one_chunk(rows[self.column]))
        present = np.flatnonzero(valid(value))
        taken = pa.array(present)
        columns = [value.take(taken), *(one_chunk(rows[name]).take(taken) for name in _ORDER)]
        return self._lists(columns, groups.ids[present], groups.count)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> Columns:
        sizes = columns[0].value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        return self._lists([each.flatten() for each in columns], np.repeat(groups.ids, sizes), groups.count)

    def over(self, columns: Sequence[pa.Array], begins: Ints, ends: Ints) -> Columns:
        return merge_ranges(self.merge, columns, begins, ends)

    def _lists(self, columns: list[pa.Array], ids: Ints, count: int) -> Columns:
        time, partition, offset = (each.to_numpy() for each in columns[1:])
        order = np.lexsort((offset, partition, time, ids))
        starts = runs_of(ids[order]) if len(order) else order
        place = np.arange(len(order)) - np.repeat(starts, np.diff(starts, append=len(order)))
        order = order[place < self.limit]
        offsets = pa.array(np.searchsorted(ids[order], np.arange(count + 1)).astype(np.int32))
        taken = pa.array(order)
        return [pa.ListArray.from_arrays(offsets, column.take(taken)) for column in columns]


def check_limit(limit: int) -> None:
    if not 1 <= limit <= 1_000_000:
        raise RequestError(f"collect's limit is {limit}; give one between 1 and 1,000,000")
