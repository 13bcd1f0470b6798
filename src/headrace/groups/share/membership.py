"""Who is in a queue: joining, heartbeats, leaving, and what each member reads.

Every member reads every partition of the topics that it subscribes to, so that no
partition waits for one slow member; the leases see to it that each record has one
reader. (Kafka gives members as few partitions as it can.) A member learns its
partitions with the answer to a heartbeat; there is nothing to revoke or to wait for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.groups.codes import Code
from headrace.groups.consumer import KnownTopics
from headrace.groups.events import Partitions, TopicPartition
from headrace.groups.share.config import ShareConfig
from headrace.groups.share.decision import ShareDecision
from headrace.groups.share.events import (
    ShareEvent,
    ShareGroupSaved,
    ShareMemberRemoved,
    ShareMemberSaved,
)

__all__ = [
    "JOIN",
    "LEAVE",
    "ShareGroup",
    "ShareHeartbeat",
    "ShareMember",
    "ShareReply",
    "ShareState",
    "assignment",
    "expire_members",
    "heartbeat",
    "replay_member",
    "rouse",
]

JOIN, LEAVE = 0, -1


class ShareState(StrEnum):
    """Kafka's names, as the admin APIs show them."""

    EMPTY = "Empty"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareHeartbeat:
    """All that a member sends; no names mean "as I said before"."""

    member_id: str
    epoch: int
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    user: str | None = None
    topic_names: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareReply:
    """`assignment` is None where it is what the member already knows."""

    error: Code = Code.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """One member. What does not compare is not persisted: its deadline and the last assignment sent."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    user: str | None = None
    topic_names: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = -1
    session_deadline_ms: int = field(default=0, compare=False)
    reported: Partitions | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroup:
    """A queue's members. `topics` is what they read as of the epoch; not persisted."""

    group_id: str
    epoch: int = 0
    members: Mapping[str, ShareMember] = field(default_factory=dict)
    topics: Partitions | None = field(default=None, compare=False)

    @property
    def state(self) -> ShareState:
        return ShareState.STABLE if self.members else ShareState.EMPTY

    def next_deadline_ms(self) -> int | None:
        """When the first member will have been silent for too long."""
        return min((member.session_deadline_ms for member in self.members.values()), default=None)


def assignment(member: ShareMember, catalog: KnownTopics) -> Partitions:
    """What a member reads of the topics that there are."""
    found = (catalog.topics.get(name) for name in member.topic_names)
    return frozenset(
        (info.topic_id, index) for info in found if info is not None for index in range(info.partitions)
    )


def heartbeat(
    group: ShareGroup,
    request: ShareHeartbeat,
    catalog: KnownTopics,
    config: ShareConfig,
    *,
    max_size: int,
    now_ms: int,
) -> ShareDecision[ShareGroup]:
    """Admits, keeps or lets go the member that asks."""
    problem = _problem(group, request, max_size)
    if problem is not None:
        code, message = problem
        reply = ShareReply(error=code, message=message, member_id=request.member_id)
        return ShareDecision(state=group, reply=reply)
    if request.epoch == LEAVE:
        after = _without(group, [request.member_id])
        reply = ShareReply(member_id=request.member_id, epoch=LEAVE)
        return ShareDecision(state=after, events=_changes(group, after), reply=reply)
    member = _updated(group, request, now_ms + config.session_timeout_ms)
    members = {**group.members, member.member_id: member}
    topics: Partitions = frozenset[TopicPartition]().union(
        *(assignment(each, catalog) for each in members.values())
    )
    known = group.members.get(member.member_id)
    is_news = known is None or known.topic_names != member.topic_names
    is_news = is_news or (group.topics is not None and group.topics != topics)
    epoch = group.epoch + is_news
    reads = assignment(member, catalog)
    # An answer that was lost is given again.
    reported = member.reported if request.epoch == member.epoch else None
    if member.epoch != epoch:
        member = replace(member, epoch=epoch, previous_epoch=member.epoch)
    members[member.member_id] = replace(member, reported=reads)
    after = replace(group, epoch=epoch, members=members, topics=topics)
    reply = ShareReply(
        member_id=member.member_id, epoch=member.epoch, assignment=None if reported == reads else reads
    )
    return ShareDecision(state=after, events=_changes(group, after), reply=reply)


def _problem(group: ShareGroup, request: ShareHeartbeat, max_size: int) -> tuple[Code, str] | None:
    member = group.members.get(request.member_id)
    if not request.member_id:
        return Code.INVALID_REQUEST, "the member id must not be empty: the client makes one up"
    if request.epoch < LEAVE:
        return Code.INVALID_REQUEST, f"the member epoch {request.epoch} is not known; 0 joins, -1 leaves"
    if request.epoch == JOIN:
        if not request.topic_names:
            return Code.INVALID_REQUEST, "a member that joins must name the topics that it subscribes to"
        if member is None and len(group.members) >= max_size:
            message = f"the group has {len(group.members)} members; the setting group_max_size allows no more"
            return Code.GROUP_MAX_SIZE_REACHED, message
        return None
    if member is None:
        message = f"member {request.member_id!r} is not in the group; join again with epoch 0"
        return Code.UNKNOWN_MEMBER_ID, message
    if request.epoch > 0 and request.epoch not in (member.epoch, member.previous_epoch):
        message = f"the member epoch {request.epoch} is not {member.epoch}; join again with epoch 0"
        return Code.FENCED_MEMBER_EPOCH, message
    return None


def _updated(group: ShareGroup, request: ShareHeartbeat, deadline_ms: int) -> ShareMember:
    member = group.members.get(request.member_id) or ShareMember(member_id=request.member_id)
    return replace(
        member,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        client_id=request.client_id or member.client_id,
        client_host=request.client_host or member.client_host,
        user=request.user,
        topic_names=member.topic_names if request.topic_names is None else request.topic_names,
        session_deadline_ms=deadline_ms,
    )


def _without(group: ShareGroup, gone: Iterable[str]) -> ShareGroup:
    gone = set(gone)
    members = {key: member for key, member in group.members.items() if key not in gone}
    return replace(group, epoch=group.epoch + 1, members=members, topics=None)


def expire_members(group: ShareGroup, now_ms: int) -> ShareDecision[ShareGroup]:
    """Removes members that were silent for too long."""
    gone = [key for key, member in group.members.items() if member.session_deadline_ms <= now_ms]
    if not gone:
        return ShareDecision(state=group)
    after = _without(group, gone)
    return ShareDecision(state=after, events=_changes(group, after))


def rouse(group: ShareGroup, config: ShareConfig, now_ms: int) -> ShareGroup:
    """A group just replayed: every session starts over."""
    deadline_ms = now_ms + config.session_timeout_ms
    members = {key: replace(member, session_deadline_ms=deadline_ms) for key, member in group.members.items()}
    epoch = max([group.epoch, *(member.epoch for member in members.values())])
    return replace(group, epoch=epoch, members=members)


# --- persistence --------------------------------------------------------------------------------


def _changes(before: ShareGroup, after: ShareGroup) -> tuple[ShareEvent, ...]:
    events: list[ShareEvent] = []
    if before.epoch != after.epoch:
        events.append(ShareGroupSaved(group_id=after.group_id, epoch=after.epoch))
    for key, member in after.members.items():
        if before.members.get(key) != member:
            events.append(_saved(after.group_id, member))
    events += [
        ShareMemberRemoved(group_id=after.group_id, member_id=key)
        for key in before.members.keys() - after.members.keys()
    ]
    return tuple(events)


def _saved(group_id: str, member: ShareMember) -> ShareMemberSaved:
    return ShareMemberSaved(
        group_id=group_id,
        member_id=member.member_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        user=member.user,
        topic_names=member.topic_names,
        epoch=member.epoch,
        previous_epoch=member.previous_epoch,
    )


def replay_member(group: ShareGroup, event: ShareMemberSaved | ShareMemberRemoved) -> ShareGroup:
    """The group with the member as it was saved, or without it."""
    members = {key: member for key, member in group.members.items() if key != event.member_id}
    if isinstance(event, ShareMemberSaved):
        members[event.member_id] = ShareMember(
            member_id=event.member_id,
            rack_id=event.rack_id,
            client_id=event.client_id,
            client_host=event.client_host,
            user=event.user,
            topic_names=event.topic_names,
            epoch=event.epoch,
            previous_epoch=event.previous_epoch,
        )
    return replace(group, members=members)
