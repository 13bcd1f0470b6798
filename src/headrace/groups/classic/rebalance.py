"""How a classic group gets from one generation to the next.

    Empty ──join──▶ PreparingRebalance ──all rejoined, or time is up──▶ CompletingRebalance
      ▲                  ▲        │                                          │ the leader's assignment
      └───nobody left────┼────────┘                                          ▼
                         └──────── join, leave, death ─────────────────── Stable

Each function takes a decision under way and returns it carried on.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

from headrace.groups.classic.messages import JoinReply, SyncReply
from headrace.groups.classic.state import ClassicGroup, ClassicMember, ClassicState, saved
from headrace.groups.codes import Code
from headrace.groups.decision import Decision, DelayedReply
from headrace.groups.settings import GroupSettings

__all__ = [
    "RebalanceStep",
    "close_join",
    "joined_reply",
    "maybe_close_join",
    "park_join",
    "prepare",
    "refuse_waiting",
    "remove",
]

RebalanceStep: TypeAlias = Decision[ClassicGroup]


def prepare(step: RebalanceStep, settings: GroupSettings, now_ms: int) -> RebalanceStep:
    """Start a rebalance, unless one is already waiting for members."""
    group = step.group
    if group.state is ClassicState.PREPARING:
        return step
    if group.state is ClassicState.COMPLETING:
        step = _interrupt_sync(step, now_ms)
    delay = settings.group_initial_rebalance_delay_ms if group.state is ClassicState.EMPTY else 0
    deadline = now_ms + group.rebalance_timeout_ms
    return replace(
        step,
        group=replace(
            step.group,
            state=ClassicState.PREPARING,
            phase_deadline_ms=deadline,
            delay_until_ms=min(now_ms + delay, deadline) if delay else None,
            newcomer=False,
        ),
    )


def park_join(
    step: RebalanceStep, member: ClassicMember, ticket: int, settings: GroupSettings, now_ms: int
) -> RebalanceStep:
    """Keep the member's join until the rebalance completes; complete it if this was the last one."""
    superseded = refuse_waiting(member, Code.REBALANCE_IN_PROGRESS)
    idle = replace(member, join_ticket=None, sync_ticket=None)
    step = replace(step, group=step.group.with_member(idle), answers=step.answers + superseded)
    step = prepare(step, settings, now_ms)
    group = step.group.with_member(replace(idle, join_ticket=ticket))
    return maybe_close_join(replace(step, group=group), now_ms)


def remove(
    step: RebalanceStep, member_ids: Iterable[str], settings: GroupSettings, now_ms: int
) -> RebalanceStep:
    """Take members out and rebalance what remains; what they had parked is refused."""
    group, answers = step.group, step.answers
    for member_id in member_ids:
        answers += refuse_waiting(group.members[member_id], Code.UNKNOWN_MEMBER_ID)
        group = group.without(member_id)
    step = replace(step, group=group, answers=answers)
    if group.state is not ClassicState.EMPTY:
        step = prepare(step, settings, now_ms)
    return maybe_close_join(step, now_ms)


def maybe_close_join(step: RebalanceStep, now_ms: int) -> RebalanceStep:
    """Complete the rebalance once everybody expected has rejoined."""
    group = step.group
    if group.state is not ClassicState.PREPARING or group.delay_until_ms is not None or group.pending:
        return step
    if any(member.join_ticket is None for member in group.members.values()):
        return step
    return close_join(step, now_ms)


def close_join(step: RebalanceStep, now_ms: int) -> RebalanceStep:
    """Start the next generation with those who rejoined, and the static members, who may yet return."""
    group = step.group
    kept = {k: m for k, m in group.members.items() if m.join_ticket is not None or m.instance_id is not None}
    group = replace(group, members=kept, delay_until_ms=None)
    if not kept:
        return _start_empty_generation(replace(step, group=group))
    rejoined = [m.member_id for m in kept.values() if m.join_ticket is not None]
    if not rejoined:
        # Only static members, none of them here: wait on until their sessions end.
        again = replace(group, phase_deadline_ms=now_ms + max(group.rebalance_timeout_ms, 1))
        return replace(step, group=again)
    leader = group.leader if group.leader in rejoined else rejoined[0]
    return _start_generation(replace(step, group=replace(group, leader=leader)), now_ms)


def _start_empty_generation(step: RebalanceStep) -> RebalanceStep:
    group = replace(
        step.group,
        state=ClassicState.EMPTY,
        generation=step.group.generation + 1,
        protocol_name=None,
        leader=None,
        phase_deadline_ms=None,
    )
    return replace(step, group=group, events=(*step.events, saved(group)))


def _start_generation(step: RebalanceStep, now_ms: int) -> RebalanceStep:
    before = step.group
    group = replace(
        before,
        state=ClassicState.COMPLETING,
        generation=before.generation + 1,
        protocol_name=before.vote(),
        phase_deadline_ms=now_ms + before.rebalance_timeout_ms,
        members={key: _unassigned(member, now_ms) for key, member in before.members.items()},
    )
    answers = tuple(
        DelayedReply(ticket=member.join_ticket, reply=joined_reply(group, member.member_id))
        for member in before.members.values()
        if member.join_ticket is not None
    )
    return replace(step, group=group, events=(*step.events, saved(group)), answers=step.answers + answers)


def _unassigned(member: ClassicMember, now_ms: int) -> ClassicMember:
    deadline = member.session_deadline_ms
    if member.join_ticket is not None:
        deadline = now_ms + member.session_timeout_ms
    return replace(member, assignment=b"", synced=False, join_ticket=None, session_deadline_ms=deadline)


def joined_reply(group: ClassicGroup, member_id: str) -> JoinReply:
    """The current generation as the member is to see it; the leader sees everybody's metadata."""
    members = group.members.values() if member_id == group.leader else ()
    return JoinReply(
        member_id=member_id,
        generation=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        members=tuple((m.member_id, m.instance_id, m.metadata(group.protocol_name)) for m in members),
    )


def refuse_waiting(member: ClassicMember, error: Code) -> tuple[DelayedReply, ...]:
    """Refusals of whatever the member has parked."""
    answers: list[DelayedReply] = []
    if member.join_ticket is not None:
        answers.append(
            DelayedReply(ticket=member.join_ticket, reply=JoinReply(error=error, member_id=member.member_id))
        )
    if member.sync_ticket is not None:
        answers.append(DelayedReply(ticket=member.sync_ticket, reply=SyncReply(error=error)))
    return tuple(answers)


def _interrupt_sync(step: RebalanceStep, now_ms: int) -> RebalanceStep:
    """Send those who wait for an assignment back to join again."""
    members = step.group.members
    answers = tuple(
        answer for m in members.values() for answer in refuse_waiting(m, Code.REBALANCE_IN_PROGRESS)
    )
    freed = {key: _released(member, now_ms) for key, member in members.items()}
    return replace(step, group=replace(step.group, members=freed), answers=step.answers + answers)


def _released(member: ClassicMember, now_ms: int) -> ClassicMember:
    """The member without what it had parked; its session starts over, since we kept it waiting."""
    deadline = now_ms + member.session_timeout_ms if member.is_waiting else member.session_deadline_ms
    return replace(member, join_ticket=None, sync_ticket=None, synced=False, session_deadline_ms=deadline)
