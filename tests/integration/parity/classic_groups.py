"""Cases of groups by the classic protocol: joining, staying, leaving."""

from headrace.wire import Api
from parity.case import case
from parity.members import Member, commit, joined
from parity.stage import code

JOIN, LIFE = "joining a group", "life in a group"


def raw_join(log, group, **options):
    fields = {
        "group_id": group,
        "session_timeout": 30_000,
        "rebalance_timeout": 20_000,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
        **options,
    }
    return log.ask(Api.JOIN_GROUP, 9, fields)


@case(JOIN, "the first join is MEMBER_ID_REQUIRED, with an id to use next")
def id_required(log):
    group = log.fresh("group")
    first = raw_join(log, group)
    second = raw_join(log, group, member_id=first.member_id)
    return [
        [code(first.error_code), bool(first.member_id), first.generation_id],
        [code(second.error_code), second.member_id == first.member_id, second.generation_id],
        [second.leader == second.member_id, second.protocol_name, second.protocol_type, len(second.members)],
    ]


@case(JOIN, "before version 4 no id is required")
def older_join(log):
    fields = {"group_id": log.fresh("group"), "session_timeout": 30_000, "rebalance_timeout": 20_000}
    fields |= {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    answer = log.ask(Api.JOIN_GROUP, 3, fields)
    return [code(answer.error_code), answer.generation_id, bool(answer.member_id)]


@case(JOIN, "session time-outs out of bounds are INVALID_SESSION_TIMEOUT")
def session_bounds(log):
    timeouts = (0, 5999, 6000, 1_800_000, 1_800_001)
    return [code(raw_join(log, log.fresh("group"), session_timeout=each).error_code) for each in timeouts]


@case(JOIN, "a group without a name is INVALID_GROUP_ID")
def no_name(log):
    return code(raw_join(log, "").error_code)


@case(JOIN, "a member id that was never assigned is UNKNOWN_MEMBER_ID")
def made_up_id(log):
    existing = joined(log)
    return [
        code(raw_join(log, log.fresh("group"), member_id="made-up").error_code),
        code(raw_join(log, existing.group, member_id="made-up").error_code),
    ]


@case(JOIN, "no protocols, or no protocol type, are INCONSISTENT_GROUP_PROTOCOL")
def no_protocols(log):
    return [
        code(raw_join(log, log.fresh("group"), protocols=[]).error_code),
        code(raw_join(log, log.fresh("group"), protocol_type="").error_code),
    ]


@case(JOIN, "no protocol in common, or another type, is INCONSISTENT_GROUP_PROTOCOL")
def nothing_in_common(log):
    member = joined(log)
    other = Member(log, member.group, protocols=("roundrobin",))
    third = Member(log, member.group, protocol_type="connect")
    return [other.join(), third.join(), member.heartbeat()]


@case(JOIN, "a protocol that all members support is chosen by vote")
def voted(log):
    first = Member(log, log.fresh("group"), protocols=("a", "range"))
    second = Member(log, first.group, protocols=("range", "b"))
    alone = [first.join(), first.sync(protocol_name="a")]
    second.start_join()
    while first.heartbeat() != "REBALANCE_IN_PROGRESS":
        pass
    answers = [first.join(), second.end_join()]
    leader = first if first.leader == first.id else second
    return [
        alone,
        answers,
        first.generation,
        second.generation,
        leader.sync()[0],
        leader.sync(protocol_name="a")[0],
    ]


@case(LIFE, "heartbeats: wrong generation, unknown member, unknown group")
def heartbeats(log):
    member = joined(log)
    return [
        member.heartbeat(),
        member.heartbeat(generation=member.generation + 1),
        member.heartbeat(generation=member.generation - 1),
        member.heartbeat(member="somebody"),
        member.heartbeat(group=log.fresh("missing")),
        member.heartbeat(group=""),
    ]


@case(LIFE, "a new member starts a rebalance: REBALANCE_IN_PROGRESS until all have rejoined")
def rebalance(log):
    first = joined(log)
    second = Member(log, first.group)
    second.start_join()
    while (found := first.heartbeat()) == "NONE":
        pass
    again = [first.join(), second.end_join()]
    before_sync = first.heartbeat()
    leader, follower = (first, second) if first.leader == first.id else (second, first)
    follower_id = follower.id
    shares = [(leader.id, b"mine"), (follower_id, b"yours")]
    return [
        found,
        again,
        first.generation == second.generation == 2,
        before_sync,
        leader.sync(assignments=shares),
        follower.sync(),
    ]


@case(LIFE, "sync: wrong generation, unknown member, other protocol")
def syncs(log):
    member = joined(log)
    return [
        member.sync(),
        member.sync(generation=9),
        member.sync(member="somebody"),
        member.sync(protocol_name="roundrobin"),
        member.sync(protocol_type="connect"),
    ]


@case(LIFE, "a member that left is unknown; leaving twice or as a non-member is UNKNOWN_MEMBER_ID")
def leaves(log):
    member = joined(log)
    return [member.leave(member="somebody"), member.leave(), member.leave(), member.heartbeat()]


@case(LIFE, "a generation is never reused, even if the group was empty in between")
def generations(log):
    first = joined(log)
    first.leave()
    second = joined(log, group=first.group)
    return [first.generation, second.generation]


@case(LIFE, "a static member is replaced without a rebalance, and the previous one is FENCED_INSTANCE_ID")
def static(log):
    first = joined(log, instance="one")
    second = Member(log, first.group, instance="one")
    answer = second.join()
    return [
        answer,
        second.generation == first.generation,
        second.id != first.id,
        first.heartbeat(),
        first.sync(),
        commit(log, first.group, log.topic(), generation=first.generation, member=first.id, instance="one"),
        second.heartbeat(),
    ]


@case(LIFE, "an administrator removes a static member by its instance id")
def static_removed(log):
    member = joined(log, instance="one")
    return [
        member.leave(member="", instance="two"),
        member.leave(member="", instance="one"),
        member.heartbeat(),
    ]
