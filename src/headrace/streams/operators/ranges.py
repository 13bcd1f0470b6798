"""Cells over ranges of rows that overlap: what a sliding window needs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.operators.grouping import Groups, Ints, one_chunk
from headrace.streams.operators.runs import expanded

__all__ = ["Merge", "Only", "merge_ranges", "range_extremes", "range_sums"]

_MANY_ROWS = 1 << 20


@dataclass(frozen=True, slots=True)
class Only:
    """The rows of a range that take part: those whose value is at most the limit of the range."""

    values: Ints
    limits: Ints


Merge = Callable[[Sequence[pa.Array], Groups], list[pa.Array]]


def merge_ranges(
    merge: Merge, columns: Sequence[pa.Array], begins: Ints, ends: Ints, only: Only | None = None
) -> list[pa.Array]:
    """Merges each range [begin, end) of rows, none of which is empty, by writing all of them out.

    Costs the sum of the ranges' lengths; bounded in memory. `only` leaves rows out, but
    not all of a range.
    """
    if not len(begins):
        return merge([column.slice(0, 0) for column in columns], Groups.singletons(0))
    total = np.cumsum(ends - begins)
    cuts = np.unique(np.searchsorted(total, np.arange(_MANY_ROWS, total[-1], _MANY_ROWS)) + 1)
    edges = [0, *cuts[cuts < len(begins)].tolist(), len(begins)]
    parts = []
    for begin, end in pairwise(edges):
        rows, starts = expanded(begins[begin:end], ends[begin:end])
        if only is not None:
            rows, starts = _left(rows, starts, only.values[rows], only.limits[begin:end])
        taken = pa.array(rows)
        parts.append(merge([column.take(taken) for column in columns], Groups.adjacent(starts, len(rows))))
    return [one_chunk(pa.chunked_array(each)) for each in zip(*parts, strict=True)]


def _left(rows: Ints, starts: Ints, values: Ints, limits: Ints) -> tuple[Ints, Ints]:
    """The rows of ranges whose value is within the limit of their range, and where the ranges begin then."""
    kept = values <= np.repeat(limits, np.diff(starts, append=len(rows)))
    before: Ints = np.cumsum(kept) - kept
    return rows[kept], before[starts]


def range_sums(values: Ints, begins: Ints, ends: Ints) -> Ints:
    """Sums of ranges; where one fits an int64 it is right, even if the running total wraps."""
    total = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=total[1:])
    return total[ends] - total[begins]


def range_extremes(
    ufunc: np.ufunc, values: npt.NDArray[np.generic], begins: Ints, ends: Ints
) -> npt.NDArray[np.generic]:
    """The least or greatest of each range, none of which is empty, by a table of doubling spans."""
    result = np.empty(len(begins), values.dtype)
    levels = np.frexp((ends - begins).astype(np.float64))[1] - 1
    table = values
    for level in range(int(levels.max(initial=-1)) + 1):
        here = np.flatnonzero(levels == level)
        result[here] = ufunc(table[begins[here]], table[ends[here] - (1 << level)])
        if len(table) > 1 << level:
            table = ufunc(table[: len(table) - (1 << level)], table[1 << level :])
    return result
