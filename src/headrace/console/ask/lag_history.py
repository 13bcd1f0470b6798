"""The lag of groups over the last minutes, in memory. Pure."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["KEPT_S", "SAMPLE_S", "GroupLag", "LagHistory"]

SAMPLE_S = 2.0
KEPT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """How far a group is behind: records in all, seconds at worst; None where it is not known."""

    group: str
    state: str
    type: str
    members: int
    lag_records: int | None
    lag_seconds: float | None


@dataclass(slots=True)
class LagHistory:
    """Samples of every group that there is, none older than `KEPT_S`; a group that is gone is forgotten."""

    _samples: dict[str, deque[tuple[int, int]]] = field(default_factory=dict)

    def add(self, now_ms: int, lags: Mapping[str, GroupLag]) -> None:
        """One sample of all groups."""
        self._samples = {group: self._samples.get(group, deque()) for group in lags}
        for group, lag in lags.items():
            samples = self._samples[group]
            if lag.lag_records is not None:
                samples.append((now_ms, lag.lag_records))
            while samples and samples[0][0] <= now_ms - 1000 * KEPT_S:
                samples.popleft()

    def of(self, group: str) -> list[tuple[int, int]]:
        """Time in milliseconds and records behind, oldest first."""
        return list(self._samples.get(group, ()))
