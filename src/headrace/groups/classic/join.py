"""JoinGroup: who may come in, and what that does to the group."""

from dataclasses import replace

from headrace.groups.classic.messages import JoinReply, JoinRequest
from headrace.groups.classic.rebalance import RebalanceStep, joined_reply, park_join, prepare, refuse_waiting
from headrace.groups.classic.state import ClassicGroup, ClassicMember, ClassicState, saved, subscribed_topics
from headrace.groups.codes import Code
from headrace.groups.decision import Decision
from headrace.groups.settings import GroupSettings

__all__ = ["join", "wrong_member"]


def join(group: ClassicGroup, request: JoinRequest, settings: GroupSettings, now_ms: int) -> RebalanceStep:
    """Answer at once, or park the request until the rebalance that it takes part in completes."""
    error = _refusal(group, request, settings)
    if error:
        return _refuse(group, error, request.member_id)
    if not request.member_id:
        return _join_new(group, request, settings, now_ms)
    if request.member_id in group.pending:
        pending = {key: value for key, value in group.pending.items() if key != request.member_id}
        return _add(replace(group, pending=pending), request.member_id, request, settings, now_ms)
    error = wrong_member(group, request.member_id, request.instance_id)
    if error:
        return _refuse(group, error, request.member_id)
    return _rejoin(group, group.members[request.member_id], request, settings, now_ms)


def _refusal(group: ClassicGroup, request: JoinRequest, settings: GroupSettings) -> Code:
    shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not shortest <= request.session_timeout_ms <= longest:
        return Code.INVALID_SESSION_TIMEOUT
    if sum(len(metadata) for _, metadata in request.protocols) > settings.group_max_member_bytes:
        return Code.INVALID_REQUEST
    if _is_full(group, request, settings):
        return Code.GROUP_MAX_SIZE_REACHED
    if not group.supports(request.protocol_type, request.protocols):
        return Code.INCONSISTENT_GROUP_PROTOCOL
    return Code.NONE


def _is_full(group: ClassicGroup, request: JoinRequest, settings: GroupSettings) -> bool:
    known = request.member_id in group.members or request.member_id in group.pending
    replaced = request.instance_id is not None and group.by_instance(request.instance_id) is not None
    size = len(group.members) + len(group.pending)
    return not known and not replaced and size >= settings.group_max_size


def wrong_member(group: ClassicGroup, member_id: str, instance_id: str | None) -> Code:
    """Why the caller is not the member that it says it is, or NONE."""
    if instance_id is None:
        return Code.NONE if member_id in group.members else Code.UNKNOWN_MEMBER_ID
    bearer = group.by_instance(instance_id)
    if bearer is None:
        return Code.UNKNOWN_MEMBER_ID
    return Code.NONE if bearer.member_id == member_id else Code.FENCED_INSTANCE_ID


def _refuse(group: ClassicGroup, error: Code, member_id: str) -> RebalanceStep:
    return Decision(group=group, reply=JoinReply(error=error, member_id=member_id))


def _join_new(
    group: ClassicGroup, request: JoinRequest, settings: GroupSettings, now_ms: int
) -> RebalanceStep:
    if request.instance_id is not None:
        bearer = group.by_instance(request.instance_id)
        if bearer is not None:
            return _replace_static(group, bearer, request, settings, now_ms)
    elif request.knows_member_id_required:
        # The client asks again with this id, so a lost answer leaves no nameless member behind.
        pending = {**group.pending, request.new_member_id: now_ms + request.session_timeout_ms}
        waiting = replace(group, pending=pending, newcomer=True)
        return _refuse(waiting, Code.MEMBER_ID_REQUIRED, request.new_member_id)
    return _add(group, request.new_member_id, request, settings, now_ms)


def _add(
    group: ClassicGroup, member_id: str, request: JoinRequest, settings: GroupSettings, now_ms: int
) -> RebalanceStep:
    if not group.members:
        group = replace(group, protocol_type=request.protocol_type)
    member = ClassicMember(
        member_id=member_id,
        instance_id=request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
        session_deadline_ms=now_ms + request.session_timeout_ms,
    )
    group = replace(group.with_member(member), leader=group.leader or member_id)
    step = prepare(Decision(group=group), settings, now_ms)
    step = replace(step, group=replace(step.group, newcomer=True))
    return park_join(step, member, request.ticket, settings, now_ms)


def _updated(member: ClassicMember, request: JoinRequest, now_ms: int) -> ClassicMember:
    return replace(
        member,
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocols=request.protocols,
        session_deadline_ms=now_ms + request.session_timeout_ms,
    )


def _rejoin(
    group: ClassicGroup, member: ClassicMember, request: JoinRequest, settings: GroupSettings, now_ms: int
) -> RebalanceStep:
    unchanged = member.protocols == request.protocols
    must_assign = group.state is ClassicState.STABLE and group.leader == member.member_id
    if group.state is ClassicState.PREPARING or not unchanged or must_assign:
        return park_join(
            Decision(group=group), _updated(member, request, now_ms), request.ticket, settings, now_ms
        )
    # Its answer was lost, or it wants to know what it already has: the generation goes on.
    touched = replace(member, session_deadline_ms=now_ms + member.session_timeout_ms)
    group = group.with_member(touched)
    return Decision(group=group, reply=joined_reply(group, member.member_id))


def _replace_static(
    group: ClassicGroup, old: ClassicMember, request: JoinRequest, settings: GroupSettings, now_ms: int
) -> RebalanceStep:
    """The next incarnation of a static member takes its place, under a new member id."""
    fenced = refuse_waiting(old, Code.FENCED_INSTANCE_ID)
    new = replace(
        _updated(old, request, now_ms), member_id=request.new_member_id, join_ticket=None, sync_ticket=None
    )
    members = {new.member_id if k == old.member_id else k: m for k, m in group.members.items()}
    leader = new.member_id if group.leader == old.member_id else group.leader
    after = replace(group, members={**members, new.member_id: new}, leader=leader)
    if group.state is ClassicState.STABLE and _same_subscription(after, old, new):
        reply = _replaced_reply(after, old, new, skips=request.knows_skip_assignment, was_leader=group.leader)
        return Decision(group=after, events=(saved(after),), answers=fenced, reply=reply)
    return park_join(Decision(group=after, answers=fenced), new, request.ticket, settings, now_ms)


def _same_subscription(after: ClassicGroup, old: ClassicMember, new: ClassicMember) -> bool:
    """The assignment in force still fits: same protocol, same topics.

    Bytes are not compared: some assignors write what a member owned into its metadata.
    """
    if after.vote() != after.protocol_name:
        return False
    return subscribed_topics(old.metadata(after.protocol_name)) == subscribed_topics(
        new.metadata(after.protocol_name)
    )


def _replaced_reply(
    after: ClassicGroup, old: ClassicMember, new: ClassicMember, *, skips: bool, was_leader: str | None
) -> JoinReply:
    """The generation goes on. A client that cannot skip the assignment is told that its old self leads,

    so that it does not compute one that a stable group would ignore.
    """
    reply = joined_reply(after, new.member_id)
    if was_leader != old.member_id:
        return reply
    if skips:
        return replace(reply, skip_assignment=True)
    return replace(reply, leader=old.member_id, members=())
