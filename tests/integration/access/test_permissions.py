"""What a user may not do is refused, whatever the API; and a change counts at once."""

import contextlib
import time

import confluent_kafka as ck
import pytest
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)

from headrace.client.connect.channel import Channel
from headrace.client.connect.login import Security
from headrace.errors import RetriableError
from headrace.wire import Api

TOPIC_DENIED, GROUP_DENIED, CLUSTER_DENIED, TRANSACTION_DENIED = 29, 30, 31, 53


def code_of(call):
    """The code that a call or its future fails with; 0 when it does not."""
    try:
        outcome = call()
        outcome.result(20) if hasattr(outcome, "result") else outcome
    except ck.KafkaException as error:
        return error.args[0].code()
    return 0


@pytest.fixture
def alice(secured):
    return AdminClient(secured.as_user("alice"))


def produced(properties, topic):
    codes = []
    producer = ck.Producer({**properties, "message.timeout.ms": 60_000})
    producer.produce(topic, b"x", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    assert producer.flush(90) == 0
    return codes[0]


def test_a_user_without_permissions_may_nothing(secured, topic, alice):
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    broker = ConfigResource(ConfigResource.Type.BROKER, "1")
    every_acl = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    found = {
        "create": code_of(lambda: alice.create_topics([NewTopic("new", 1, 1)])["new"]),
        "delete": code_of(lambda: alice.delete_topics([topic])[topic]),
        "partitions": code_of(lambda: alice.create_partitions([NewPartitions(topic, 3)])[topic]),
        "configs": code_of(lambda: alice.describe_configs([resource])[resource]),
        "broker configs": code_of(lambda: alice.describe_configs([broker])[broker]),
        "group": code_of(lambda: alice.describe_consumer_groups(["g"])["g"]),
        "delete group": code_of(lambda: alice.delete_consumer_groups(["g"])["g"]),
        "delete acls": code_of(lambda: alice.delete_acls([every_acl])[every_acl]),
        "produce": produced(secured.as_user("alice"), topic),
        "produce elsewhere": produced(secured.as_user("alice"), "does-not-exist"),
    }
    assert found == {
        "create": TOPIC_DENIED,
        "delete": TOPIC_DENIED,
        "partitions": TOPIC_DENIED,
        "configs": TOPIC_DENIED,
        "broker configs": CLUSTER_DENIED,
        "group": GROUP_DENIED,
        "delete group": GROUP_DENIED,
        "delete acls": CLUSTER_DENIED,
        "produce": TOPIC_DENIED,
        "produce elsewhere": TOPIC_DENIED,
    }
    assert topic not in alice.list_topics(timeout=20).topics
    assert topic in secured.admin.list_topics(timeout=20).topics


def test_altering_needs_its_own_permission(secured, topic, alice):
    entry = ConfigEntry("retention.ms", "1000000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])

    def altered():
        return code_of(lambda: alice.incremental_alter_configs([resource])[resource])

    secured.allow("alice", "READ", "TOPIC", topic)
    assert altered() == TOPIC_DENIED
    secured.allow("alice", "ALTER_CONFIGS", "TOPIC", topic)
    assert altered() == 0


def test_a_transactional_id_needs_permission(secured, topic):
    secured.allow("alice", "ALL", "TOPIC", topic)
    producer = ck.Producer({**secured.as_user("alice"), "transactional.id": topic})
    with pytest.raises(ck.KafkaException) as refused:
        producer.init_transactions(60)
    assert refused.value.args[0].code() == TRANSACTION_DENIED
    secured.allow("alice", "ALL", "TRANSACTIONAL_ID", topic)
    producer = ck.Producer({**secured.as_user("alice"), "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.commit_transaction(60)


def test_a_group_needs_permission(secured, topic):
    secured.allow("bob", "READ", "TOPIC", topic)
    consumer = ck.Consumer({**secured.as_user("bob"), "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    codes, deadline = set(), time.monotonic() + 60
    while GROUP_DENIED not in codes and time.monotonic() < deadline:
        codes |= {message.error().code() for message in consumer.consume(10, 0.5) if message.error()}
    consumer.close()
    assert GROUP_DENIED in codes


def test_a_change_counts_on_open_connections(secured, topic):
    codes = []
    producer = ck.Producer({**secured.as_user("alice"), "message.timeout.ms": 60_000})

    def produce():
        try:
            producer.produce(topic, b"x", on_delivery=lambda error, _: codes.append(error and error.code()))
        except ck.KafkaException as error:  # it remembers a refusal until its next look at the metadata
            producer.poll(0.1)
            return error.args[0].code()
        assert producer.flush(90) == 0
        return codes[-1]

    def comes_to(code):
        deadline = time.monotonic() + 60
        while (found := produce()) != code and time.monotonic() < deadline:
            pass
        return found == code

    secured.allow("alice", "WRITE", "TOPIC", topic)
    assert produce() is None
    secured.allow("alice", "WRITE", "TOPIC", topic, deny=True)
    assert produce() == TOPIC_DENIED
    secured.allow("alice", "WRITE", "TOPIC", topic, deny=True, remove=True)
    assert comes_to(None)
    secured.allow("alice", "WRITE", "TOPIC", topic, remove=True)
    assert produce() == TOPIC_DENIED


def test_reading_stops_when_the_permission_goes(secured, topic):
    secured.allow("bob", "READ", "TOPIC", topic)
    secured.allow("bob", "READ", "GROUP", topic)
    assert produced(secured.as_user("admin"), topic) == 0
    consumer = ck.Consumer({**secured.as_user("bob"), "group.id": topic})
    consumer.assign([ck.TopicPartition(topic, 0, 0)])
    assert consumer.poll(60).value() == b"x"
    secured.allow("bob", "READ", "TOPIC", topic, remove=True)
    codes, deadline = [], time.monotonic() + 60
    while TOPIC_DENIED not in codes and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        codes += [message.error().code()] if message is not None and message.error() else []
    consumer.close()
    assert TOPIC_DENIED in codes


def test_prefixes_and_everybody(secured, topic):
    secured.allow("*", "WRITE", "TOPIC", topic[:-3], prefixed=True)
    assert produced(secured.as_user("bob"), topic) == 0
    secured.allow("bob", "ALL", "TOPIC", topic, deny=True)
    assert produced(secured.as_user("bob"), topic) == TOPIC_DENIED
    assert produced(secured.as_user("alice"), topic) == 0


# --- users ----------------------------------------------------------------------------------------


def upsert(secured, user, password, iterations=4096):
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, iterations)
    change = UserScramCredentialUpsertion(user, info, password.encode())
    return code_of(lambda: secured.admin.alter_user_scram_credentials([change])[user])


def can_log_in(secured, user, password):
    """Whether it is served, or told that the login failed: one of them it must be in the end."""
    errors, deadline = [], time.monotonic() + 60
    client = AdminClient(secured.as_user(user, password, error_cb=errors.append))
    while time.monotonic() < deadline:
        with contextlib.suppress(ck.KafkaException):
            client.list_topics(timeout=0.5)
            return True
        client.poll(0)
        if any(error.code() == ck.KafkaError._AUTHENTICATION for error in errors):
            return False
    raise AssertionError(f"neither served nor refused: {errors}")


def test_users_come_change_their_password_and_go(secured):
    assert upsert(secured, "dora", "first") == 0
    assert can_log_in(secured, "dora", "first")
    described = secured.admin.describe_user_scram_credentials(["dora"])["dora"].result(20)
    assert [(each.mechanism.name, each.iterations) for each in described.scram_credential_infos] == [
        ("SCRAM_SHA_512", 4096)
    ]
    assert upsert(secured, "dora", "second") == 0
    assert can_log_in(secured, "dora", "second")
    assert not can_log_in(secured, "dora", "first")
    gone = UserScramCredentialDeletion("dora", ScramMechanism.SCRAM_SHA_512)
    assert code_of(lambda: secured.admin.alter_user_scram_credentials([gone])["dora"]) == 0
    assert not can_log_in(secured, "dora", "second")


def test_the_connections_of_a_removed_user_end(secured, topic):
    assert upsert(secured, "fritz", "pw") == 0
    secured.allow("fritz", "ALL", "TOPIC", topic)
    security = Security.of(secured.as_user("fritz", "pw"))
    fritz = Channel("127.0.0.1", secured.process.port, client_id="t", timeout_ms=60_000, security=security)
    metadata = {"topics": [{"name": topic}]}
    assert fritz.request(Api.METADATA, 9, metadata).topics[0].error_code == 0
    gone = UserScramCredentialDeletion("fritz", ScramMechanism.SCRAM_SHA_512)
    assert code_of(lambda: secured.admin.alter_user_scram_credentials([gone])["fritz"]) == 0
    with pytest.raises(RetriableError) as ended:
        fritz.request(Api.METADATA, 9, metadata)
    assert "timed out" not in str(ended.value)
    fritz.close()
