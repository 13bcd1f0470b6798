"""Cases of administering topics: creating, deleting, adding partitions, metadata."""

import uuid

from headrace.wire import Api
from parity.case import case
from parity.stage import code, wait_until

CREATE, DELETE, PARTITIONS, METADATA = "create topics", "delete topics", "create partitions", "metadata"


def wanted(name, partitions=1, replication=1, assignments=(), **configs):
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replication,
        "assignments": [{"partition_index": index, "broker_ids": ids} for index, ids in assignments],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def create(log, *topics, validate_only=False):
    """Code, partitions and replication factor of each topic, in the order of the request."""
    fields = {"topics": list(topics), "timeout": 10_000, "validate_only": validate_only}
    found = {each.name: each for each in log.ask(Api.CREATE_TOPICS, 7, fields).topics}
    names = dict.fromkeys(topic["name"] for topic in topics)
    answers = [found[name] for name in names]
    return [[code(each.error_code), each.num_partitions, each.replication_factor] for each in answers]


def described(log, name, **options):
    """Code and partitions of a topic in the metadata."""
    fields = {"topics": [{"name": name}], "allow_auto_topic_creation": False, **options}
    (found,) = log.ask(Api.METADATA, 9, fields).topics
    return [code(found.error_code), len(found.partitions)]


def wait_described(log, name, wanted_answer):
    """Kafka's metadata follow a change a moment later."""
    return wait_until(lambda: described(log, name), lambda answer: answer == wanted_answer)


@case(CREATE, "with a number of partitions, and with the default of 1")
def created(log):
    first, second = log.fresh(), log.fresh()
    answers = create(log, wanted(first, partitions=3), wanted(second, partitions=-1, replication=-1))
    return [answers, wait_described(log, first, ["NONE", 3]), wait_described(log, second, ["NONE", 1])]


@case(CREATE, "0 or -2 partitions are INVALID_PARTITIONS")
def bad_partitions(log):
    return create(log, wanted(log.fresh(), partitions=0), wanted(log.fresh(), partitions=-2))


@case(CREATE, "a replication factor of 0, -2 or more than there are nodes is INVALID_REPLICATION_FACTOR")
def bad_replication(log):
    return create(log, *[wanted(log.fresh(), replication=factor) for factor in (0, 2, -2)])


@case(CREATE, "an existing topic is TOPIC_ALREADY_EXISTS")
def exists(log):
    return create(log, wanted(log.topic(partitions=2), partitions=5))


@case(CREATE, "invalid names are INVALID_TOPIC_EXCEPTION")
def bad_names(log):
    names = ("", ".", "..", "a b", "a/b", "a:b", "ä", "x" * 250)
    return create(log, *[wanted(name) for name in names])


@case(CREATE, "names of 249 characters, and with dots, dashes and underscores, are valid")
def good_names(log):
    names = (log.fresh("x" * 200).ljust(249, "y"), log.fresh("A.b-c_D"), log.fresh("..."))
    return create(log, *[wanted(name) for name in names])


@case(CREATE, "a name that differs from another only in dots and underscores is INVALID_TOPIC_EXCEPTION")
def collides(log):
    name = log.fresh("with.dots")
    create(log, wanted(name))
    return create(log, wanted(name.replace(".", "_")))


@case(CREATE, "a name that appears twice in the request is INVALID_REQUEST, and not created")
def twice(log):
    name = log.fresh()
    return [create(log, wanted(name), wanted(name)), described(log, name)]


@case(CREATE, "an unknown setting or an invalid value is INVALID_CONFIG")
def bad_config(log):
    return create(
        log,
        wanted(log.fresh(), no_such_thing="1"),
        wanted(log.fresh(), retention_ms="soon"),
        wanted(log.fresh(), cleanup_policy="burn"),
        wanted(log.fresh(), max_message_bytes="-5"),
        wanted(log.fresh(), retention_ms="-2"),
        wanted(log.fresh(), segment_bytes="1"),
        wanted(log.fresh(), min_cleanable_dirty_ratio="1.5"),
        wanted(log.fresh(), message_timestamp_type="Never"),
    )


@case(CREATE, "a setting without a value is INVALID_CONFIG")
def null_config(log):
    return create(log, wanted(log.fresh(), retention_ms=None))


@case(CREATE, "validate_only says what would happen, and does nothing")
def validated(log):
    good, bad = log.fresh(), log.fresh()
    answers = create(log, wanted(good, 3), wanted(bad, 0), validate_only=True)
    return [answers, described(log, good), described(log, bad)]


@case(CREATE, "manual replicas: on this node, on an unknown node, with gaps, together with a count")
def assigned(log):
    return create(
        log,
        wanted(log.fresh(), -1, -1, [(0, [1]), (1, [1])]),
        wanted(log.fresh(), -1, -1, [(0, [9])]),
        wanted(log.fresh(), -1, -1, [(0, [1]), (5, [1])]),
        wanted(log.fresh(), -1, -1, [(0, [1, 1])]),
        wanted(log.fresh(), -1, -1, [(0, [])]),
        wanted(log.fresh(), 2, -1, [(0, [1]), (1, [1])]),
    )


@case(CREATE, "the response has the new topic's settings and their sources")
def answered_configs(log):
    fields = {"topics": [wanted(log.fresh(), retention_ms="5000")], "timeout": 10_000}
    (answer,) = log.ask(Api.CREATE_TOPICS, 7, fields).topics
    found = {each.name: each for each in answer.configs or ()}
    shown = [found.get(name) for name in ("retention.ms", "cleanup.policy", "max.message.bytes")]
    return [each and [each.value, each.config_source, each.read_only, each.is_sensitive] for each in shown]


def delete(log, *topics):
    fields = {"topics": list(topics), "timeout": 10_000}
    return [code(each.error_code) for each in log.ask(Api.DELETE_TOPICS, 6, fields).responses]


@case(DELETE, "by name and by id, then they are gone")
def deleted(log):
    first, second = log.topic(), log.topic()
    answers = delete(log, {"name": first}), delete(log, {"name": None, "topic_id": log.topic_id(second)})
    gone = ["UNKNOWN_TOPIC_OR_PARTITION", 0]
    return [answers, wait_described(log, first, gone), wait_described(log, second, gone)]


@case(DELETE, "an unknown name or id is UNKNOWN_TOPIC_OR_PARTITION or UNKNOWN_TOPIC_ID")
def delete_unknown(log):
    return [
        delete(log, {"name": log.fresh("missing")}),
        delete(log, {"name": None, "topic_id": uuid.UUID(int=79)}),
        delete(log, {"name": ""}),
    ]


@case(DELETE, "name and id together, or one twice, are INVALID_REQUEST")
def delete_confused(log):
    first, second = log.topic(), log.topic()
    both = delete(log, {"name": first, "topic_id": log.topic_id(first)})
    return [both, delete(log, {"name": second}, {"name": second}), described(log, second)]


@case(DELETE, "a topic created again under the same name starts empty, at offset 0")
def made_anew(log):
    name = log.topic()
    log.fill(name, b"old")
    delete(log, {"name": name})
    wait_described(log, name, ["UNKNOWN_TOPIC_OR_PARTITION", 0])
    create(log, wanted(name))
    log.wait_for_leaders(name, 1)
    return [log.list_offset(name, -1), log.values(name)]


def add(log, name, count, assignments=None, validate_only=False):
    rows = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
    fields = {"topics": [{"name": name, "count": count, "assignments": rows}], "timeout": 10_000}
    answer = log.ask(Api.CREATE_PARTITIONS, 3, {**fields, "validate_only": validate_only})
    return [code(each.error_code) for each in answer.results]


@case(PARTITIONS, "more of them; records stay where they are")
def more(log):
    name = log.topic(partitions=1)
    log.fill(name, b"a")
    answer = add(log, name, 3)
    log.wait_for_leaders(name, 3)
    return [
        answer,
        wait_described(log, name, ["NONE", 3]),
        log.values(name),
        log.list_offset(name, -1, partition=2),
    ]


@case(PARTITIONS, "the current number, fewer, none or a negative number are INVALID_PARTITIONS")
def not_more(log):
    name = log.topic(partitions=3)
    return [add(log, name, count) for count in (3, 2, 0, -1)]


@case(PARTITIONS, "of an unknown topic are UNKNOWN_TOPIC_OR_PARTITION")
def more_of_unknown(log):
    return add(log, log.fresh("missing"), 3)


@case(PARTITIONS, "manual replicas must match the new partitions, and be on known nodes")
def more_assigned(log):
    name = log.topic(partitions=1)
    return [add(log, name, 3, [[1]]), add(log, name, 3, [[1], [9]]), add(log, name, 3, [[1], [1]])]


@case(PARTITIONS, "validate_only does nothing")
def more_validated(log):
    name = log.topic(partitions=1)
    return [
        add(log, name, 3, validate_only=True),
        add(log, name, 1, validate_only=True),
        described(log, name),
    ]


@case(PARTITIONS, "a topic that appears twice in the request is INVALID_REQUEST")
def more_twice(log):
    name = log.topic(partitions=1)
    one = {"name": name, "count": 3, "assignments": None}
    answer = log.ask(Api.CREATE_PARTITIONS, 3, {"topics": [one, one], "timeout": 10_000})
    return sorted({code(each.error_code) for each in answer.results})


@case(METADATA, "an unknown topic, an invalid name, an unknown id")
def metadata_unknown(log):
    fields = {"topics": [{"topic_id": uuid.UUID(int=80), "name": None}], "allow_auto_topic_creation": False}
    by_id = log.ask(Api.METADATA, 12, fields).topics[0]
    return [
        described(log, log.fresh("missing")),
        described(log, "a b"),
        described(log, ""),
        code(by_id.error_code),
    ]


@case(METADATA, "no list means all topics, an empty list none (but all in version 0)")
def metadata_all(log):
    name = log.topic()

    def has(version, topics):
        fields = {"topics": topics, **({"allow_auto_topic_creation": False} if version > 3 else {})}
        found = [each.name for each in log.ask(Api.METADATA, version, fields).topics]
        return [name in found, bool(found)]

    return [has(9, None), has(9, []), has(1, None), has(0, [])]


@case(METADATA, "a partition's leader, replicas and epoch; internal topics are marked")
def metadata_partition(log):
    name = log.topic(partitions=2)
    wait_described(log, name, ["NONE", 2])
    fields = {"topics": [{"name": name}, {"name": "__consumer_offsets"}], "allow_auto_topic_creation": False}
    found = {each.name: each for each in log.ask(Api.METADATA, 9, fields).topics}
    rows = sorted(
        [
            each.partition_index,
            each.leader_id,
            each.leader_epoch,
            list(each.replica_nodes),
            list(each.isr_nodes),
        ]
        for each in found[name].partitions
    )
    return [rows, found[name].is_internal, found["__consumer_offsets"].is_internal]


@case(METADATA, "a missing topic is created if the request allows it")
def auto_created(log):
    name = log.fresh("made")
    described(log, name, allow_auto_topic_creation=True)
    return wait_described(log, name, ["NONE", 1])


@case(METADATA, "partitions in pages: DescribeTopicPartitions continues at its cursor")
def pages(log):
    name = log.topic(partitions=5)
    wait_described(log, name, ["NONE", 5])
    found, cursor = [], None
    for _ in range(5):
        fields = {"topics": [{"name": name}], "response_partition_limit": 2, "cursor": cursor}
        answer = log.ask(Api.DESCRIBE_TOPIC_PARTITIONS, 0, fields)
        found.append([each.partition_index for each in answer.topics[0].partitions])
        if answer.next_cursor is None:
            break
        cursor = {"topic_name": name, "partition_index": answer.next_cursor.partition_index}
    missing = log.ask(Api.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": "no-such"}, {"name": "a b"}]})
    return [found, [[each.name, code(each.error_code)] for each in missing.topics]]
