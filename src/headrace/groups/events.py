"""What is persisted of groups: one event is one record of the internal topic.

Every event carries the whole value of its key, and a later one replaces it, so
the topic may be compacted at any time without changing what a replay gives.
"""

from dataclasses import dataclass
from typing import TypeAlias
from uuid import UUID

__all__ = [
    "ClassicGroupSaved",
    "ConsumerGroupSaved",
    "ConsumerMemberRemoved",
    "ConsumerMemberSaved",
    "GroupEvent",
    "GroupRemoved",
    "OffsetCommitted",
    "OffsetRemoved",
    "Partitions",
    "PendingOffset",
    "PendingOffsetRemoved",
    "SavedClassicMember",
    "TopicInfo",
    "TopicPartition",
]

TopicPartition: TypeAlias = tuple[UUID, int]
Partitions: TypeAlias = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicInfo:
    """What an assignment needs to know of a topic."""

    topic_id: UUID
    partitions: int
    internal: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedClassicMember:
    """A member as of its generation; `protocols` are (name, metadata) in the member's order of preference."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupSaved:
    """A classic group when a generation started, got its assignment, or ended with nobody."""

    group_id: str
    state: str
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str | None
    members: tuple[SavedClassicMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupSaved:
    """A server-side group's epochs and the topics its target assignment was computed from."""

    group_id: str
    epoch: int
    target_epoch: int
    topics: tuple[tuple[str, UUID, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberSaved:
    """A member of a server-side group: what it asked for, what it has, what it is to have."""

    group_id: str
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    topic_names: frozenset[str]
    topic_regex: str | None
    assignor: str | None
    epoch: int
    previous_epoch: int
    state: str
    assigned: Partitions
    revoking: Partitions
    target: Partitions
    user: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberRemoved:
    """The member left, died, was fenced, or was replaced by its next incarnation."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRemoved:
    """The group is gone; its offsets have events of their own."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted:
    """The group will go on at `offset`; `topic_id` tells a topic from its namesake created later."""

    group_id: str
    topic: str
    topic_id: UUID
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRemoved:
    """The group's offset of the partition is forgotten."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOffset:
    """An offset that counts once its producer's transaction commits."""

    producer_id: int
    producer_epoch: int
    offset: OffsetCommitted


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingOffsetRemoved:
    """The transaction ended; if it committed, the offset has an event of its own in the same batch."""

    group_id: str
    producer_id: int
    topic: str
    partition: int


GroupEvent: TypeAlias = (
    ClassicGroupSaved
    | ConsumerGroupSaved
    | ConsumerMemberSaved
    | ConsumerMemberRemoved
    | GroupRemoved
    | OffsetCommitted
    | OffsetRemoved
    | PendingOffset
    | PendingOffsetRemoved
)
