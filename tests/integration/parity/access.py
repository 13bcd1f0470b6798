"""Cases of what one may not do: which code, and nothing told of what may not be seen."""

from functools import partial

from headrace.wire import Api
from parity.case import case as any_case
from parity.login import answered
from parity.stage import batch_of, code, wait_until
from parity.topics import create, wanted

DENIED, ALLOWED = "without permission", "permissions"
case = partial(any_case, secured=True)

ANY, TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 1, 2, 3, 4, 5
READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 3, 4, 5, 6, 7, 8
LITERAL, PREFIXED = 3, 4
DENY, ALLOW = 2, 3


def acl(kind, name, operation, *, pattern=LITERAL, permission=ALLOW, principal="User:alice"):
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": principal,
        "host": "*",
        "operation": operation,
        "permission_type": permission,
    }


def allow(log, *entries):
    """Adds them, and waits until Kafka's authorizer knows."""
    answer = log.ask(Api.CREATE_ACLS, 3, {"creations": list(entries)})
    assert all(each.error_code == 0 for each in answer.results), answer


def wait_for(ask, expected):
    """Asks until the answer is the expected one: a permission counts a moment later in Kafka."""
    return wait_until(ask, lambda found: found == expected)


class Alice:
    """Somebody who may do nothing yet."""

    def __init__(self, log):
        self.peer = log.connect("alice")

    def ask(self, api, version, fields, read=lambda answer: answer.error_code):
        return answered(self.peer, api, version, fields, read)

    def produce(self, topic):
        data = [{"name": topic, "partition_data": [{"index": 0, "records": batch_of()}]}]
        fields = {"acks": -1, "timeout": 1000, "topic_data": data}
        return self.ask(
            Api.PRODUCE, 9, fields, lambda answer: answer.responses[0].partition_responses[0].error_code
        )

    def fetch(self, topic):
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}
        fields = {"max_bytes": 1000, "topics": [{"topic": topic, "partitions": [part]}]}
        return self.ask(Api.FETCH, 11, fields, lambda answer: answer.responses[0].partitions[0].error_code)

    def list_offsets(self, topic):
        part = {"partition_index": 0, "timestamp": -1}
        fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": [part]}]}
        return self.ask(Api.LIST_OFFSETS, 7, fields, lambda answer: answer.topics[0].partitions[0].error_code)

    def metadata(self, topic, *, auto_create=False):
        fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": auto_create}
        return self.ask(Api.METADATA, 9, fields, lambda answer: answer.topics[0].error_code)

    def create(self, topic):
        fields = {"topics": [wanted(topic)], "timeout": 5000}
        return self.ask(Api.CREATE_TOPICS, 7, fields, lambda answer: answer.topics[0].error_code)

    def delete(self, topic):
        fields = {"topics": [{"name": topic}], "timeout": 5000}
        return self.ask(Api.DELETE_TOPICS, 6, fields, lambda answer: answer.responses[0].error_code)

    def commit(self, group, topic):
        part = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
        fields = {"group_id": group, "topics": [{"name": topic, "partitions": [part]}]}
        return self.ask(
            Api.OFFSET_COMMIT, 9, fields, lambda answer: answer.topics[0].partitions[0].error_code
        )


@case(DENIED, "topics: TOPIC_AUTHORIZATION_FAILED, whether they exist or not")
def topics(log):
    alice = Alice(log)
    calls = (alice.produce, alice.fetch, alice.list_offsets, alice.metadata, alice.delete)
    return [[call(topic) for call in calls] for topic in (log.topic(), log.fresh("missing"))]


@case(DENIED, "creating topics")
def creating(log):
    alice = Alice(log)
    return [alice.create(log.fresh()), alice.metadata(log.fresh("missing"), auto_create=True)]


@case(DENIED, "topics without describe permission are not listed")
def not_listed(log):
    topic = log.topic()
    fields = {"topics": None, "allow_auto_topic_creation": False}
    found = Alice(log).peer.request(Api.METADATA, 9, fields).topics
    return [topic in {each.name for each in found}, len(found)]


@case(DENIED, "partitions, records, leader epochs and settings of a topic")
def topic_details(log):
    alice, topic = Alice(log), log.topic()
    partitions = {"topics": [{"name": topic, "count": 5, "assignments": None}], "timeout": 5000}
    records = {
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 0}]}],
        "timeout": 5000,
    }
    epochs = {"topics": [{"topic": topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]}
    resource = {"resource_type": TOPIC, "resource_name": topic}
    change = {**resource, "configs": [{"name": "retention.ms", "config_operation": 0, "value": "1"}]}
    producers = {"topics": [{"name": topic, "partition_indexes": [0]}]}
    return [
        alice.ask(Api.CREATE_PARTITIONS, 3, partitions, lambda answer: answer.results[0].error_code),
        alice.ask(Api.DELETE_RECORDS, 2, records, lambda answer: answer.topics[0].partitions[0].error_code),
        alice.ask(
            Api.OFFSET_FOR_LEADER_EPOCH, 4, epochs, lambda answer: answer.topics[0].partitions[0].error_code
        ),
        alice.ask(
            Api.DESCRIBE_CONFIGS,
            4,
            {"resources": [{**resource, "configuration_keys": None}]},
            lambda answer: answer.results[0].error_code,
        ),
        alice.ask(
            Api.INCREMENTAL_ALTER_CONFIGS,
            1,
            {"resources": [change]},
            lambda answer: answer.responses[0].error_code,
        ),
        alice.ask(
            Api.DESCRIBE_PRODUCERS, 0, producers, lambda answer: answer.topics[0].partitions[0].error_code
        ),
    ]


@case(DENIED, "groups: GROUP_AUTHORIZATION_FAILED")
def groups(log):
    alice, group, topic = Alice(log), log.fresh("group"), log.topic()
    join = {
        "group_id": group,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
    }
    join["protocols"] = [{"name": "range", "metadata": b""}]
    beat = {"group_id": group, "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000}
    beat |= {"subscribed_topic_names": [topic], "topic_partitions": []}
    fetch = {"groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}]}
    return [
        alice.ask(
            Api.FIND_COORDINATOR,
            4,
            {"key_type": 0, "coordinator_keys": [group]},
            lambda answer: answer.coordinators[0].error_code,
        ),
        alice.ask(Api.JOIN_GROUP, 9, join),
        alice.ask(
            Api.SYNC_GROUP, 5, {"group_id": group, "protocol_type": "consumer", "protocol_name": "range"}
        ),
        alice.ask(Api.HEARTBEAT, 4, {"group_id": group}),
        alice.ask(Api.LEAVE_GROUP, 5, {"group_id": group}),
        alice.commit(group, topic),
        alice.ask(Api.OFFSET_FETCH, 9, fetch, lambda answer: answer.groups[0].error_code),
        alice.ask(Api.DESCRIBE_GROUPS, 6, {"groups": [group]}, lambda answer: answer.groups[0].error_code),
        alice.ask(
            Api.DELETE_GROUPS, 2, {"groups_names": [group]}, lambda answer: answer.results[0].error_code
        ),
        alice.ask(Api.OFFSET_DELETE, 0, {"group_id": group}),
        alice.ask(Api.CONSUMER_GROUP_HEARTBEAT, 1, beat),
        alice.ask(
            Api.CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group]}, lambda answer: answer.groups[0].error_code
        ),
    ]


@case(DENIED, "transactional ids: TRANSACTIONAL_ID_AUTHORIZATION_FAILED")
def transactional_ids(log):
    alice, name, topic = Alice(log), log.fresh("txn"), log.topic()
    claim = {"transactional_id": name, "producer_id": 1, "producer_epoch": 0}
    add = {f"v3_and_below_{key}": value for key, value in claim.items()}
    add["v3_and_below_topics"] = [{"name": topic, "partitions": [0]}]
    part = {"partition_index": 0, "committed_offset": 5}
    offsets = {**claim, "group_id": "g", "topics": [{"name": topic, "partitions": [part]}]}
    return [
        alice.ask(
            Api.FIND_COORDINATOR,
            4,
            {"key_type": 1, "coordinator_keys": [name]},
            lambda answer: answer.coordinators[0].error_code,
        ),
        alice.ask(Api.INIT_PRODUCER_ID, 5, {"transactional_id": name, "transaction_timeout": 1000}),
        alice.ask(
            Api.ADD_PARTITIONS_TO_TXN,
            3,
            add,
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        ),
        alice.ask(Api.ADD_OFFSETS_TO_TXN, 3, {**claim, "group_id": "g"}),
        alice.ask(
            Api.TXN_OFFSET_COMMIT, 3, offsets, lambda answer: answer.topics[0].partitions[0].error_code
        ),
        alice.ask(Api.END_TXN, 3, {**claim, "committed": True}),
        alice.ask(
            Api.DESCRIBE_TRANSACTIONS,
            0,
            {"transactional_ids": [name]},
            lambda answer: answer.transaction_states[0].error_code,
        ),
    ]


@case(DENIED, "a producer id without any permission to write is CLUSTER_AUTHORIZATION_FAILED")
def producer_id(log):
    return Alice(log).ask(Api.INIT_PRODUCER_ID, 5, {})


@case(DENIED, "permissions, users and quotas: CLUSTER_AUTHORIZATION_FAILED")
def cluster(log):
    alice = Alice(log)
    every = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": 1, "permission_type": 1}
    creation = acl(TOPIC, "x", READ)
    upsert = {
        "name": "bob",
        "mechanism": 1,
        "iterations": 4096,
        "salt": b"salt",
        "salted_password": b"secret",
    }
    return [
        alice.ask(Api.DESCRIBE_ACLS, 3, every),
        alice.ask(Api.CREATE_ACLS, 3, {"creations": [creation]}, lambda answer: answer.results[0].error_code),
        alice.ask(
            Api.DELETE_ACLS, 3, {"filters": [every]}, lambda answer: answer.filter_results[0].error_code
        ),
        alice.ask(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": [{"name": "alice"}]}),
        alice.ask(
            Api.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            {"upsertions": [upsert]},
            lambda answer: answer.results[0].error_code,
        ),
        alice.ask(Api.DESCRIBE_CLIENT_QUOTAS, 1, {"components": []}),
        alice.ask(Api.DESCRIBE_LOG_DIRS, 4, {"topics": None}),
    ]


@case(DENIED, "lists of groups and transactions are empty")
def empty_lists(log):
    alice = Alice(log)
    groups = alice.peer.request(Api.LIST_GROUPS, 5, {})
    found = alice.peer.request(Api.LIST_TRANSACTIONS, 1, {})
    return [
        [code(groups.error_code), len(groups.groups)],
        [code(found.error_code), len(found.transaction_states)],
    ]


@case(ALLOWED, "read implies describe, and neither write nor delete")
def to_read(log):
    topic, alice = log.topic(), Alice(log)
    allow(log, acl(TOPIC, topic, READ))
    wait_for(lambda: alice.fetch(topic), "NONE")
    return [
        alice.fetch(topic),
        alice.metadata(topic),
        alice.list_offsets(topic),
        alice.produce(topic),
        alice.delete(topic),
    ]


@case(ALLOWED, "write implies describe and a producer id, and not read")
def to_write(log):
    topic, alice = log.topic(), Alice(log)
    allow(log, acl(TOPIC, topic, WRITE))
    wait_for(lambda: alice.produce(topic), "NONE")
    return [
        alice.produce(topic),
        alice.metadata(topic),
        alice.fetch(topic),
        alice.ask(Api.INIT_PRODUCER_ID, 5, {}),
    ]


@case(ALLOWED, "a prefix applies to all names that begin with it, and a denial overrides it")
def patterns(log):
    prefix, alice = log.fresh("prefixed"), Alice(log)
    topic, other = f"{prefix}-x", log.topic()
    create(log, wanted(topic))
    log.wait_for_leaders(topic, 1)
    allow(log, acl(TOPIC, prefix, READ, pattern=PREFIXED))
    first = wait_for(lambda: alice.fetch(topic), "NONE")
    allow(log, acl(TOPIC, topic, READ, permission=DENY))
    second = wait_for(lambda: alice.fetch(topic), "TOPIC_AUTHORIZATION_FAILED")
    return [first, second, alice.produce(other)]


@case(ALLOWED, "committing needs the group and the topic")
def to_commit(log):
    group, topic, alice = log.fresh("group"), log.topic(), Alice(log)
    allow(log, acl(GROUP, group, READ))
    first = wait_for(lambda: alice.commit(group, topic), "TOPIC_AUTHORIZATION_FAILED")
    allow(log, acl(TOPIC, topic, READ))
    return [first, wait_for(lambda: alice.commit(group, topic), "NONE")]


@case(ALLOWED, "creating topics: by name, and the response without permission to describe their settings")
def to_create(log):
    name, alice = log.fresh("hers"), Alice(log)
    allow(log, acl(TOPIC, name, CREATE))
    return [
        wait_for(lambda: alice.create(name), "NONE"),
        alice.create(log.fresh("other")),
        alice.delete(name),
    ]


@case(ALLOWED, "entries are listed as they were added, and removed by filter")
def listed(log):
    topic = log.topic()
    allow(log, acl(TOPIC, topic, READ), acl(TOPIC, topic, WRITE, permission=DENY))
    about = {"resource_type_filter": TOPIC, "resource_name_filter": topic, "pattern_type_filter": ANY}
    about |= {"operation": 1, "permission_type": 1}

    def ask():
        answer = log.ask(Api.DESCRIBE_ACLS, 3, about)
        return sorted(
            [each.principal, each.host, each.operation, each.permission_type]
            for resource in answer.resources
            for each in resource.acls
        )

    before = ask()
    removed = log.ask(Api.DELETE_ACLS, 3, {"filters": [{**about, "operation": READ}]}).filter_results[0]
    after = wait_for(ask, before[1:])
    return [before, [code(removed.error_code), len(removed.matching_acls)], after]


def refused(log, *entries):
    return [
        code(log.ask(Api.CREATE_ACLS, 3, {"creations": [each]}).results[0].error_code) for each in entries
    ]


@case(ALLOWED, "an entry without a name, without a user, or for another cluster is INVALID_REQUEST")
def impossible(log):
    entries = acl(TOPIC, "", READ), acl(TOPIC, "x", READ, principal="alice"), acl(CLUSTER, "other", ALTER)
    return refused(log, *entries)


@case(
    ALLOWED,
    "an entry of kind any, for operation any, or for an operation that its kind does not have",
    differs="Headrace answers INVALID_REQUEST to all three; Kafka answers UNKNOWN_SERVER_ERROR to the first"
    " two and stores the third, which can never take effect",
)
def meaningless(log):
    return refused(log, acl(ANY, "x", READ), acl(TOPIC, "x", 1), acl(GROUP, "g", WRITE))
