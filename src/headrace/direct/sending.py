"""What every way of sending has in common: a message in, an outcome out."""

from dataclasses import dataclass
from typing import Protocol

from headrace.direct.outcomes import Outcome
from headrace.direct.positions import Record, Source

__all__ = ["Message", "Sender"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A record on its way: its id is the same however often it is sent."""

    id: str
    record: Record
    source: Source


class Sender(Protocol):
    """Sends to one target. An attempt ends in an outcome, whatever happens, and within a bounded time."""

    async def send(self, message: Message) -> Outcome: ...

    def close(self) -> None: ...
