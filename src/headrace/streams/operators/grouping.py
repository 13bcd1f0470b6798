"""Which rows belong together, and reductions over them, without a Python step per row."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Groups", "one_chunk"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Groups:
    """Numbers each row of a table with its group, 0 to `count` - 1; no group is empty.

    `starts` is given when the rows of a group stand side by side, in the groups' order:
    the first row of each. Reductions are then a single pass over memory.
    """

    def __init__(self, ids: Ints, count: int, starts: Ints | None = None) -> None:
        self.ids = ids
        self.count = count
        self.starts = starts

    @classmethod
    def adjacent(cls, starts: Ints, rows: int) -> "Groups":
        """Groups of rows that stand side by side, given where each begins."""
        sizes = np.diff(starts, append=rows)
        return cls(np.repeat(np.arange(len(starts), dtype=np.int64), sizes), len(starts), starts)

    @classmethod
    def singletons(cls, rows: int) -> "Groups":
        """Each row for itself."""
        every = np.arange(rows, dtype=np.int64)
        return cls(every, rows, every)

    @cached_property
    def sizes(self) -> Ints:
        """Rows in each group."""
        return np.bincount(self.ids, minlength=self.count)

    @cached_property
    def largest(self) -> int:
        return int(self.sizes.max(initial=0))

    @cached_property
    def representatives(self) -> Ints:
        """The first row of each group."""
        if self.starts is not None:
            return self.starts
        rows = np.empty(self.count, np.int64)
        rows[self.ids[::-1]] = np.arange(len(self.ids) - 1, -1, -1)
        return rows

    def of(self, rows: Ints) -> "Groups":
        """The same groups over some of the rows; a group may then be empty."""
        return Groups(self.ids[rows], self.count)

    def sum(self, values: Ints) -> Ints:
        """Sums that wrap where they do not fit: see `limbs` for those that must not."""
        return self._reduce(np.add, values, 0)

    def sum_floats(self, values: Floats) -> Floats:
        return np.bincount(self.ids, values, minlength=self.count).astype(np.float64, copy=False)

    def minimum(self, values: npt.NDArray[np.generic], of_nothing: object) -> npt.NDArray[np.generic]:
        return self._reduce(np.minimum, values, of_nothing)

    def maximum(self, values: npt.NDArray[np.generic], of_nothing: object) -> npt.NDArray[np.generic]:
        return self._reduce(np.maximum, values, of_nothing)

    def fminimum(self, values: Floats, of_nothing: float) -> Floats:
        """The least that is a number; NaN where nothing else is."""
        return self._reduce(np.fmin, values, of_nothing)

    def any_bits(self, values: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
        """The bits that any row of the group has."""
        if not values.any():
            return np.zeros(self.count, values.dtype)
        return self._reduce(np.bitwise_or, values, 0)

    def aggregate(self, values: pa.Array, function: str) -> pa.Array:
        """One of Arrow's grouped aggregates ("min", "max", "product", ...), in the groups' order."""
        table = pa.table({"group": pa.array(self.ids), "value": values})
        reduced = table.group_by("group", use_threads=False).aggregate([("value", function)]).combine_chunks()
        places = np.full(self.count, -1, np.int64)
        places[reduced["group"].to_numpy()] = np.arange(reduced.num_rows)
        return one_chunk(reduced[f"value_{function}"]).take(pa.array(places, mask=places < 0))

    def _reduce(self, ufunc: np.ufunc, values: npt.NDArray[np.generic], of_nothing: object) -> npt.NDArray:  # type: ignore[type-arg]
        if self.starts is not None:
            return ufunc.reduceat(values, self.starts) if self.count else values[:0]
        reduced = np.full(self.count, of_nothing, values.dtype)
        with np.errstate(invalid="ignore"):  # a NaN in the data is no mistake
            ufunc.at(reduced, self.ids, values)
        return reduced


def one_chunk(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """The column as one array; copies only what is in several."""
    if isinstance(column, pa.Array):
        return column
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def runs_of(*columns: npt.NDArray[np.generic]) -> Ints:
    """Where a new run of equal rows begins in columns that are sorted together."""
    rows = len(columns[0])
    new = np.zeros(rows, np.bool_)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def concatenated(arrays: Sequence[npt.NDArray[np.generic]]) -> npt.NDArray:  # type: ignore[type-arg]
    return np.concatenate(arrays) if len(arrays) != 1 else arrays[0]
