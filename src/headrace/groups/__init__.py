"""Consumer groups as pure state machines.

A decision takes a group, a request and the time, and returns the group from then
on, the events to persist and the answers to send after that (`Decision`). A replay of
the events gives the group back. Time, member ids and topics come in as arguments;
nothing here does I/O. Two protocols: `classic` (the members' leader assigns) and
`consumer` (the broker assigns, KIP-848). `offsets` decides on committed offsets,
`journal` writes events as records. Imports only the ground floor.
"""

from headrace.groups.codes import Code
from headrace.groups.decision import Decision, DelayedReply
from headrace.groups.events import (
    ClassicGroupSaved,
    ConsumerGroupSaved,
    ConsumerMemberRemoved,
    ConsumerMemberSaved,
    GroupEvent,
    GroupRemoved,
    OffsetCommitted,
    OffsetRemoved,
    Partitions,
    PendingOffset,
    PendingOffsetRemoved,
    TopicInfo,
    TopicPartition,
)
from headrace.groups.journal import decode, encode
from headrace.groups.offsets import (
    OffsetCommitter,
    OffsetGroup,
    commit_refusal,
    delete_refusal,
    expired_offsets,
    fetch_refusal,
    is_empty,
)
from headrace.groups.settings import GroupSettings

__all__ = [
    "ClassicGroupSaved",
    "Code",
    "ConsumerGroupSaved",
    "ConsumerMemberRemoved",
    "ConsumerMemberSaved",
    "Decision",
    "DelayedReply",
    "GroupEvent",
    "GroupRemoved",
    "GroupSettings",
    "OffsetCommitted",
    "OffsetCommitter",
    "OffsetGroup",
    "OffsetRemoved",
    "Partitions",
    "PendingOffset",
    "PendingOffsetRemoved",
    "TopicInfo",
    "TopicPartition",
    "commit_refusal",
    "decode",
    "delete_refusal",
    "encode",
    "expired_offsets",
    "fetch_refusal",
    "is_empty",
]
