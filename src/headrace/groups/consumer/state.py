"""The state of a server-side group: epochs, what members have, what they are to have.

The group's epoch grows when members, subscriptions or topics change. The target
assignment is computed for an epoch; each member then moves towards its target on
its own heartbeats: it first gives up what it must (`revoking`, until it no longer
says that it owns it), and gets a partition only when nobody else has it assigned or still
revokes it. So a partition never has two owners, and no member waits for all others.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.groups.consumer.messages import LEAVE_FOR_NOW
from headrace.groups.events import (
    ConsumerGroupSaved,
    ConsumerMemberRemoved,
    ConsumerMemberSaved,
    GroupEvent,
    Partitions,
    TopicInfo,
)

__all__ = [
    "NOTHING",
    "ConsumerGroup",
    "ConsumerMember",
    "ConsumerState",
    "KnownTopics",
    "MemberState",
    "changes",
    "replay",
]

NOTHING: Partitions = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopics:
    """The topics there are. `version` changes with any of them, so that groups look only then.

    `visible_to` says which of them a user at a host may know of, where not everybody may
    know of all; the version changes with that, too.
    """

    version: int
    topics: Mapping[str, TopicInfo]
    visible_to: Callable[[str | None, str], AbstractSet[str]] | None = field(default=None, compare=False)


class ConsumerState(StrEnum):
    """Kafka's names, as the admin APIs show them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(StrEnum):
    """How far a member is on the way to its target."""

    STABLE = "stable"
    UNREVOKED = "unrevoked"
    UNRELEASED = "unreleased"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One member. Fields that do not compare are deadlines, which are not persisted.

    A static member that left for now keeps what it had under the epoch -2.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    user: str | None = None
    rebalance_timeout_ms: int = 0
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = None
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NOTHING
    revoking: Partitions = NOTHING
    target: Partitions = NOTHING
    session_deadline_ms: int = field(default=0, compare=False)
    revoke_deadline_ms: int | None = field(default=None, compare=False)

    @property
    def is_away(self) -> bool:
        """A static member between two incarnations."""
        return self.epoch == LEAVE_FOR_NOW


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """`topics` are the subscribed ones as of `epoch`; `catalog_version` is the catalog last compared with.

    `matched` are the topics that each member's pattern stood for then, by member.
    """

    group_id: str
    epoch: int = 0
    target_epoch: int = 0
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    members: Mapping[str, ConsumerMember] = field(default_factory=dict)
    catalog_version: int = field(default=-1, compare=False)
    matched: Mapping[str, frozenset[str]] = field(default_factory=dict, compare=False)

    @property
    def state(self) -> ConsumerState:
        """The state as the admin APIs show it."""
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerState.ASSIGNING
        if all(m.state is MemberState.STABLE and m.epoch == self.target_epoch for m in self.members.values()):
            return ConsumerState.STABLE
        return ConsumerState.RECONCILING

    def by_instance(self, instance_id: str) -> ConsumerMember | None:
        """The static member that bears the instance id."""
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def taken(self, *, except_by: str) -> Partitions:
        """Partitions that members other than the named one have or have not yet given up."""
        others = (m for m in self.members.values() if m.member_id != except_by)
        return NOTHING.union(*(m.assigned | m.revoking for m in others))

    def with_member(self, member: ConsumerMember) -> "ConsumerGroup":
        """The group with the member added or replaced."""
        return replace(self, members={**self.members, member.member_id: member})

    def without(self, member_ids: Iterable[str]) -> "ConsumerGroup":
        """The group without the members."""
        gone = set(member_ids)
        return replace(self, members={k: m for k, m in self.members.items() if k not in gone})


def changes(before: ConsumerGroup | None, after: ConsumerGroup) -> tuple[GroupEvent, ...]:
    """The events that lead a replay from one state to the other: only what differs is written."""
    events: list[GroupEvent] = []
    if before is None or _epochs(before) != _epochs(after):
        events.append(_saved_group(after))
    known = before.members if before else {}
    for key, member in after.members.items():
        if known.get(key) is not member and known.get(key) != member:
            events.append(_saved_member(after.group_id, member))
    gone = known.keys() - after.members.keys()
    events += [ConsumerMemberRemoved(group_id=after.group_id, member_id=key) for key in sorted(gone)]
    return tuple(events)


def _epochs(group: ConsumerGroup) -> tuple[int, int, Mapping[str, TopicInfo]]:
    return group.epoch, group.target_epoch, group.topics


def _saved_group(group: ConsumerGroup) -> ConsumerGroupSaved:
    return ConsumerGroupSaved(
        group_id=group.group_id,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        topics=tuple((name, info.topic_id, info.partitions) for name, info in sorted(group.topics.items())),
    )


_PERSISTED = tuple(
    name for name in ConsumerMemberSaved.__dataclass_fields__ if name not in ("group_id", "state")
)


def _saved_member(group_id: str, member: ConsumerMember) -> ConsumerMemberSaved:
    values = {name: getattr(member, name) for name in _PERSISTED}
    return ConsumerMemberSaved(group_id=group_id, state=member.state.value, **values)


def replay(
    group: ConsumerGroup | None, event: ConsumerGroupSaved | ConsumerMemberSaved | ConsumerMemberRemoved
) -> ConsumerGroup:
    """The group after the event; its deadlines start when the shell calls `woken`."""
    group = group or ConsumerGroup(group_id=event.group_id)
    match event:
        case ConsumerGroupSaved():
            topics = {name: TopicInfo(topic_id=id_, partitions=count) for name, id_, count in event.topics}
            return replace(group, epoch=event.epoch, target_epoch=event.target_epoch, topics=topics)
        case ConsumerMemberSaved():
            values = {name: getattr(event, name) for name in _PERSISTED}
            return group.with_member(ConsumerMember(state=MemberState(event.state), **values))
        case ConsumerMemberRemoved():
            return group.without((event.member_id,))
