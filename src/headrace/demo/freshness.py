"""How long a record takes from the log into a view; pure."""

import statistics
from collections import deque
from collections.abc import Mapping

__all__ = ["Freshness"]

Offsets = Mapping[int, int]


class Freshness:
    """Notes, at each look, where the log ended, and how long ago it ended where the view is now."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, Offsets]] = deque()
        self._seconds: list[float] = []

    def note(self, now_s: float, ends: Offsets, reflected: Offsets) -> None:
        """One look: the next offsets of the log and of the view, by partition."""
        self._waiting.append((now_s, ends))
        while self._waiting and _covers(reflected, self._waiting[0][1]):
            self._seconds.append(now_s - self._waiting.popleft()[0])

    @property
    def median_s(self) -> float | None:
        return statistics.median(self._seconds) if self._seconds else None

    @property
    def worst_s(self) -> float | None:
        return max(self._seconds, default=None)


def _covers(reflected: Offsets, ends: Offsets) -> bool:
    return all(reflected.get(partition, 0) >= end for partition, end in ends.items())
