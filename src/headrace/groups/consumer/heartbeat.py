"""ConsumerGroupHeartbeat: join, stay, reconcile and leave are all the same request."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from uuid import UUID

from headrace.groups.codes import Code
from headrace.groups.consumer.assignors import ASSIGNORS, Subscriber
from headrace.groups.consumer.leaving import leave
from headrace.groups.consumer.messages import JOIN, LEAVE, LEAVE_FOR_NOW, ConsumerHeartbeat, ConsumerReply
from headrace.groups.consumer.reconcile import reconcile
from headrace.groups.consumer.state import (
    NOTHING,
    ConsumerGroup,
    ConsumerMember,
    KnownTopics,
    MemberState,
    changes,
)
from headrace.groups.consumer.topic_regex import compiled
from headrace.groups.decision import Decision
from headrace.groups.events import TopicInfo
from headrace.groups.settings import GroupSettings

__all__ = ["heartbeat", "preferred_assignor"]


class _RefusedError(Exception):
    """Ends a decision with an error; never leaves this module."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def heartbeat(
    group: ConsumerGroup,
    request: ConsumerHeartbeat,
    catalog: KnownTopics,
    settings: GroupSettings,
    now_ms: int,
) -> Decision[ConsumerGroup]:
    """One beat of a member: the reply is a `ConsumerReply`. A refused request changes nothing."""
    try:
        _check(request, settings)
        if request.epoch in (LEAVE, LEAVE_FOR_NOW):
            return leave(group, _existing(group, request), request, settings, now_ms)
        return _stay(group, request, catalog, settings, now_ms)
    except _RefusedError as refusal:
        reply = ConsumerReply(error=refusal.code, message=str(refusal), member_id=request.member_id)
        return Decision(group=group, reply=reply)


def _check(request: ConsumerHeartbeat, settings: GroupSettings) -> None:
    problem = _malformed(request)
    if problem:
        raise _RefusedError(Code.INVALID_REQUEST, problem)
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        message = f"the assignor {request.assignor!r} is not known here; use one of {known}"
        raise _RefusedError(Code.UNSUPPORTED_ASSIGNOR, message)
    if request.topic_regex:
        problem = compiled(request.topic_regex, settings.group_consumer_regex_max_length).problem
        if problem:
            raise _RefusedError(Code.INVALID_REGULAR_EXPRESSION, problem)


def _malformed(request: ConsumerHeartbeat) -> str | None:
    if request.epoch < LEAVE_FOR_NOW:
        return f"the member epoch {request.epoch} means nothing; use 0 to join, -1 or -2 to leave"
    if request.instance_id == "" or request.rack_id == "":
        return "an instance id or rack id must be null or not empty"
    if not request.member_id and (request.epoch != JOIN or request.new_member_id is None):
        return "the member id must not be empty"
    if request.epoch == LEAVE_FOR_NOW and request.instance_id is None:
        return "only a member with an instance id can leave for now (epoch -2)"
    if request.epoch == JOIN and request.rebalance_timeout_ms < 0:
        return "the rebalance time-out must be given when joining"
    if request.epoch == JOIN and request.owned != NOTHING:
        return "a joining member owns no partitions: send an empty list"
    if request.epoch == JOIN and request.topic_names is None and request.topic_regex is None:
        return "topic names or a topic pattern must be given when joining"
    return None


def _stay(
    group: ConsumerGroup,
    request: ConsumerHeartbeat,
    catalog: KnownTopics,
    settings: GroupSettings,
    now_ms: int,
) -> Decision[ConsumerGroup]:
    before = group
    group, member = _admit(group, request, settings)
    assigned = member.assigned
    member = replace(
        _updated(member, request), session_deadline_ms=now_ms + settings.group_consumer_session_timeout_ms
    )
    group = _retarget(_resubscribed(group, member, catalog, settings), catalog, settings)
    member = reconcile(group, group.members[member.member_id], request.owned, now_ms)
    group = group.with_member(member)
    news = request.epoch == JOIN or request.is_full or member.assigned != assigned
    reply = ConsumerReply(
        member_id=member.member_id, epoch=member.epoch, assignment=member.assigned if news else None
    )
    return Decision(group=group, events=changes(before, group), reply=reply)


def _admit(
    group: ConsumerGroup, request: ConsumerHeartbeat, settings: GroupSettings
) -> tuple[ConsumerGroup, ConsumerMember]:
    """The group and the member that the request comes from, newly added if it joins."""
    if request.epoch != JOIN:
        return group, _existing(group, request)
    member_id = request.member_id or request.new_member_id or ""
    bearer = group.by_instance(request.instance_id) if request.instance_id is not None else None
    if bearer is not None and bearer.member_id != member_id:
        return _succeed(group, bearer, member_id)
    member = group.members.get(member_id)
    if member is not None:
        # It starts again: whatever it had, it has dropped.
        return group, _restarted(member)
    if len(group.members) >= settings.group_max_size:
        message = f"the group has {len(group.members)} members; the setting group_max_size allows no more"
        raise _RefusedError(Code.GROUP_MAX_SIZE_REACHED, message)
    return group, ConsumerMember(member_id=member_id)


def _restarted(member: ConsumerMember) -> ConsumerMember:
    return replace(
        member,
        epoch=JOIN,
        previous_epoch=-1,
        state=MemberState.STABLE,
        assigned=NOTHING,
        revoking=NOTHING,
        revoke_deadline_ms=None,
    )


def _succeed(
    group: ConsumerGroup, bearer: ConsumerMember, member_id: str
) -> tuple[ConsumerGroup, ConsumerMember]:
    """A static member's next incarnation takes over its target, if the former one has left for now."""
    if not bearer.is_away:
        message = f"the instance id {bearer.instance_id!r} is in use by member {bearer.member_id}"
        raise _RefusedError(Code.UNRELEASED_INSTANCE_ID, message)
    member = replace(_restarted(bearer), member_id=member_id)
    members = {member_id if k == bearer.member_id else k: m for k, m in group.members.items()}
    return replace(group, members={**members, member_id: member}), member


def _existing(group: ConsumerGroup, request: ConsumerHeartbeat) -> ConsumerMember:
    member = group.members.get(request.member_id)
    if request.instance_id is not None:
        bearer = group.by_instance(request.instance_id)
        if bearer is not None and bearer.member_id != request.member_id:
            message = f"the instance id {request.instance_id!r} now belongs to another member"
            raise _RefusedError(Code.FENCED_INSTANCE_ID, message)
        member = bearer
    if member is None:
        message = f"member {request.member_id!r} is not in the group; join again with epoch 0"
        raise _RefusedError(Code.UNKNOWN_MEMBER_ID, message)
    if request.epoch >= 0:
        _check_epoch(member, request)
    return member


def _check_epoch(member: ConsumerMember, request: ConsumerHeartbeat) -> None:
    """The epoch is the member's, or the one before if our last answer may have been lost."""
    if request.epoch == member.epoch:
        return
    owned = request.owned
    lost = request.epoch == member.previous_epoch and owned is not None and owned <= member.assigned
    if not lost:
        message = f"the member epoch {request.epoch} is not {member.epoch}; drop everything and join again"
        raise _RefusedError(Code.FENCED_MEMBER_EPOCH, message)


def _given(new: str | None, old: str | None) -> str | None:
    return old if new is None else new


def _updated(member: ConsumerMember, request: ConsumerHeartbeat) -> ConsumerMember:
    timeout = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=_given(request.instance_id, member.instance_id),
        rack_id=_given(request.rack_id, member.rack_id),
        client_id=request.client_id or member.client_id,
        client_host=request.client_host or member.client_host,
        user=request.user,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout < 0 else timeout,
        topic_names=member.topic_names if request.topic_names is None else request.topic_names,
        topic_regex=_given(request.topic_regex, member.topic_regex) or None,
        assignor=_given(request.assignor, member.assignor),
    )


def _resubscribed(
    group: ConsumerGroup, member: ConsumerMember, catalog: KnownTopics, settings: GroupSettings
) -> ConsumerGroup:
    """The group with the member as it is now; a new epoch if subscriptions or topics changed."""
    known = group.members.get(member.member_id)
    after = group.with_member(member)
    changed = known is None or _subscription(known) != _subscription(member)
    if not changed and catalog.version == group.catalog_version:
        return after
    wanted = {key: _wanted(each, catalog, settings) for key, each in after.members.items()}
    topics = _subscribed(wanted.values(), catalog)
    matched = {key: wanted[key] for key, each in after.members.items() if each.topic_regex is not None}
    # An epoch without a target yet covers this change as well.
    changed = changed or topics != group.topics or _sees_otherwise(after, topics, matched)
    epoch = group.epoch + (changed and group.epoch == group.target_epoch)
    return replace(after, epoch=epoch, topics=topics, catalog_version=catalog.version, matched=matched)


def _subscription(member: ConsumerMember) -> tuple[object, ...]:
    """What a member wants; whose a pattern is says what it stands for."""
    if member.topic_regex is None:
        return (member.topic_names,)
    return member.topic_names, member.topic_regex, member.user, member.client_host


def _sees_otherwise(
    group: ConsumerGroup, topics: Mapping[str, TopicInfo], matched: Mapping[str, frozenset[str]]
) -> bool:
    """Whether a member's pattern stands for other topics than before, though the group's are the same.

    After a restart it is not known what it stood for: then, whether it is to have others than it may.
    """
    names = {info.topic_id: name for name, info in topics.items()}
    for key, wanted in matched.items():
        if any(names.get(topic_id) not in wanted for topic_id, _ in group.members[key].target):
            return True
        if group.catalog_version >= 0 and group.matched.get(key, wanted) != wanted:
            return True
    return False


def _subscribed(wanted: Iterable[frozenset[str]], catalog: KnownTopics) -> Mapping[str, TopicInfo]:
    """The topics that any member wants and that exist."""
    names = frozenset[str]().union(*wanted)
    found = {name: catalog.topics[name] for name in sorted(names) if name in catalog.topics}
    # Persisted without the flag, so compared without it.
    return {name: replace(info, internal=False) for name, info in found.items()}


def _wanted(member: ConsumerMember, catalog: KnownTopics, settings: GroupSettings) -> frozenset[str]:
    """Topics by name, and by pattern where they are not the broker's own and its user may know of them.

    A topic that the user may not know of is not even compared with the pattern.
    """
    if member.topic_regex is None:
        return member.topic_names
    regex = compiled(member.topic_regex, settings.group_consumer_regex_max_length)
    known: Iterable[str] = catalog.topics
    if catalog.visible_to is not None:
        known = catalog.visible_to(member.user, member.client_host)
    return member.topic_names | {
        name for name in known if not catalog.topics[name].internal and regex.matches(name)
    }


def _retarget(group: ConsumerGroup, catalog: KnownTopics, settings: GroupSettings) -> ConsumerGroup:
    """A target assignment for the group's epoch, unless there is one."""
    if group.target_epoch == group.epoch:
        return group
    counts = {info.topic_id: info.partitions for info in group.topics.values()}
    subscribers = {
        key: Subscriber(
            order=member.instance_id or key,
            topics=_topic_ids(group, _wanted(member, catalog, settings)),
            had=member.target,
        )
        for key, member in group.members.items()
    }
    target = ASSIGNORS[preferred_assignor(group)](subscribers, counts)
    members = {
        key: member if member.target == target[key] else replace(member, target=target[key])
        for key, member in group.members.items()
    }
    return replace(group, members=members, target_epoch=group.epoch)


def _topic_ids(group: ConsumerGroup, names: frozenset[str]) -> frozenset[UUID]:
    return frozenset(info.topic_id for name, info in group.topics.items() if name in names)


def preferred_assignor(group: ConsumerGroup) -> str:
    """The assignor most members ask for; without a wish, and on a tie, the first known."""
    votes = Counter(member.assignor for member in group.members.values() if member.assignor)
    return max(ASSIGNORS, key=lambda name: votes[name])
