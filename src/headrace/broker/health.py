"""Whether the broker can do its work now, and if not, why."""

import dataclasses
import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import RetriableError

if TYPE_CHECKING:
    from headrace.broker.server import Broker
    from headrace.storage import Damage

__all__ = ["Health", "damage_warning", "health"]

MOST_RANGES = 10  # that are named of one partition


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Healthy when there are no problems; damage is a warning, since all else is served."""

    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def is_healthy(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """What the endpoint answers."""
        status = "healthy" if self.is_healthy else "unhealthy"
        return {"status": status, "problems": list(self.problems), "warnings": list(self.warnings)}


async def health(broker: "Broker") -> Health:
    """Looks at every partition, the coordinator and the disk."""
    problems = _coordinator(broker)
    problems += await broker.in_thread(_partitions, broker)
    problems += await broker.in_thread(_disk, broker)
    return Health(problems=tuple(problems), warnings=tuple(await broker.in_thread(_damage, broker)))


def _partitions(broker: "Broker") -> list[str]:
    return [
        f"partition {topic.name}:{index} cannot be written: {log.failed}"
        for topic in broker.topics.all()
        for index, log in enumerate(topic.partitions)
        if log.failed is not None
    ]


def _coordinator(broker: "Broker") -> list[str]:
    try:
        broker.coordinator.check_available()
    except RetriableError as error:
        return [f"groups are not available: {error}"]
    return []


def _disk(broker: "Broker") -> list[str]:
    wanted = broker.settings.health_min_free_bytes
    try:
        free = shutil.disk_usage(broker.settings.data).free
    except OSError as error:
        return [f"{broker.settings.data} cannot be looked at: {error}; check the disk"]
    if free >= wanted:
        return []
    return [
        f"{free} bytes are free for {broker.settings.data}, {wanted} are wanted (health_min_free_bytes);"
        " free space or shorten the retention of topics"
    ]


def _damage(broker: "Broker") -> list[str]:
    return [
        damage_warning(f"{topic.name}:{index}", log.damage)
        for topic in broker.topics.all()
        for index, log in enumerate(topic.partitions)
        if log.damage
    ]


def damage_warning(partition: str, damage: Sequence["Damage"]) -> str:
    """Names file, bytes and records of what is damaged; of very many ranges the first."""
    named = "; ".join(
        f"{each.path} [{each.start}, {each.end}), records {each.first_offset} to {each.next_offset - 1}"
        for each in damage[:MOST_RANGES]
    )
    left_out = len(damage) - MOST_RANGES
    rest = f"; and {left_out} more, in the file damage beside it" if left_out > 0 else ""
    return f"partition {partition} has {len(damage)} damaged ranges, which are not served: {named}{rest}"
