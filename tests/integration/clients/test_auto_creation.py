"""Topics come into being when a client that allows it asks for one that is missing."""

import pytest

from clients.driver import Driver, DriverError, Membership, Message
from clients.pool import fresh
from clients.waiting import wait_until


def test_producing_to_a_missing_topic_creates_it(client: Driver):
    topic = fresh("auto")
    (place,) = client.produce(topic, [Message(value=b"first")])
    (record,) = client.read(topic, {place.partition: place.offset}, 1)
    assert record.value == b"first"


def test_a_member_that_allows_it_creates_the_topic_it_subscribes_to(client: Driver, group: str):
    topic = fresh("auto")
    handle = client.join(Membership(group=group, topics=[topic], allow_auto_create=True))
    try:
        wait_until(lambda: topic in client.topics())
        wait_until(
            lambda: client.member(handle).assigned == {(topic, 0)}, about=lambda: client.member(handle)
        )
    finally:
        client.leave(handle)


def test_a_member_that_forbids_it_creates_nothing(client: Driver, group: str):
    topic = fresh("missing")
    handle = client.join(Membership(group=group, topics=[topic], allow_auto_create=False))
    try:
        # By the time that it joins, or complains, it has asked for the topic's metadata.
        wait_until(lambda: group in client.groups() or client.member(handle).error)
        assert topic not in client.topics()
        assert client.member(handle).assigned == frozenset()
    finally:
        client.leave(handle)


def test_a_name_that_no_topic_may_have_is_not_created(client: Driver):
    if client.name == "aiokafka":
        pytest.skip("aiokafka asks again and again until its time-out")
    with pytest.raises(DriverError):
        client.produce("not/a/topic", [Message(value=b"v")])
    assert "not/a/topic" not in client.topics()
