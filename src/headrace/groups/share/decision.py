"""What a decision about a queue consists of."""

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from headrace.groups.share.events import ShareEvent

__all__ = ["ShareDecision"]

S = TypeVar("S")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareDecision(Generic[S]):
    """Persist `events` first, then send `reply`; `state` holds for the next decision at once."""

    state: S
    events: tuple[ShareEvent, ...] = ()
    reply: Any = None
