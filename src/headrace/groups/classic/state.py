"""The state of a classic group, and what a restart keeps of it.

A generation is persisted before anybody hears of it, so generations only grow,
also over a crash. Between two generations (PreparingRebalance) nothing is
persisted: a restart then goes back to the last generation, whose members are all
known, and the rebalance starts again when its cause shows again.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from headrace.groups.events import ClassicGroupSaved, SavedClassicMember

__all__ = ["ClassicGroup", "ClassicMember", "ClassicState", "replay", "saved", "subscribed_topics"]


class ClassicState(StrEnum):
    """Kafka's names, as the admin APIs show them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """One member. Fields that do not compare are not persisted: deadlines and parked requests."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    session_deadline_ms: int = field(default=0, compare=False)
    join_ticket: int | None = field(default=None, compare=False)
    sync_ticket: int | None = field(default=None, compare=False)
    synced: bool = field(default=False, compare=False)

    @property
    def is_waiting(self) -> bool:
        """A request of the member is parked, so its silence is our doing."""
        return self.join_ticket is not None or self.sync_ticket is not None

    def metadata(self, protocol_name: str | None) -> bytes:
        """What the member says under the protocol; empty if it does not know it."""
        return dict(self.protocols).get(protocol_name or "", b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroup:
    """A group and its current generation.

    `pending` maps member ids that were handed out and not used yet to their
    deadline. `phase_deadline_ms` ends PreparingRebalance (a member that has not
    rejoined is out) and CompletingRebalance (a member that has not synced is out).
    While `delay_until_ms` is set the first rebalance of an empty group waits for more
    members, at most until the phase's deadline.
    """

    group_id: str
    state: ClassicState = ClassicState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: Mapping[str, ClassicMember] = field(default_factory=dict)
    pending: Mapping[str, int] = field(default_factory=dict, compare=False)
    phase_deadline_ms: int | None = field(default=None, compare=False)
    delay_until_ms: int | None = field(default=None, compare=False)
    newcomer: bool = field(default=False, compare=False)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member asked for."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def by_instance(self, instance_id: str) -> ClassicMember | None:
        """The static member that bears the instance id."""
        return next((m for m in self.members.values() if m.instance_id == instance_id), None)

    def supports(self, protocol_type: str, protocols: tuple[tuple[str, bytes], ...]) -> bool:
        """A member with these protocols has one in common with everybody already here."""
        if not protocol_type or not protocols:
            return False
        if not self.members:
            return True
        return protocol_type == self.protocol_type and bool(
            self.common_protocols() & {name for name, _ in protocols}
        )

    def common_protocols(self) -> set[str]:
        """Names of protocols every member knows."""
        names = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*names) if names else set()

    def vote(self) -> str:
        """The common protocol that most members prefer; ties go to the first name."""
        common = self.common_protocols()
        votes = [next(name for name, _ in m.protocols if name in common) for m in self.members.values()]
        return min(set(votes), key=lambda name: (-votes.count(name), name))

    def with_member(self, member: ClassicMember) -> "ClassicGroup":
        """The group with the member added or replaced."""
        return replace(self, members={**self.members, member.member_id: member})

    def without(self, member_id: str) -> "ClassicGroup":
        """The group without the member; a lost leader is followed by the longest-standing member."""
        members = {key: member for key, member in self.members.items() if key != member_id}
        leader = next(iter(members), None) if self.leader == member_id else self.leader
        return replace(self, members=members, leader=leader)


def saved(group: ClassicGroup) -> ClassicGroupSaved:
    """The event that persists the group as it is."""
    return ClassicGroupSaved(
        group_id=group.group_id,
        state=group.state.value,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader,
        members=tuple(_saved_member(member) for member in group.members.values()),
    )


def replay(event: ClassicGroupSaved) -> ClassicGroup:
    """The group as persisted; its deadlines start when the shell calls `woken`."""
    return ClassicGroup(
        group_id=event.group_id,
        state=ClassicState(event.state),
        generation=event.generation,
        protocol_type=event.protocol_type,
        protocol_name=event.protocol_name,
        leader=event.leader,
        members={member.member_id: _restored_member(member) for member in event.members},
    )


def _saved_member(member: ClassicMember) -> SavedClassicMember:
    return SavedClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.protocols,
        assignment=member.assignment,
    )


def _restored_member(member: SavedClassicMember) -> ClassicMember:
    return ClassicMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_ms=member.session_timeout_ms,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        protocols=member.protocols,
        assignment=member.assignment,
    )


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Topics in a member's metadata of protocol type "consumer"; None if it is something else.

    The format opens with a version and a list of names; what follows differs by version.
    """
    try:
        _, count = struct.unpack_from(">hi", metadata, 0)
        position, names = 6, set()
        if count > len(metadata):
            return None
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            if length < 0 or position + 2 + length > len(metadata):
                return None
            names.add(metadata[position + 2 : position + 2 + length].decode())
            position += 2 + length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(names)
