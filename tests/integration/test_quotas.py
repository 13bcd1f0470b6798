"""Quotas by client id, as clients meet them."""

import time

import pytest
from broker.conftest import Peer, batch_of
from confluent_kafka import Producer
from scraping import scrape, value

from headrace.testing.broker import running_broker
from headrace.wire import Api

BATCH = bytes(batch_of(b"x" * 10_000))
LARGE = bytes(batch_of(b"x" * 60_000))  # seconds beyond a quota, also after a pause of the whole machine
INVALID_REQUEST = 42


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path, metrics_listen="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def peer(broker):
    peer = Peer(broker.port)  # its client id is "peer"
    yield peer
    peer.close()


def alter(peer, name, key, value=0.0, remove=False, kind="client-id", validate_only=False):
    entry = {
        "entity": [{"entity_type": kind, "entity_name": name}],
        "ops": [{"key": key, "value": value, "remove": remove}],
    }
    body = {"entries": [entry], "validate_only": validate_only}
    return peer.request(Api.ALTER_CLIENT_QUOTAS, 1, body).entries[0].error_code


def described(peer, *components, strict=False):
    found = [dict(zip(("entity_type", "match_type", "match"), each, strict=True)) for each in components]
    answer = peer.request(Api.DESCRIBE_CLIENT_QUOTAS, 1, {"components": found, "strict": strict})
    if answer.error_code:
        return answer.error_code
    return {
        each.entity[0].entity_name: {value.key: value.value for value in each.values}
        for each in answer.entries
    }


def produce(peer, batch=BATCH):
    data = [{"name": "topic", "partition_data": [{"index": 0, "records": bytearray(batch)}]}]
    return peer.request(Api.PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": data})


def fetch(peer):
    part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    fields = {"max_wait": 0, "min_bytes": 1, "topics": [{"topic": "topic", "partitions": [part]}]}
    return peer.request(Api.FETCH, 11, fields)


def throttled_s(broker, reason):
    return value(scrape(broker), "headrace_throttle_seconds_total", reason=reason)


def test_a_producer_over_its_quota_is_told_to_wait_and_made_to(broker, peer):
    peer.create("topic")
    assert alter(peer, "peer", "producer_byte_rate", 21_000.0) == 0
    answers = [produce(peer), produce(peer)]
    began = time.monotonic()  # the broker counts from when it has read the request, not from its answer
    answers.append(produce(peer, LARGE))
    assert [answer.throttle_time > 0 for answer in answers] == [False, False, True]
    assert all(answer.responses[0].partition_responses[0].error_code == 0 for answer in answers)
    waited = answers[-1].throttle_time / 1000
    assert 0.3 < waited < 3
    assert throttled_s(broker, "producer_byte_rate") == pytest.approx(waited)
    produce(peer)  # at once, though told to wait
    assert time.monotonic() - began > waited - 0.05


def test_a_consumer_over_its_quota_is_told_to_wait_and_made_to(broker, peer):
    peer.create("topic")
    for _ in range(3):
        produce(peer)
    assert alter(peer, None, "consumer_byte_rate", 20_000.0) == 0  # the default of all client ids
    began = time.monotonic()
    answer = fetch(peer)
    assert 0.4 < answer.throttle_time / 1000 < 1
    assert len(answer.responses[0].partitions[0].records) == 3 * len(BATCH)  # served nevertheless
    assert throttled_s(broker, "consumer_byte_rate") == pytest.approx(answer.throttle_time / 1000)
    peer.request(Api.METADATA, 12, {"topics": []})
    assert time.monotonic() - began > answer.throttle_time / 1000 - 0.05


def test_another_client_id_is_not_held_up(broker, peer):
    peer.create("topic")
    alter(peer, "somebody else", "producer_byte_rate", 1.0)
    assert [produce(peer).throttle_time for _ in range(5)] == [0] * 5


def test_the_settings_hold_where_no_quota_is_set(tmp_path):
    with running_broker(tmp_path, quota_producer_bytes_per_s=15_000) as broker:
        peer = Peer(broker.port)
        peer.create("topic")
        assert [produce(peer, batch).throttle_time > 0 for batch in (BATCH, LARGE)] == [False, True]
        assert alter(peer, "peer", "producer_byte_rate", 1e9) == 0
        assert produce(peer).throttle_time == 0
        peer.close()


def test_quotas_are_described_removed_and_outlive_a_restart(tmp_path):
    with running_broker(tmp_path) as broker:
        peer = Peer(broker.port)
        for name, rate in (("a", 1000.0), ("b", 2000.0), (None, 3000.0)):
            assert alter(peer, name, "producer_byte_rate", rate) == 0
        assert alter(peer, "c", "producer_byte_rate", 5.0, validate_only=True) == 0
        assert alter(peer, "b", "producer_byte_rate", remove=True) == 0
        peer.close()
    with running_broker(tmp_path) as broker:
        peer = Peer(broker.port)
        everything = {"a": {"producer_byte_rate": 1000.0}, None: {"producer_byte_rate": 3000.0}}
        assert described(peer) == described(peer, ("client-id", 2, None)) == everything
        assert described(peer, ("client-id", 0, "a")) == {"a": everything["a"]}
        assert described(peer, ("client-id", 1, None)) == {None: everything[None]}
        assert described(peer, ("user", 2, None)) == described(peer, strict=True) == {}
        assert described(peer, ("moon", 2, None)) == INVALID_REQUEST
        peer.close()


def test_what_has_no_quota_here_is_refused(peer):
    assert alter(peer, "alice", "producer_byte_rate", 1.0, kind="user") == INVALID_REQUEST
    assert alter(peer, "a", "request_percentage", 1.0) == INVALID_REQUEST
    assert alter(peer, "a", "producer_byte_rate", -1.0) == INVALID_REQUEST


def test_librdkafka_hears_of_the_throttling_and_keeps_to_the_rate(broker, peer):
    peer.create("topic")
    assert alter(peer, "loader", "producer_byte_rate", 100_000.0) == 0
    heard = []
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "client.id": "loader",
            "batch.size": 20_000,
            "throttle_cb": heard.append,
        }
    )
    began = time.monotonic()
    for _ in range(3):  # each more than a second's worth, however long ago the one before it was
        producer.produce("topic", b"x" * 200_000)
    assert producer.flush(60) == 0
    assert time.monotonic() - began > 1  # 600 kB at 100 kB/s, of which a second's worth and the last are free
    assert any(event.throttle_time > 0 for event in heard)
