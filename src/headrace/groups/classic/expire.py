"""What time alone does to a classic group."""

from collections.abc import Iterator
from dataclasses import replace

from headrace.groups.classic.rebalance import RebalanceStep, close_join, maybe_close_join, remove
from headrace.groups.classic.state import ClassicGroup, ClassicState
from headrace.groups.decision import Decision
from headrace.groups.settings import GroupSettings

__all__ = ["expire", "next_deadline_ms", "woken"]


def next_deadline_ms(group: ClassicGroup) -> int | None:
    """When `expire` will next have something to do; None: never."""
    return min(_deadlines(group), default=None)


def _deadlines(group: ClassicGroup) -> Iterator[int]:
    yield from group.pending.values()
    for deadline in (group.phase_deadline_ms, group.delay_until_ms):
        if deadline is not None:
            yield deadline
    for member in group.members.values():
        if not member.is_waiting:
            yield member.session_deadline_ms


def woken(group: ClassicGroup, now_ms: int) -> ClassicGroup:
    """A group just replayed: every deadline starts now, so that a restart makes nobody late."""
    members = {
        key: replace(member, session_deadline_ms=now_ms + member.session_timeout_ms)
        for key, member in group.members.items()
    }
    unfinished = group.state in (ClassicState.PREPARING, ClassicState.COMPLETING)
    deadline = now_ms + group.rebalance_timeout_ms if unfinished else None
    return replace(group, members=members, phase_deadline_ms=deadline)


def expire(group: ClassicGroup, settings: GroupSettings, now_ms: int) -> RebalanceStep:
    """Remove who is overdue, and end the phases that are."""
    pending = {key: deadline for key, deadline in group.pending.items() if deadline > now_ms}
    step = Decision(group=replace(group, pending=pending))
    overdue = [
        key
        for key, member in group.members.items()
        if not member.is_waiting and member.session_deadline_ms <= now_ms
    ]
    step = remove(step, overdue, settings, now_ms) if overdue else maybe_close_join(step, now_ms)
    step = _end_delay(step, settings, now_ms)
    return _end_phase(step, settings, now_ms)


def _end_delay(step: RebalanceStep, settings: GroupSettings, now_ms: int) -> RebalanceStep:
    group = step.group
    if group.delay_until_ms is None or group.delay_until_ms > now_ms:
        return step
    deadline = group.phase_deadline_ms or now_ms
    if group.newcomer and now_ms < deadline:
        later = min(now_ms + settings.group_initial_rebalance_delay_ms, deadline)
        return replace(step, group=replace(group, delay_until_ms=later, newcomer=False))
    return close_join(step, now_ms)


def _end_phase(step: RebalanceStep, settings: GroupSettings, now_ms: int) -> RebalanceStep:
    group = step.group
    if group.phase_deadline_ms is None or group.phase_deadline_ms > now_ms:
        return step
    if group.state is ClassicState.PREPARING:
        return close_join(step, now_ms)
    step = replace(step, group=replace(group, phase_deadline_ms=None))
    silent = [key for key, member in group.members.items() if not member.synced]
    return remove(step, silent, settings, now_ms) if silent else step
