"""Whether the broker can do its work now, and if not, why."""

import dataclasses
import shutil
from collections.abc import Sequence
from typing import Any

from headrace.broker.log import Topics
from headrace.broker.services import Services
from headrace.errors import DiskError, RetriableError
from headrace.storage import Damage, DataDirectory

__all__ = ["Health", "damage_warning", "health"]

MOST_RANGES = 10  # that are named of one partition


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Healthy when there are no problems.

    Damage is a warning, since all else is served; so are dead letters that wait.
    """

    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def is_healthy(self) -> bool:
        return not self.problems

    def as_json(self) -> dict[str, Any]:
        """What the endpoint answers."""
        status = "healthy" if self.is_healthy else "unhealthy"
        return {"status": status, "problems": list(self.problems), "warnings": list(self.warnings)}


async def health(services: Services) -> Health:
    """Looks at every partition, the coordinators and the disk."""
    topics, directory, settings = services.topics, services.directory, services.settings
    problems = _coordinators(services)
    problems += await services.threads.run(_topics, directory)
    problems += await services.threads.run(_partitions, topics)
    problems += await services.threads.run(_disk, directory, settings.data, settings.health_min_free_bytes)
    warnings = [*await services.threads.run(_damage, topics), *_unburied(services)]
    return Health(problems=tuple(problems), warnings=tuple(warnings))


def _partitions(topics: Topics) -> list[str]:
    problems = []
    for topic in topics.all():
        for index, log in enumerate(topic.partitions):
            if topic.is_being_deleted:
                continue
            if log.failed is not None:
                problems.append(f"partition {topic.name}:{index} cannot be written: {log.failed}")
            log.read_unreadable_again()
            problems += [f"partition {topic.name}:{index}: {place.error()}" for place in log.unreadable]
    return problems


def _topics(directory: DataDirectory) -> list[str]:
    return [
        f"topic {name}: a change failed and could not be taken back; check the disk, then make it again"
        for name in directory.unsettled
    ]


def _coordinators(services: Services) -> list[str]:
    problems = []
    checks = {
        "groups": services.groups.check_available,
        "transactions": services.transactions.check_available,
        "queues": services.queues.check_available,
    }
    for what, check in checks.items():
        try:
            check()
        except RetriableError as error:
            problems.append(f"{what} are not available: {error}")
    return problems


def _unburied(services: Services) -> list[str]:
    return [
        f"dead letters of the queue {group_id} cannot be written, and wait: {why}"
        for group_id, why in sorted(services.dead_letters.unwritten.items())
    ]


def _disk(directory: DataDirectory, data: str, wanted: int) -> list[str]:
    try:
        directory.check_reachable()
        free = shutil.disk_usage(data).free
    except OSError as error:
        return [f"{data} cannot be looked at: {error}; check the disk"]
    except DiskError as error:
        return [str(error)]
    if free >= wanted:
        return []
    return [
        f"{free} bytes are free for {data}, {wanted} are wanted (health_min_free_bytes);"
        " free space or shorten the retention of topics"
    ]


def _damage(topics: Topics) -> list[str]:
    return [
        damage_warning(f"{topic.name}:{index}", log.damage)
        for topic in topics.all()
        for index, log in enumerate(topic.partitions)
        if log.damage
    ]


def damage_warning(partition: str, damage: Sequence[Damage]) -> str:
    """Names file, bytes and records of what is damaged; of very many ranges the first."""
    named = "; ".join(
        f"{each.path} [{each.start}, {each.end}), records {each.first_offset} to {each.next_offset - 1}"
        for each in damage[:MOST_RANGES]
    )
    left_out = len(damage) - MOST_RANGES
    rest = f"; and {left_out} more, in the file damage beside it" if left_out > 0 else ""
    return f"partition {partition} has {len(damage)} damaged ranges, which are not served: {named}{rest}"
