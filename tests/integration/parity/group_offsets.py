"""Cases of committed offsets, and of what administrators do to groups."""

from headrace.wire import Api
from parity.case import case
from parity.members import Member, commit, committed, joined, subscription
from parity.stage import code

__all__ = ["delete", "describe"]

OFFSETS, ADMIN = "committed offsets", "administering groups"


@case(OFFSETS, "a member commits in its generation; others are rejected")
def commits(log):
    topic, member = log.topic(), joined(log)
    return [
        commit(log, member.group, topic, generation=member.generation, member=member.id, metadata="note"),
        committed(log, member.group, topic),
        commit(log, member.group, topic, 6, generation=member.generation + 1, member=member.id),
        commit(log, member.group, topic, 7, generation=member.generation, member="somebody"),
        commit(log, member.group, topic, 8),
        committed(log, member.group, topic),
    ]


@case(OFFSETS, "a non-member commits to a group that is empty or new, but not with a generation")
def outside(log):
    topic, group = log.topic(), log.fresh("group")
    return [
        commit(log, group, topic, 5),
        committed(log, group, topic),
        commit(log, group, topic, 6, generation=3),
        commit(log, log.fresh("group"), topic, 6, generation=3),
        commit(log, log.fresh("group"), topic, 6, generation=3, member="somebody"),
    ]


@case(OFFSETS, "a commit between joining and getting an assignment is REBALANCE_IN_PROGRESS")
def commit_before_sync(log):
    member = Member(log, log.fresh("group"))
    member.join()
    return commit(log, member.group, log.topic(), generation=member.generation, member=member.id)


@case(OFFSETS, "of an unknown topic or partition are UNKNOWN_TOPIC_OR_PARTITION")
def commit_unknown(log):
    group = log.fresh("group")
    return [commit(log, group, log.fresh("missing")), commit(log, group, log.topic(), partition=8)]


@case(OFFSETS, "metadata of more than 4096 bytes are OFFSET_METADATA_TOO_LARGE")
def metadata_size(log):
    group, topic = log.fresh("group"), log.topic()
    return [commit(log, group, topic, metadata="x" * size) for size in (4096, 4097)]


@case(OFFSETS, "an offset that was never committed is -1, also for an unknown group")
def never(log):
    topic = log.topic()
    group = joined(log).group
    return [
        committed(log, group, topic),
        committed(log, log.fresh("missing"), topic),
        committed(log, group, "no-such-topic"),
    ]


@case(OFFSETS, "a negative offset, and one beyond the end, are stored as they are")
def odd_offsets(log):
    group, topic = log.fresh("group"), log.topic()
    return [[commit(log, group, topic, offset), committed(log, group, topic)] for offset in (-1, -5, 1000)]


@case(OFFSETS, "without topics, all offsets of the group are returned")
def all_offsets(log):
    group, first, second = log.fresh("group"), log.topic(partitions=2), log.topic()
    for topic, partition in ((first, 0), (first, 1), (second, 0)):
        commit(log, group, topic, 10 + partition, partition=partition)
    row = {"group_id": group, "topics": None}
    (found,) = log.ask(Api.OFFSET_FETCH, 9, {"groups": [row]}).groups
    names = {first: "first", second: "second"}
    return sorted(
        [names[each.name], part.partition_index, part.committed_offset]
        for each in found.topics
        for part in each.partitions
    )


def delete(log, *groups):
    answer = log.ask(Api.DELETE_GROUPS, 2, {"groups_names": list(groups)})
    return [code(each.error_code) for each in answer.results]


@case(ADMIN, "delete: unknown is GROUP_ID_NOT_FOUND, with members NON_EMPTY_GROUP, empty is deleted")
def deletes(log):
    topic, member = log.topic(), joined(log)
    commit(log, member.group, topic, generation=member.generation, member=member.id)
    refused = [delete(log, log.fresh("missing")), delete(log, member.group)]
    member.leave()
    return [
        refused,
        delete(log, member.group),
        committed(log, member.group, topic),
        delete(log, member.group),
    ]


def forget(log, group, topic, partition=0):
    fields = {"group_id": group, "topics": [{"name": topic, "partitions": [{"partition_index": partition}]}]}
    answer = log.ask(Api.OFFSET_DELETE, 0, fields)
    return [
        code(answer.error_code),
        [code(part.error_code) for each in answer.topics for part in each.partitions],
    ]


@case(ADMIN, "delete offsets: unknown group, empty group, unknown topic")
def forgets(log):
    group, topic = log.fresh("group"), log.topic()
    commit(log, group, topic)
    return [
        forget(log, log.fresh("missing"), topic),
        forget(log, group, "no-such-topic"),
        forget(log, group, topic),
        committed(log, group, topic),
        forget(log, group, topic),
    ]


@case(ADMIN, "delete offsets of a topic that members read: GROUP_SUBSCRIBED_TO_TOPIC")
def forgets_subscribed(log):
    topic, member = log.topic(), Member(log, log.fresh("group"))
    member.metadata = subscription(topic)
    member.join()
    member.sync()
    other = log.topic()
    for each in (topic, other):
        commit(log, member.group, each, generation=member.generation, member=member.id)
    return [forget(log, member.group, topic), forget(log, member.group, other)]


def describe(log, group, version=6):
    (found,) = log.ask(Api.DESCRIBE_GROUPS, version, {"groups": [group]}).groups
    members = [[each.client_id, bytes(each.member_assignment).decode()] for each in found.members]
    return [code(found.error_code), found.group_state, found.protocol_type, found.protocol_data, members]


@case(ADMIN, "describe: unknown, stable, empty")
def describes(log):
    member = joined(log)
    stable = describe(log, member.group)
    member.leave()
    missing = log.fresh("missing")
    return [stable, describe(log, member.group), describe(log, missing), describe(log, missing, version=5)]


@case(ADMIN, "list by state and by type")
def lists(log):
    member, empty = joined(log), log.fresh("group")
    commit(log, empty, log.topic())

    def names(**filters):
        found = {each.group_id: each for each in log.ask(Api.LIST_GROUPS, 5, filters).groups}
        return [
            [found[name].group_state, found[name].group_type, found[name].protocol_type]
            if name in found
            else None
            for name in (member.group, empty)
        ]

    return [
        names(),
        names(states_filter=["Stable"]),
        names(states_filter=["Empty"]),
        names(states_filter=["stable", "EMPTY"]),
        names(types_filter=["classic"]),
        names(types_filter=["consumer"]),
        names(states_filter=["Nonsense"]),
    ]
