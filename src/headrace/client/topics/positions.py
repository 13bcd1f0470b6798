"""Positions in a partition, which become offsets once its bounds are known. Pure."""

from dataclasses import dataclass
from enum import Enum

__all__ = ["Bounds", "Position", "PositionKind"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Log start and log end of one partition; the end is the offset the next record will get."""

    start: int
    end: int

    def clamp(self, offset: int) -> int:
        return max(self.start, min(offset, self.end))


class PositionKind(Enum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class Position:
    """Where to start or stop; `number` is the offset, the time in ms or the count, by `kind`."""

    kind: PositionKind
    number: int = 0

    def offset_in(self, bounds: Bounds, offset_at_time: int | None = None) -> int:
        """The offset in a partition with these bounds, always inside them.

        `offset_at_time` is what the log returns for a position of kind TIME:
        the first record at or after that time, None when there is none (then
        the log end).
        """
        match self.kind:
            case PositionKind.EARLIEST:
                return bounds.start
            case PositionKind.LATEST:
                return bounds.end
            case PositionKind.OFFSET:
                return bounds.clamp(self.number)
            case PositionKind.TIME:
                return bounds.end if offset_at_time is None else bounds.clamp(offset_at_time)
            case PositionKind.LAST:
                return bounds.clamp(bounds.end - self.number)
