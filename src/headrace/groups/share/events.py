"""What is persisted of queues: one event is one record of the internal topic, the whole value of its key."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

from headrace.groups.share.partition import SharePartition

__all__ = [
    "ShareConfigRemoved",
    "ShareConfigSaved",
    "ShareEvent",
    "ShareGroupRemoved",
    "ShareGroupSaved",
    "ShareMemberRemoved",
    "ShareMemberSaved",
    "SharePartitionRemoved",
    "SharePartitionSaved",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupSaved:
    """A queue and its epoch, which grows with its members, their subscriptions and the topics."""

    group_id: str
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupRemoved:
    """The queue is gone; what it knew of partitions has events of its own."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberSaved:
    """A member as of its epoch."""

    group_id: str
    member_id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: frozenset[str]
    epoch: int
    previous_epoch: int
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMemberRemoved:
    """The member left or was silent for too long."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionSaved:
    """Everything about one partition of one queue."""

    partition: SharePartition


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartitionRemoved:
    """The queue starts over in the partition, or the topic is gone."""

    group_id: str
    topic_id: UUID
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConfigSaved:
    """What was set for a group, which need not exist yet."""

    group_id: str
    overrides: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareConfigRemoved:
    """Nothing is set for the group any more."""

    group_id: str


ShareEvent: TypeAlias = (
    ShareGroupSaved
    | ShareGroupRemoved
    | ShareMemberSaved
    | ShareMemberRemoved
    | SharePartitionSaved
    | SharePartitionRemoved
    | ShareConfigSaved
    | ShareConfigRemoved
)
