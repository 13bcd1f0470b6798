"""How fast counters grow, by the looks at them that somebody took. Pure."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Rates"]

SPAN_MS = 10_000


@dataclass(slots=True)
class Rates:
    """Counters by name over the last ten seconds; a rate needs two looks."""

    _looks: deque[tuple[int, Mapping[str, int]]] = field(default_factory=deque)

    def add(self, now_ms: int, counters: Mapping[str, int]) -> None:
        """What the counters are now."""
        self._looks.append((now_ms, counters))
        while len(self._looks) > 2 and self._looks[1][0] <= now_ms - SPAN_MS:
            self._looks.popleft()

    def of(self, name: str) -> float | None:
        """By how much it grows in a second; None if that cannot be told, 0 if it began anew."""
        seen = [(at, counters[name]) for at, counters in self._looks if name in counters]
        if len(seen) < 2 or seen[-1][0] == seen[0][0]:
            return None
        return max(0.0, 1000 * (seen[-1][1] - seen[0][1]) / (seen[-1][0] - seen[0][0]))
