"""SyncGroup, Heartbeat and LeaveGroup, and the sign of life in an offset commit."""

from collections.abc import Sequence
from dataclasses import replace

from headrace.groups.classic.join import wrong_member
from headrace.groups.classic.messages import LeaveRequest, MemberRequest, SyncReply, SyncRequest
from headrace.groups.classic.rebalance import RebalanceStep, maybe_close_join, refuse_waiting, remove
from headrace.groups.classic.state import ClassicGroup, ClassicMember, ClassicState, saved
from headrace.groups.codes import Code
from headrace.groups.decision import Decision, DelayedReply
from headrace.groups.settings import GroupSettings

__all__ = ["heartbeat", "leave", "sync", "touch"]


def heartbeat(group: ClassicGroup, request: MemberRequest, now_ms: int) -> RebalanceStep:
    """Keeps the member's session alive and tells it whether to rejoin; the reply is a Code."""
    error = _stale(group, request)
    if error:
        return Decision(group=group, reply=error)
    rebalancing = group.state is ClassicState.PREPARING
    reply = Code.REBALANCE_IN_PROGRESS if rebalancing else Code.NONE
    return Decision(group=touch(group, request.member_id, now_ms), reply=reply)


def touch(group: ClassicGroup, member_id: str, now_ms: int) -> ClassicGroup:
    """The group after a sign of life of the member."""
    member = group.members.get(member_id)
    if member is None:
        return group
    return group.with_member(replace(member, session_deadline_ms=now_ms + member.session_timeout_ms))


def _stale(group: ClassicGroup, request: MemberRequest) -> Code:
    error = wrong_member(group, request.member_id, request.instance_id)
    if error:
        return error
    return Code.NONE if request.generation == group.generation else Code.ILLEGAL_GENERATION


def sync(group: ClassicGroup, request: SyncRequest, now_ms: int) -> RebalanceStep:
    """Gives the member its assignment, once the leader has brought it."""
    error = _sync_refusal(group, request)
    if error:
        return Decision(group=group, reply=SyncReply(error=error))
    group = touch(group, request.member.member_id, now_ms)
    member = group.members[request.member.member_id]
    if group.state is ClassicState.STABLE:
        group = group.with_member(replace(member, synced=True))
        return Decision(group=group, reply=_sync_reply(group, member))
    superseded = refuse_waiting(member, Code.REBALANCE_IN_PROGRESS)
    parked = group.with_member(replace(member, sync_ticket=request.ticket, synced=True))
    step = Decision(group=parked, answers=superseded)
    return _assign(step, request, now_ms) if member.member_id == group.leader else step


def _sync_refusal(group: ClassicGroup, request: SyncRequest) -> Code:
    error = _stale(group, request.member)
    if error:
        return error
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return Code.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return Code.INCONSISTENT_GROUP_PROTOCOL
    return Code.REBALANCE_IN_PROGRESS if group.state is ClassicState.PREPARING else Code.NONE


def _sync_reply(group: ClassicGroup, member: ClassicMember) -> SyncReply:
    return SyncReply(
        assignment=member.assignment, protocol_type=group.protocol_type, protocol_name=group.protocol_name
    )


def _assign(step: RebalanceStep, request: SyncRequest, now_ms: int) -> RebalanceStep:
    """The leader has spoken: the generation is stable, everybody who waits gets its part."""
    before = step.group
    members = {
        key: replace(member, assignment=bytes(request.assignments.get(key, b"")), sync_ticket=None)
        for key, member in before.members.items()
    }
    # A member that has not synced yet keeps the time it had: the phase's deadline goes on running.
    late = any(not member.synced for member in members.values())
    group = replace(
        before,
        state=ClassicState.STABLE,
        members={
            key: replace(member, session_deadline_ms=now_ms + member.session_timeout_ms)
            if before.members[key].sync_ticket is not None
            else member
            for key, member in members.items()
        },
        phase_deadline_ms=before.phase_deadline_ms if late else None,
    )
    answers = tuple(
        DelayedReply(ticket=member.sync_ticket, reply=_sync_reply(group, group.members[key]))
        for key, member in before.members.items()
        if member.sync_ticket is not None
    )
    return replace(step, group=group, events=(*step.events, saved(group)), answers=step.answers + answers)


def leave(
    group: ClassicGroup, requests: Sequence[LeaveRequest], settings: GroupSettings, now_ms: int
) -> RebalanceStep:
    """Members go, on their own or sent by an administrator; the reply is one Code for each."""
    codes: list[Code] = []
    going: dict[str, None] = {}
    pending = dict(group.pending)
    for request in requests:
        code, member_id = _leaver(group, request)
        if member_id is None and request.instance_id is None and request.member_id in pending:
            del pending[request.member_id]
            code = Code.NONE
        elif member_id is not None:
            going[member_id] = None
        codes.append(code)
    step = Decision(group=replace(group, pending=pending), reply=tuple(codes))
    if going:
        return remove(step, going, settings, now_ms)
    return maybe_close_join(step, now_ms)


def _leaver(group: ClassicGroup, request: LeaveRequest) -> tuple[Code, str | None]:
    if request.instance_id is not None and not request.member_id:
        bearer = group.by_instance(request.instance_id)
        return (Code.NONE, bearer.member_id) if bearer else (Code.UNKNOWN_MEMBER_ID, None)
    error = wrong_member(group, request.member_id, request.instance_id)
    return (error, None) if error else (Code.NONE, request.member_id)
