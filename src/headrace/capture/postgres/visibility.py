"""Which transactions a snapshot of PostgreSQL contains. Pure.

A snapshot is written `xmin:xmax:xip,…`: everything before `xmin` is over, nothing from
`xmax` on has ended, and of those between, the listed ones have not.

A commit stands in the log before others can see it. So a transaction may have come out of the
stream already and still be missing from a snapshot taken afterwards: `Recent` knows the ones
that came out lately, and `misses` says whether a snapshot is too old for them.
"""

from collections import deque
from dataclasses import dataclass

from headrace.errors import CorruptionError

__all__ = ["Recent", "Visibility"]

_WRAP = 1 << 32


@dataclass(frozen=True, slots=True)
class Visibility:
    """What one snapshot contains; transaction ids have 64 bits here."""

    xmin: int
    xmax: int
    in_progress: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "Visibility":
        try:
            xmin, xmax, listed = text.split(":")
            return cls(int(xmin), int(xmax), frozenset(int(each) for each in listed.split(",") if each))
        except ValueError:
            raise CorruptionError(f"PostgreSQL says that its snapshot is {text!r}") from None

    def sees(self, xid: int) -> bool:
        """Whether it contains what the transaction with this id, of 32 bits, did, if that has committed."""
        whole = self._whole(xid)
        return whole < self.xmin or (whole < self.xmax and whole not in self.in_progress)

    def _whole(self, xid: int) -> int:
        """The id with its epoch: the one nearest to this snapshot."""
        whole = self.xmax - self.xmax % _WRAP + xid
        if whole > self.xmax + _WRAP // 2:
            return whole - _WRAP
        return whole + _WRAP if whole < self.xmax - _WRAP // 2 else whole


class Recent:
    """The ids of transactions that came out of the stream lately: more than can be on their way at a time."""

    def __init__(self, most: int = 20_000) -> None:
        self._xids: deque[int] = deque(maxlen=most)

    def add(self, xid: int) -> None:
        self._xids.append(xid)

    def misses(self, visibility: Visibility) -> bool:
        """Whether the snapshot lacks one of them, and has to be taken again."""
        return any(not visibility.sees(each) for each in self._xids)
