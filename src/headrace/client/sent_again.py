"""Which letters of a dead-letter partition were sent again. Pure.

Everything before `next`, and single ones behind it, which somebody chose. Kept as a
committed offset and its metadata, so that both change in the transaction that sends.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import RequestError

__all__ = ["SentAgain"]

# Kafka keeps 4,096 bytes of metadata with an offset.
_MOST_CHARACTERS = 4_000


@dataclass(frozen=True, slots=True)
class SentAgain:
    """`next` is the first that was not sent; `beyond` are ranges, from and up to, of those sent behind it."""

    next: int = 0
    beyond: tuple[tuple[int, int], ...] = ()

    def has(self, offset: int) -> bool:
        """Whether this one was sent again."""
        return offset < self.next or any(start <= offset < end for start, end in self.beyond)

    def count_from(self, start: int) -> int:
        """How many of those at or after `start`."""
        ranges = ((0, self.next), *self.beyond)
        return sum(max(0, end - max(begin, start)) for begin, end in ranges)

    def with_all_before(self, offset: int) -> "SentAgain":
        """After everything before the offset was looked at."""
        return _joined(max(self.next, offset), self.beyond)

    def with_chosen(self, offsets: Iterable[int], first: int) -> "SentAgain":
        """After these were sent; `first` is the oldest that the partition still has."""
        single = ((offset, offset + 1) for offset in offsets)
        return _joined(max(self.next, first), (*self.beyond, *single))

    def to_metadata(self) -> str:
        """The ranges as text; raises RequestError if there are too many to be kept."""
        text = ",".join(f"{start}-{end}" for start, end in self.beyond)
        if len(text) > _MOST_CHARACTERS:
            raise RequestError(
                "too many single letters were sent again to remember them; send all that wait, oldest first"
            )
        return text

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> "SentAgain":
        """What was committed; text that is none of ours tells nothing."""
        try:
            pairs = [each.split("-") for each in metadata.split(",")] if metadata else []
            ranges = tuple((int(start), int(end)) for start, end in pairs)
        except ValueError:
            ranges = ()
        return _joined(max(0, offset), ranges)


def _joined(next_: int, ranges: Iterable[tuple[int, int]]) -> SentAgain:
    """In order, without overlaps, and with what follows `next` at once taken into it."""
    kept: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start <= next_:
            next_ = max(next_, end)
        elif kept and start <= kept[-1][1]:
            kept[-1] = kept[-1][0], max(kept[-1][1], end)
        else:
            kept.append((start, end))
    return SentAgain(next_, tuple(kept))
