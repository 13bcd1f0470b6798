"""The status of a follower, for people and for the console. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["FollowStatus", "State"]

# building: rows are missing until that is complete; repairing: all rows are compared with the log
State = Literal["starting", "building", "repairing", "following", "reconnecting", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowStatus:
    """A follower as of `at_ms`. `error` is the last problem, also after it has passed; never a password.

    `behind` counts the offsets of the topic that are not reflected yet; `seconds_behind` is the age of
    the newest record that is, while there are any.
    """

    name: str
    state: State
    at_ms: int
    topic: str = ""
    into: str = ""
    positions: Mapping[str, int] = field(default_factory=dict)
    behind: int | None = None
    seconds_behind: float | None = None
    upserts: int = 0
    deletes: int = 0
    dead: int = 0
    repairs: int = 0
    reconnects: int = 0
    error: str | None = None
    error_at_ms: int | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
