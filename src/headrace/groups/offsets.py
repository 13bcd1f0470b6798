"""Committed offsets: who may commit, fetch and delete them, and when they are forgotten."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headrace.groups.classic import ClassicGroup, ClassicState, subscribed_topics
from headrace.groups.classic.join import wrong_member
from headrace.groups.codes import Code
from headrace.groups.consumer import ConsumerGroup
from headrace.groups.events import OffsetCommitted, OffsetRemoved

__all__ = [
    "OffsetCommitter",
    "OffsetGroup",
    "commit_refusal",
    "delete_refusal",
    "expired_offsets",
    "fetch_refusal",
    "is_empty",
    "subscriptions",
]

OffsetGroup: TypeAlias = ClassicGroup | ConsumerGroup
Offsets: TypeAlias = Mapping[tuple[str, int], OffsetCommitted]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitter:
    """Who commits; a generation (or member epoch) of -1 is somebody outside the group.

    A transactional producer need not say whose offsets it commits; if it does, it is checked.
    """

    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    knows_stale_epoch: bool = True
    transactional: bool = False

    @property
    def is_anonymous_producer(self) -> bool:
        return self.transactional and self.generation < 0 and not self.member_id and self.instance_id is None


def is_empty(group: OffsetGroup) -> bool:
    """Nobody is in the group, nor about to be."""
    if isinstance(group, ClassicGroup):
        return group.state is ClassicState.EMPTY and not group.pending
    return not group.members


def commit_refusal(group: OffsetGroup | None, who: OffsetCommitter) -> Code:
    """Why the commit is not to be stored, or NONE. Outsiders may commit only while nobody is in."""
    if group is None:
        return Code.NONE if who.generation < 0 else _no_group(who)
    if who.is_anonymous_producer or (who.generation < 0 and not group.members):
        return Code.NONE
    if isinstance(group, ConsumerGroup):
        return _epoch_refusal(group, who.member_id, who.generation, knows_stale=who.knows_stale_epoch)
    error = wrong_member(group, who.member_id, who.instance_id)
    if error:
        return error
    if who.generation != group.generation:
        return Code.ILLEGAL_GENERATION
    completing = group.state is ClassicState.COMPLETING and not who.transactional
    return Code.REBALANCE_IN_PROGRESS if completing else Code.NONE


def _no_group(who: OffsetCommitter) -> Code:
    """What a member of a group that is not there is told; older clients and producers know no such code."""
    knows = who.knows_stale_epoch and not who.transactional
    return Code.GROUP_ID_NOT_FOUND if knows else Code.ILLEGAL_GENERATION


def fetch_refusal(group: OffsetGroup | None, member_id: str | None, epoch: int) -> Code:
    """Why the offsets are not to be given out, or NONE; only server-side groups check their members."""
    if not isinstance(group, ConsumerGroup) or (not member_id and epoch < 0):
        return Code.NONE
    return _epoch_refusal(group, member_id or "", epoch, knows_stale=True)


def _epoch_refusal(group: ConsumerGroup, member_id: str, epoch: int, *, knows_stale: bool) -> Code:
    member = group.members.get(member_id)
    if member is None:
        return Code.UNKNOWN_MEMBER_ID
    if not knows_stale:
        return Code.UNSUPPORTED_VERSION
    return Code.NONE if epoch == member.epoch else Code.STALE_MEMBER_EPOCH


def subscriptions(group: OffsetGroup) -> frozenset[str] | None:
    """Topics the members read; None where the group does not say."""
    if isinstance(group, ConsumerGroup):
        named = frozenset[str]().union(*(member.topic_names for member in group.members.values()))
        return named | group.topics.keys()
    if not group.members:
        return frozenset()
    if group.protocol_type != "consumer":
        return None
    # Between two generations any of a member's protocols may become the common one.
    found = [subscribed_topics(data) for m in group.members.values() for _, data in m.protocols]
    return None if None in found else frozenset[str]().union(*(names for names in found if names))


def delete_refusal(group: OffsetGroup | None, topic: str) -> Code:
    """Why the group's offsets of the topic must stay, or NONE."""
    if group is None:
        return Code.GROUP_ID_NOT_FOUND
    if is_empty(group):
        return Code.NONE
    topics = subscriptions(group)
    if topics is None:
        return Code.NON_EMPTY_GROUP
    return Code.GROUP_SUBSCRIBED_TO_TOPIC if topic in topics else Code.NONE


def expired_offsets(
    group: OffsetGroup, offsets: Offsets, *, idle_since_ms: int, retention_ms: int, now_ms: int
) -> Iterable[OffsetRemoved]:
    """Offsets to forget.

    Retention counts from the commit, or from when the group became empty if that was
    later. A topic that somebody in the group reads keeps its offsets, however old.
    """
    empty, topics = is_empty(group), subscriptions(group)
    for committed in offsets.values():
        if not empty and (topics is None or committed.topic in topics):
            continue
        since = max(committed.commit_ms, idle_since_ms) if empty else committed.commit_ms
        ends = committed.expire_ms if committed.expire_ms is not None else since + retention_ms
        if ends <= now_ms:
            yield OffsetRemoved(
                group_id=committed.group_id, topic=committed.topic, partition=committed.partition
            )
