"""One member's next step from what it has to what it is to have."""

from dataclasses import replace

from headrace.groups.consumer.state import NOTHING, ConsumerGroup, ConsumerMember, MemberState
from headrace.groups.events import Partitions

__all__ = ["reconcile"]


def reconcile(
    group: ConsumerGroup, member: ConsumerMember, owned: Partitions | None, now_ms: int
) -> ConsumerMember:
    """The member after as many steps as it may take now; `owned` is what it says that it holds.

    Silence about `owned` confirms nothing. The epoch reaches the target's only once
    nothing is left to revoke.
    """
    if member.state is MemberState.STABLE and member.epoch == group.target_epoch:
        return member
    epoch = member.epoch
    if member.state is MemberState.UNREVOKED:
        if _still_owns(owned, member.revoking):
            return member
        member = replace(member, revoking=NOTHING, revoke_deadline_ms=None)
        epoch = member.epoch + 1
    return _next_step(group, member, owned, epoch, now_ms)


def _still_owns(owned: Partitions | None, partitions: Partitions) -> bool:
    return owned is None or not owned.isdisjoint(partitions)


def _next_step(
    group: ConsumerGroup, member: ConsumerMember, owned: Partitions | None, epoch: int, now_ms: int
) -> ConsumerMember:
    kept = member.assigned & member.target
    revoking = member.assigned - kept
    if revoking and _still_owns(owned, revoking):
        member = replace(member, assigned=kept, revoking=revoking, state=MemberState.UNREVOKED)
        return replace(_at_epoch(member, epoch), revoke_deadline_ms=now_ms + member.rebalance_timeout_ms)
    wanted = member.target - kept
    free = wanted - group.taken(except_by=member.member_id) if wanted else NOTHING
    state = MemberState.STABLE if free == wanted else MemberState.UNRELEASED
    member = replace(member, assigned=kept | free, revoking=NOTHING, state=state, revoke_deadline_ms=None)
    return _at_epoch(member, group.target_epoch)


def _at_epoch(member: ConsumerMember, epoch: int) -> ConsumerMember:
    if epoch == member.epoch:
        return member
    return replace(member, epoch=epoch, previous_epoch=member.epoch)
