"""How members of a server-side group go: by their own will, for now, or by silence."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from headrace.groups.codes import Code
from headrace.groups.consumer.messages import LEAVE_FOR_NOW, ConsumerHeartbeat, ConsumerReply
from headrace.groups.consumer.state import NOTHING, ConsumerGroup, ConsumerMember, MemberState, changes
from headrace.groups.decision import Decision
from headrace.groups.settings import GroupSettings

__all__ = ["dismiss", "expire", "leave", "next_deadline_ms", "remove", "touch", "woken"]


def leave(
    group: ConsumerGroup,
    member: ConsumerMember,
    request: ConsumerHeartbeat,
    settings: GroupSettings,
    now_ms: int,
) -> Decision[ConsumerGroup]:
    """The member goes for good, or as a static member until its next incarnation or its session's end."""
    if request.epoch == LEAVE_FOR_NOW:
        away = replace(
            member,
            epoch=LEAVE_FOR_NOW,
            revoking=NOTHING,
            state=MemberState.STABLE,
            session_deadline_ms=now_ms + settings.group_consumer_session_timeout_ms,
            revoke_deadline_ms=None,
        )
        after = group.with_member(away)
    else:
        after = remove(group, (member.member_id,))
    reply = ConsumerReply(error=Code.NONE, member_id=member.member_id, epoch=request.epoch)
    return Decision(group=after, events=changes(group, after), reply=reply)


def dismiss(group: ConsumerGroup, whom: Sequence[tuple[str, str | None]]) -> Decision[ConsumerGroup]:
    """An administrator sends members away, each by member id, instance id or both; the reply is Codes."""
    found = [_member(group, member_id, instance_id) for member_id, instance_id in whom]
    gone = {member.member_id for member in found if isinstance(member, ConsumerMember)}
    after = remove(group, gone) if gone else group
    codes = tuple(Code.NONE if isinstance(member, ConsumerMember) else member for member in found)
    return Decision(group=after, events=changes(group, after), reply=codes)


def _member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember | Code:
    if instance_id is None:
        return group.members.get(member_id) or Code.UNKNOWN_MEMBER_ID
    bearer = group.by_instance(instance_id)
    if bearer is None:
        return Code.UNKNOWN_MEMBER_ID
    return bearer if member_id in ("", bearer.member_id) else Code.FENCED_INSTANCE_ID


def remove(group: ConsumerGroup, member_ids: Iterable[str]) -> ConsumerGroup:
    """The group without the members, at a new epoch; the next heartbeat computes the new target."""
    return replace(group.without(member_ids), epoch=group.epoch + 1, catalog_version=-1)


def touch(group: ConsumerGroup, member_id: str, settings: GroupSettings, now_ms: int) -> ConsumerGroup:
    """The group after a sign of life of the member."""
    member = group.members.get(member_id)
    if member is None:
        return group
    deadline = now_ms + settings.group_consumer_session_timeout_ms
    return group.with_member(replace(member, session_deadline_ms=deadline))


def next_deadline_ms(group: ConsumerGroup) -> int | None:
    """When `expire` will next have something to do; None: never."""
    return min(
        (deadline for member in group.members.values() for deadline in _deadlines(member)), default=None
    )


def _deadlines(member: ConsumerMember) -> Iterator[int]:
    yield member.session_deadline_ms
    if member.revoke_deadline_ms is not None:
        yield member.revoke_deadline_ms


def expire(group: ConsumerGroup, now_ms: int) -> Decision[ConsumerGroup]:
    """Remove members that were silent, or did not give up in time what they had to."""
    overdue = [key for key, member in group.members.items() if min(_deadlines(member)) <= now_ms]
    if not overdue:
        return Decision(group=group)
    after = remove(group, overdue)
    return Decision(group=after, events=changes(group, after))


def woken(group: ConsumerGroup, settings: GroupSettings, now_ms: int) -> ConsumerGroup:
    """A group just replayed: every deadline starts now, so that a restart makes nobody late."""
    session = now_ms + settings.group_consumer_session_timeout_ms
    members = {
        key: replace(
            member,
            session_deadline_ms=session,
            revoke_deadline_ms=now_ms + member.rebalance_timeout_ms if member.revoking else None,
        )
        for key, member in group.members.items()
    }
    # Records of one decision survive together; should they ever not, epochs still only grow.
    ahead = max((member.epoch for member in group.members.values()), default=0)
    epoch = group.epoch if ahead <= group.epoch else ahead + 1
    return replace(group, members=members, epoch=epoch)
