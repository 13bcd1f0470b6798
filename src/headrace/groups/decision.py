"""What a decision about a group consists of."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.groups.events import GroupEvent

__all__ = ["Decision", "DelayedReply"]

G = TypeVar("G")


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayedReply:
    """A reply to a request that was parked: `ticket` is the number the shell gave it."""

    ticket: int
    reply: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision(Generic[G]):
    """Persist `events` first, then send `reply` and `answers`.

    `group` is the state from now on and holds for the next decision at once, even
    while the events are being synced. `reply` is for the caller; None means
    that the caller's request is parked under its ticket, or answered in `answers`.
    """

    group: G
    events: tuple[GroupEvent, ...] = ()
    reply: Any = None
    answers: tuple[DelayedReply, ...] = ()
