"""The distinct values of a column: what a count of them has to keep."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.streams.operators.aggregates.cells import Columns, plain, plain_type, type_of, valid
from headrace.streams.operators.grouping import Groups, Ints, one_chunk, runs_of
from headrace.streams.operators.hashing import normal_type
from headrace.streams.operators.order import ranks
from headrace.streams.operators.ranges import merge_ranges

__all__ = ["DistinctCell"]


@dataclass(frozen=True, slots=True)
class DistinctCell:
    """The values that rows have, each once, in order; nulls are left out, and both zeros are one."""

    column: str

    def columns(self, inputs: pa.Schema) -> list[tuple[str, pa.DataType]]:
        kind = plain_type(type_of(inputs, self.column))
        normal_type(kind, self.column)  # refuses what cannot be compared
        return [("values", pa.list_(pa.field("item", kind)))]

    def partial(self, rows: pa.Table, groups: Groups) -> Columns:
        values = plain(one_chunk(rows[self.column]))
        present = np.flatnonzero(valid(values))
        return self._lists(values.take(pa.array(present)), groups.ids[present], groups.count)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> Columns:
        sizes = columns[0].value_lengths().to_numpy(zero_copy_only=False).astype(np.int64)
        return self._lists(columns[0].flatten(), np.repeat(groups.ids, sizes), groups.count)

    def over(self, columns: Sequence[pa.Array], begins: Ints, ends: Ints) -> Columns:
        return merge_ranges(self.merge, columns, begins, ends)

    def _lists(self, values: pa.Array, ids: Ints, count: int) -> Columns:
        rank = ranks(values)
        order = np.lexsort((rank, ids))
        order = order[runs_of(ids[order], rank[order])] if len(order) else order
        offsets = pa.array(np.searchsorted(ids[order], np.arange(count + 1)).astype(np.int32))
        return [pa.ListArray.from_arrays(offsets, values.take(pa.array(order)))]
