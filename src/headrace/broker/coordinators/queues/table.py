"""Queues as the broker holds them in memory: what the journal's events add up to."""

from collections.abc import Iterator
from typing import TypeAlias
from uuid import UUID

from headrace.groups import GroupSettings
from headrace.groups.share import (
    ShareConfig,
    ShareConfigRemoved,
    ShareConfigSaved,
    ShareEvent,
    ShareGroup,
    ShareGroupRemoved,
    ShareGroupSaved,
    ShareMemberRemoved,
    ShareMemberSaved,
    SharePartition,
    SharePartitionRemoved,
    SharePartitionSaved,
    replay_member,
)

__all__ = ["QueuePartition", "QueueTable", "queue_partition"]

QueuePartition: TypeAlias = tuple[str, UUID, int]
"""A group, a topic and a partition."""


def queue_partition(partition: SharePartition) -> QueuePartition:
    return partition.group_id, partition.topic_id, partition.partition


class QueueTable:
    """Groups by id, partitions by place, and what was set for each group."""

    def __init__(self, settings: GroupSettings) -> None:
        self._settings = settings
        self.groups: dict[str, ShareGroup] = {}
        self.partitions: dict[QueuePartition, SharePartition] = {}
        self.overrides: dict[str, dict[str, str]] = {}
        self._configs: dict[str, ShareConfig] = {}

    def __contains__(self, group_id: object) -> bool:
        """Whether the group id belongs to a queue."""
        return group_id in self.groups

    def clear(self) -> None:
        for table in (self.groups, self.partitions, self.overrides, self._configs):
            table.clear()

    def config(self, group_id: str) -> ShareConfig:
        """What holds for a group."""
        found = self._configs.get(group_id)
        if found is None:
            found = ShareConfig.of(group_id, self.overrides.get(group_id, {}), self._settings)
            if group_id in self.groups:
                self._configs[group_id] = found
        return found

    def of_group(self, group_id: str) -> Iterator[SharePartition]:
        """What a group knows of partitions."""
        return iter([each for each in self.partitions.values() if each.group_id == group_id])

    def replay(self, event: ShareEvent, timestamp_ms: int = 0) -> None:  # noqa: ARG002 - a journal's form
        """Applies one persisted event; the last one of a key wins."""
        match event:
            case ShareGroupSaved():
                group = self._group(event.group_id)
                self.groups[event.group_id] = ShareGroup(
                    group_id=event.group_id, epoch=event.epoch, members=group.members
                )
            case ShareGroupRemoved():
                self.groups.pop(event.group_id, None)
                self._configs.pop(event.group_id, None)
            case ShareMemberSaved():
                self.groups[event.group_id] = replay_member(self._group(event.group_id), event)
            case ShareMemberRemoved():
                if event.group_id in self.groups:
                    self.groups[event.group_id] = replay_member(self._group(event.group_id), event)
            case SharePartitionSaved():
                self.partitions[queue_partition(event.partition)] = event.partition
            case SharePartitionRemoved():
                self.partitions.pop((event.group_id, event.topic_id, event.partition), None)
            case ShareConfigSaved():
                self.overrides[event.group_id] = dict(event.overrides)
                self._configs.pop(event.group_id, None)
            case ShareConfigRemoved():
                self.overrides.pop(event.group_id, None)
                self._configs.pop(event.group_id, None)

    def _group(self, group_id: str) -> ShareGroup:
        return self.groups.get(group_id) or ShareGroup(group_id=group_id)
