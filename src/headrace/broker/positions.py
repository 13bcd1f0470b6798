"""How far the groups of a broker are in each partition."""

import dataclasses
from typing import TYPE_CHECKING

from headrace.groups.offsets import is_empty

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["ACTIVE_MS", "Position", "positions"]

ACTIVE_MS = 60_000
"""A group without members still counts as active for so long after a commit."""


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """What one group committed in one partition, and whether it is at work."""

    group: str
    topic: str
    partition: int
    offset: int
    is_active: bool


async def positions(broker: "Broker") -> list[Position]:
    """Every committed offset, and where each queue begins; RetriableError while groups are unavailable."""
    now_ms = broker.clock.now_ms()
    found = []
    for entry in await broker.coordinator.entries():
        has_members = not is_empty(entry.group)
        for (topic, index), committed in entry.offsets.items():
            if broker.partition(topic, index) is not None:
                active = has_members or now_ms - committed.commit_ms < ACTIVE_MS
                found.append(Position(entry.group.group_id, topic, index, committed.offset, active))
    return found + await broker.shares.positions()
