"""Topics as the broker serves them: the directory's, with a `Partition` around each log.

Creating, changing and deleting topics writes and syncs small files, so it runs
on a worker thread, one change at a time; the event loop goes on meanwhile.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from headrace.broker.log.committer import Committer
from headrace.broker.log.partition import Partition
from headrace.broker.log.threads import WorkerThreads
from headrace.storage import DataDirectory, Topic

__all__ = ["INTERNAL_TOPICS", "Topics"]

INTERNAL_TOPICS = frozenset(
    {"__headrace_events", "__consumer_offsets", "__transaction_state", "__share_group_state"}
)


class Topics:
    """Looks topics and partitions up; changes them one at a time."""

    def __init__(self, directory: DataDirectory, thread: WorkerThreads, committer: Committer) -> None:
        self._directory = directory
        self._thread = thread
        self._committer = committer
        # By the topic's id as a number, which is hashed faster, and the partition's.
        self._partitions: dict[tuple[int, int], Partition] = {}
        self._changing = asyncio.Lock()
        self.on_change: list[Callable[[str], None]] = []

    def all(self) -> list[Topic]:
        """Every topic, by name."""
        return sorted(self._directory.topics.values(), key=lambda topic: topic.name)

    def named(self, name: str | None) -> Topic | None:
        return self._directory.topics.get(name) if name else None

    def with_id(self, topic_id: UUID | None) -> Topic | None:
        return self._directory.topics_by_id.get(topic_id) if topic_id else None

    def find(self, name: str | None, topic_id: UUID | None) -> Topic | None:
        """By id where a request carries ids, else by name."""
        return self.with_id(topic_id) if topic_id is not None else self.named(name)

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self.named(name)
        return self.of(topic, index) if topic is not None else None

    def of(self, topic: Topic, index: int) -> Partition | None:
        """A topic's partition, if it has that many."""
        found = self._partitions.get((topic.id.int, index))
        if found is None and 0 <= index < len(topic.partitions):
            found = Partition(topic.partitions[index], self._committer)
            self._partitions[topic.id.int, index] = found
        return found

    def is_current(self, topic: Topic) -> bool:
        """Whether a topic that was found before would be found again."""
        return self._directory.topics.get(topic.name) is topic

    def served(self) -> list[tuple[Topic, Partition]]:
        """Every partition that was asked for since the start, with its topic; any thread."""
        topics = {topic.id.int: topic for topic in self._directory.topics.values()}
        found = [(topics.get(key[0]), each) for key, each in self._partitions.copy().items()]
        return [(topic, partition) for topic, partition in found if topic is not None]

    async def create(self, name: str, partitions: int, overrides: Mapping[str, str]) -> Topic:
        """Raises RequestError when the name, the count or a setting is not acceptable."""
        topic: Topic = await self._change(
            name, self._directory.create_topic, name, partitions, dict(overrides)
        )
        return topic

    async def delete(self, name: str) -> None:
        """Raises DiskError when the disk refused; the topic is then what it was."""
        topic = self.named(name)
        served = [] if topic is None else [(topic.id.int, index) for index in range(len(topic.partitions))]
        for place in served:
            if place in self._partitions:
                await self._partitions[place].wait_idle()
        await self._change(name, self._directory.delete_topic, name)
        for place in served:
            self._partitions.pop(place, None)

    async def add_partitions(self, name: str, total: int) -> None:
        await self._change(name, self._directory.add_partitions, name, total)

    async def alter_config(self, name: str, overrides: Mapping[str, str]) -> None:
        await self._change(name, self._directory.alter_config, name, dict(overrides))

    async def _change(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        async with self._changing:
            result = await self._thread.run(call, *args)
        for tell in self.on_change:
            tell(name)
        return result

    async def wait_idle(self) -> None:
        """Waits until nothing is being committed."""
        for partition in tuple(self._partitions.values()):
            await partition.wait_idle()
