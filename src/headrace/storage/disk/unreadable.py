"""Places in files that the disk would not read, remembered until it does.

The bytes may be as good as ever, so this is no damage: it is kept in memory only, and
tried again.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.errors import DiskError

__all__ = ["UnreadableBytes", "UnreadablePlaces"]

logger = logging.getLogger("headrace.storage")

RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class UnreadableBytes:
    """Bytes `start` to `end` (exclusive) of a segment, or, if there are none, its way to `offset`.

    `tried` is the offset that was asked for last; until `retry_s` it is not tried again,
    lest everybody waits for a disk that answers slowly.
    """

    path: Path
    start: int
    end: int
    offset: int
    reason: str
    tried: int = -1
    retry_s: float = 0.0

    def error(self) -> DiskError:
        where = f" [{self.start}, {self.end})" if self.end > self.start else ""
        return DiskError(f"{self.path}{where}: cannot be read: {self.reason}; check the disk")


class UnreadablePlaces:
    """At most one place a file: the last that failed. Safe on any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._places: dict[Path, UnreadableBytes] = {}
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._places)

    def among(self, paths: Iterable[Path]) -> tuple[UnreadableBytes, ...]:
        """Those in files that are still there."""
        places = self._places.copy()
        return tuple(places[path] for path in paths if path in places)

    def in_file(self, path: Path) -> UnreadableBytes | None:
        return self._places.get(path)

    def note(self, path: Path, start: int, end: int, error: OSError) -> DiskError:
        """Bytes could not be read on the way to a reader; what is to be told."""
        return self._take(UnreadableBytes(path, start, end, -1, str(error.strerror or error)))

    def note_way(self, path: Path, offset: int, error: OSError) -> DiskError:
        """An offset could not be found, since an index or headers could not be read."""
        reason, retry_s = str(error.strerror or error), self._clock() + RETRY_S
        return self._take(UnreadableBytes(path, 0, 0, offset, reason, offset, retry_s))

    def _take(self, place: UnreadableBytes) -> DiskError:
        with self._lock:
            is_new = place.path not in self._places
            self._places[place.path] = place
        if is_new:  # not for every reader who meets it
            logger.error("%s", place.error())
        return place.error()

    def is_due(self, place: UnreadableBytes, offset: int) -> bool:
        """Whether it is time to try an offset again."""
        return place.tried != offset or self._clock() >= place.retry_s

    def failed_again(self, place: UnreadableBytes, offset: int, error: OSError) -> DiskError:
        """Also now what is at that offset could not be read."""
        with self._lock:
            reason = str(error.strerror or error)
            place = replace(place, reason=reason, tried=offset, retry_s=self._clock() + RETRY_S)
            self._places[place.path] = place
        return place.error()

    def was_read(self, place: UnreadableBytes, start: int, end: int) -> None:
        """Bytes of the place were read: at its beginning it becomes shorter, until nothing is left of it."""
        with self._lock:
            if start <= place.start and end < place.end:
                self._places[place.path] = replace(place, start=max(end, place.start), retry_s=0.0)
            elif start <= place.start:
                self._places.pop(place.path, None)
                logger.info("%s can be read again", place.path)
