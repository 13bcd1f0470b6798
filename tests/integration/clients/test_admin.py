"""What an operator does: topics, configurations, partitions, groups."""

from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from clients.driver import Driver, DriverError, Membership, Message
from clients.pool import fresh
from clients.waiting import wait_until


def refused_with(call: Callable[[], object]) -> int:
    with pytest.raises(DriverError) as refused:
        call()
    return refused.value.code


def accepted(client: Driver, topic: str, message: Message) -> bool:
    """Whether it was sent; a producer may not yet have heard of a new partition."""
    try:
        client.produce(topic, [message])
    except DriverError:
        return False
    return True


def test_a_created_topic_is_listed_described_and_gone_after_deletion(client: Driver):
    topic = fresh("topic")
    client.create_topic(topic, 3)
    assert topic in client.topics()
    assert client.partition_count(topic) == 3
    client.delete_topic(topic)
    wait_until(lambda: topic not in client.topics())
    assert refused_with(lambda: client.partition_count(topic)) == ErrorCode.unknown_topic_or_partition


def test_a_topic_created_again_after_deletion_is_empty(client: Driver):
    topic = fresh("topic")
    client.create_topic(topic)
    client.produce(topic, [Message(value=b"old", partition=0)])
    client.delete_topic(topic)
    wait_until(lambda: topic not in client.topics())
    client.create_topic(topic)
    wait_until(lambda: topic in client.topics())
    assert client.offset(topic, 0, "latest").offset == 0


def test_a_second_topic_of_the_same_name_is_refused(client: Driver, new_topic: Callable[..., str]):
    topic = new_topic()
    assert refused_with(lambda: client.create_topic(topic)) == ErrorCode.topic_already_exists


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250])
def test_names_that_no_topic_may_have_are_refused(client: Driver, name: str):
    if client.name == "librdkafka" and name == "":
        pytest.skip("librdkafka refuses an empty name itself")
    assert refused_with(lambda: client.create_topic(name)) == ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("partitions", [0, -3])
def test_a_topic_needs_partitions(client: Driver, partitions: int):
    if client.name in ("java", "librdkafka"):
        pytest.skip("this client refuses the count itself")
    assert refused_with(lambda: client.create_topic(fresh("t"), partitions)) == ErrorCode.invalid_partitions


def test_a_configuration_of_the_wrong_type_is_refused(client: Driver):
    wrong = {"retention.ms": "soon"}
    assert refused_with(lambda: client.create_topic(fresh("t"), 1, wrong)) == ErrorCode.invalid_config


def test_configurations_given_at_creation_are_described_beside_the_defaults(client: Driver):
    topic = fresh("topic")
    client.create_topic(topic, 1, {"retention.ms": "123456", "cleanup.policy": "compact"})
    config = client.config(topic)
    assert (config["retention.ms"], config["cleanup.policy"]) == ("123456", "compact")
    assert config["max.message.bytes"] == "1048588"


def test_an_altered_configuration_leaves_the_others_alone(client: Driver, new_topic: Callable[..., str]):
    topic = new_topic(retention_ms=1000000, segment_bytes=1048576)
    client.alter_config(topic, {"retention.ms": "2000000"})
    wait_until(lambda: client.config(topic)["retention.ms"] == "2000000")
    assert client.config(topic)["segment.bytes"] == "1048576"


def test_an_altered_limit_takes_effect_at_once(client: Driver, new_topic: Callable[..., str]):
    topic = new_topic()
    client.alter_config(topic, {"max.message.bytes": "1000"})
    wait_until(lambda: client.config(topic)["max.message.bytes"] == "1000")
    too_large = Message(value=b"x" * 2000, partition=0)
    assert refused_with(lambda: client.produce(topic, [too_large])) == ErrorCode.message_too_large


def test_altering_with_a_wrong_value_is_refused_and_changes_nothing(
    client: Driver, new_topic: Callable[..., str]
):
    topic = new_topic(retention_ms=1000000)
    with pytest.raises(DriverError):
        client.alter_config(topic, {"retention.ms": "soon"})
    assert client.config(topic)["retention.ms"] == "1000000"


def test_added_partitions_take_records_and_the_old_ones_keep_theirs(
    client: Driver, new_topic: Callable[..., str]
):
    topic = new_topic(1)
    client.produce(topic, [Message(value=b"old", partition=0)])
    client.create_partitions(topic, 3)
    wait_until(lambda: client.partition_count(topic) == 3)
    wait_until(lambda: accepted(client, topic, Message(value=b"new", partition=2)))
    found = client.read(topic, {0: 0, 1: 0, 2: 0}, 2)
    assert sorted((record.partition, record.value) for record in found) == [(0, b"old"), (2, b"new")]


def test_the_number_of_partitions_never_shrinks(client: Driver, new_topic: Callable[..., str]):
    topic = new_topic(3)
    assert refused_with(lambda: client.create_partitions(topic, 2)) == ErrorCode.invalid_partitions
    assert client.partition_count(topic) == 3


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda client, topic: client.delete_topic(topic), id="delete"),
        pytest.param(lambda client, topic: client.partition_count(topic), id="describe"),
        pytest.param(lambda client, topic: client.config(topic), id="configurations"),
        pytest.param(lambda client, topic: client.create_partitions(topic, 3), id="partitions"),
    ],
)
def test_an_unknown_topic_is_called_unknown(client: Driver, call: Callable[[Driver, str], object]):
    assert refused_with(lambda: call(client, fresh("missing"))) == ErrorCode.unknown_topic_or_partition


def test_asking_about_an_unknown_topic_does_not_create_it(client: Driver):
    topic = fresh("missing")
    with pytest.raises(DriverError):
        client.partition_count(topic)
    assert topic not in client.topics()


def test_a_group_is_listed_described_and_deleted_once_empty(
    client: Driver, new_topic: Callable[..., str], group: str
):
    topic = new_topic(2)
    handle = client.join(Membership(group=group, topics=[topic]))
    both = {(topic, 0), (topic, 1)}
    wait_until(lambda: client.member(handle).assigned == both, about=lambda: client.member(handle))
    assert group in client.groups()
    described = client.describe_group(group)
    assert (described.state, described.members, described.assigned) == ("stable", 1, both)
    client.leave(handle)
    wait_until(lambda: client.describe_group(group).state == "empty")
    client.delete_group(group)
    assert group not in client.groups()


def test_a_group_with_members_cannot_be_deleted(client: Driver, new_topic: Callable[..., str], group: str):
    topic = new_topic()
    handle = client.join(Membership(group=group, topics=[topic]))
    try:
        wait_until(lambda: client.member(handle).assigned)
        assert refused_with(lambda: client.delete_group(group)) == ErrorCode.non_empty_group
    finally:
        client.leave(handle)


def test_an_unknown_group_cannot_be_deleted(client: Driver):
    assert refused_with(lambda: client.delete_group(fresh("missing"))) == ErrorCode.group_id_not_found


def test_offsets_of_an_empty_group_can_be_set(client: Driver, new_topic: Callable[..., str], group: str):
    topic = new_topic(2)
    client.alter_offsets(group, topic, {0: 5, 1: 7})
    assert client.committed(group, topic) == {0: 5, 1: 7}
    client.alter_offsets(group, topic, {1: 3})
    assert client.committed(group, topic) == {0: 5, 1: 3}


def test_offsets_of_a_group_with_members_cannot_be_set_from_outside(
    client: Driver, new_topic: Callable[..., str], group: str
):
    topic = new_topic()
    handle = client.join(Membership(group=group, topics=[topic]))
    try:
        wait_until(lambda: client.member(handle).assigned)
        with pytest.raises(DriverError):
            client.alter_offsets(group, topic, {0: 5})
        assert client.committed(group, topic) == {}
    finally:
        client.leave(handle)
