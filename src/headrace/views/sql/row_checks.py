"""Whether rows of a view are those that were written: a checksum for each, and a tally of all. Pure.

A checksum is over all values of its row and the view's name, and stands beside them in a column of its
own. The tally, which the ledger keeps, is the number of rows and the sum of their checksums: it tells
that a row is missing, or is an older one. Of rows that a condition leaves out, the checksums tell
nothing, so that the whole view is compared before the first such read, and again a day later.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from crc32c import crc32c

from headrace.column_hash import hash_columns

__all__ = ["CHECK", "Checks", "RecentChecks", "Tally", "change_check", "row_checks"]

CHECK = "headrace_check"
Checks = npt.NDArray[np.int32]
_RECENT_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Tally:
    """How many rows there are, and the sum of their checksums."""

    rows: int = 0
    total: int = 0

    def plus(self, checks: Checks) -> "Tally":
        return Tally(self.rows + len(checks), self.total + int(checks.sum(dtype=np.int64)))

    def minus(self, other: "Tally") -> "Tally":
        return Tally(self.rows - other.rows, self.total - other.total)


class RecentChecks:
    """Which views have been compared as a whole lately."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._checked_s: dict[str, float] = {}

    def has(self, view: str) -> bool:
        checked_s = self._checked_s.get(view)
        return checked_s is not None and self._now_s() - checked_s < _RECENT_S

    def add(self, view: str) -> None:
        self._checked_s[view] = self._now_s()


def row_checks(view: str, columns: Sequence[pa.Array], rows: int) -> Checks:
    """The checksum of each row; nested columns are given as their JSON."""
    hashes = hash_columns([_plain(each) for each in columns], rows) >> np.uint64(32)
    return (hashes.astype(np.uint32) ^ np.uint32(crc32c(view.encode()))).view(np.int32)


def change_check(values: Iterable[Any]) -> int:
    """The checksum of a kept change, from everything that is written of it."""
    return crc32c(repr(tuple(values)).encode())


def _plain(column: pa.Array) -> pa.Array:
    """With offsets of 32 bits, and one NaN."""
    kind, types = column.type, pa.types
    if types.is_large_string(kind):
        return column.cast(pa.string())
    if types.is_large_binary(kind):
        return column.cast(pa.binary())
    if types.is_floating(kind):
        return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), kind), column)
    return column
