"""Places in a partition: its bounds, and positions that mean an offset once those are known. Pure."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Bounds", "Kind", "Position"]


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
