"""Places in a log as people type them: positions, and `topic[:partition]`.

A position is resolved to an offset per partition only once the partition's
bounds are known; `Position.offset_in` is that decision, pure.
"""

from dataclasses import dataclass
from enum import Enum

from headrace.cli.times import parse_time
from headrace.errors import RequestError

__all__ = ["Bounds", "Kind", "Position", "parse_position", "parse_selector"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Log start and log end of one partition; the end is the offset the next record will get."""

    start: int
    end: int

    def clamp(self, offset: int) -> int:
        return max(self.start, min(offset, self.end))


class Kind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Position:
    """Where to start or stop; `number` is the offset, the time in ms or the count, by `kind`."""

    kind: Kind
    number: int = 0

    def offset_in(self, bounds: Bounds, offset_at_time: int | None = None) -> int:
        """The offset meant in a partition with these bounds, always inside them.

        `offset_at_time` is what the log answers for a position of kind TIME:
        the first record at or after that time, None when there is none (then
        the log end).
        """
        match self.kind:
            case Kind.EARLIEST:
                return bounds.start
            case Kind.LATEST:
                return bounds.end
            case Kind.OFFSET:
                return bounds.clamp(self.number)
            case Kind.TIME:
                return bounds.end if offset_at_time is None else bounds.clamp(offset_at_time)
            case Kind.LAST:
                return bounds.clamp(bounds.end - self.number)


def parse_position(text: str, now_ms: int) -> Position:
    """`earliest`, `latest`, an offset, or a time as `parse_time` takes it."""
    if text in (Kind.EARLIEST.value, Kind.LATEST.value):
        return Position(Kind(text))
    if text.isascii() and text.isdigit():
        return Position(Kind.OFFSET, int(text))
    try:
        return Position(Kind.TIME, parse_time(text, now_ms))
    except RequestError as error:
        raise RequestError(f"{text!r} is neither earliest, latest, an offset nor a time: {error}") from None


def parse_selector(text: str) -> tuple[str, int | None]:
    """`orders` as (orders, None) for every partition, `orders:3` as (orders, 3)."""
    topic, colon, partition = text.partition(":")
    if not colon and topic:
        return topic, None
    if not topic or not (partition.isascii() and partition.isdigit()):
        raise RequestError(f"{text!r} names no partition: write TOPIC or TOPIC:PARTITION, such as orders:3")
    return topic, int(partition)
