"""Which dead letters of a partition have been redriven. Pure.

All before `next`, and those after it that were chosen one by one. Kept as a committed offset
and its metadata, so that both change in the transaction that redrives them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import RequestError

__all__ = ["RedriveProgress"]

# Kafka keeps 4,096 bytes of metadata with an offset.
_MOST_CHARACTERS = 4_000


@dataclass(frozen=True, slots=True)
class RedriveProgress:
    """`next` is the first that was not redriven; `beyond` are ranges (start, end) of later ones that were."""

    next: int = 0
    beyond: tuple[tuple[int, int], ...] = ()

    def has(self, offset: int) -> bool:
        """Whether this one has been redriven."""
        return offset < self.next or any(start <= offset < end for start, end in self.beyond)

    def ranges(self, start: int, end: int) -> list[tuple[int, int]]:
        """Ranges (start, end) of those redriven, between `start` and `end`."""
        sent = ((0, self.next), *self.beyond)
        cut = ((max(begin, start), min(stop, end)) for begin, stop in sent)
        return [(begin, stop) for begin, stop in cut if stop > begin]

    def with_all_before(self, offset: int) -> "RedriveProgress":
        """The progress after everything before the offset has been read."""
        return _joined(max(self.next, offset), self.beyond)

    def with_chosen(self, offsets: Iterable[int], first: int) -> "RedriveProgress":
        """The progress after these have been redriven; `first` is the oldest that the partition still has."""
        single = ((offset, offset + 1) for offset in offsets)
        return _joined(max(self.next, first), (*self.beyond, *single))

    def to_metadata(self) -> str:
        """The ranges as text; raises RequestError if there are too many to be kept."""
        text = ",".join(f"{start}-{end}" for start, end in self.beyond)
        if len(text) > _MOST_CHARACTERS:
            raise RequestError(
                "too many single dead letters have been redriven to keep track of them; redrive all that wait"
            )
        return text

    @classmethod
    def of(cls, offset: int, metadata: str | None) -> "RedriveProgress":
        """From what was committed; metadata in another form is ignored."""
        try:
            pairs = [each.split("-") for each in metadata.split(",")] if metadata else []
            ranges = tuple((int(start), int(end)) for start, end in pairs)
        except ValueError:
            ranges = ()
        return _joined(max(0, offset), ranges)


def _joined(next_: int, ranges: Iterable[tuple[int, int]]) -> RedriveProgress:
    """In order, without overlaps, and with ranges that `next` touches merged into it."""
    kept: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start <= next_:
            next_ = max(next_, end)
        elif kept and start <= kept[-1][1]:
            kept[-1] = kept[-1][0], max(kept[-1][1], end)
        else:
            kept.append((start, end))
    return RedriveProgress(next_, tuple(kept))
