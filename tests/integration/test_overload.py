"""Overload policies, as producers and consumers meet them."""

import json
import subprocess
import sys
import time

import pytest
from broker.conftest import Peer, batch_of
from confluent_kafka import Consumer, Producer
from scraping import scrape, value

from headrace.records import decode_batch
from headrace.testing.batches import batches_in
from headrace.testing.broker import running_broker
from headrace.wire import Api

BATCH = bytes(batch_of(b"x" * 2000))
BOUND = 4 * len(BATCH)
NOT_ENOUGH_REPLICAS, POLICY_VIOLATION, OFFSET_OUT_OF_RANGE = 19, 44, 1


@pytest.fixture
def broker(tmp_path):
    with running_broker(tmp_path, metrics_listen="127.0.0.1:0") as broker:
        yield broker


@pytest.fixture
def peer(broker):
    peer = Peer(broker.port)
    yield peer
    peer.close()


def create(peer, topic, policy):
    peer.create(topic, **{"headrace.overload": policy, "headrace.overload.bytes": BOUND})


def commit(peer, topic, offset, group="slow"):
    parts = [{"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1}]
    body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    answer = peer.request(Api.OFFSET_COMMIT, 8, {**body, "topics": [{"name": topic, "partitions": parts}]})
    assert answer.topics[0].partitions[0].error_code == 0


def produce(peer, topic):
    """The partition's answer, and for how long the broker asked to wait."""
    data = [{"name": topic, "partition_data": [{"index": 0, "records": bytearray(BATCH)}]}]
    answer = peer.request(Api.PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": data})
    return answer.responses[0].partition_responses[0], answer.throttle_time


def counted(broker, what, **labels):
    """What a scrape says of one of the counters of overload."""
    return value(scrape(broker), f"headrace_{what}_total", **labels)


def produce_until(peer, topic, wanted, most=100):
    """Produces until an answer is as wanted; how many batches were taken."""
    for taken in range(most):
        part, throttle_ms = produce(peer, topic)
        if wanted(part, throttle_ms):
            return taken
    raise AssertionError("it never came to that")


def events(broker, kind):
    """The events of one kind so far."""
    log = broker.services.topics.partition("__headrace_events", 0)
    data = log.log.read(0, 1 << 20) if log is not None else b""
    records = [record for position, _ in batches_in(data) for record in decode_batch(data, position)]
    return [event for event in (json.loads(record.value) for record in records) if event["kind"] == kind]


def wait_for(what):
    deadline = time.monotonic() + 90
    while not (found := what()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def wait_measured(broker, topic):
    """Waits until the broker knows of a group that reads the topic."""
    wait_for(lambda: broker.services.overload.backlog(broker.services.topics.partition(topic, 0)) is not None)


def test_block_slows_producers_down_then_sends_them_back_until_consumers_catch_up(broker, peer):
    create(peer, "blocking", "block")
    commit(peer, "blocking", 0)
    wait_measured(broker, "blocking")
    waits_ms = []

    def is_slowed_down(part, throttle_ms):
        waits_ms.append(throttle_ms)
        return throttle_ms > 0

    def is_sent_back(part, throttle_ms):
        waits_ms.append(throttle_ms)
        return part.error_code == NOT_ENOUGH_REPLICAS

    produce_until(peer, "blocking", is_slowed_down)
    assert counted(broker, "blocked_batches", topic="blocking") == 0
    peer.request(Api.METADATA, 12, {"topics": []})  # waits for what is left of that: the next does not
    began = time.monotonic()
    _, throttle_ms = produce(peer, "blocking")
    # The next waits at the broker, though this client does not heed what it was told.
    waits_ms += [throttle_ms, produce(peer, "blocking")[1]]
    assert time.monotonic() - began > throttle_ms / 1000 - 0.01
    produce_until(peer, "blocking", is_sent_back)
    held = broker.services.topics.partition("blocking", 0).log
    assert held.size_bytes <= 2 * BOUND + len(BATCH)
    assert counted(broker, "blocked_batches", topic="blocking") == 1
    told_s = counted(broker, "throttle_seconds", reason="overload")
    assert told_s == pytest.approx(sum(waits_ms) / 1000)
    with_room = Peer(broker.port)
    commit(with_room, "blocking", held.high_watermark)
    wait_for(lambda: produce(with_room, "blocking")[0].error_code == 0)
    assert held.start_offset == 0  # nothing was dropped
    with_room.close()


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_blocked_librdkafka_producer_delivers_everything_once_its_consumer_is_there(
    broker, peer, idempotent
):
    create(peer, "patient", "block")
    commit(peer, "patient", 0, group="readers")
    wait_measured(broker, "patient")
    producer = Producer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "linger.ms": 0,
            "batch.size": 3000,
            "enable.idempotence": idempotent,
        }
    )
    failures = []
    for number in range(30):
        producer.produce("patient", b"%04d" % number + b"x" * 2000, callback=lambda e, _: failures.append(e))
    producer.poll(0)
    wait_for(lambda: counted(broker, "blocked_batches", topic="patient"))
    consumer = Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["patient"])
    found = []
    while len(found) < 30:
        producer.poll(0)
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            found.append(int(message.value()[:4]))
            consumer.commit(message, asynchronous=False)
    consumer.close()
    assert producer.flush(30) == 0
    # Only an idempotent producer keeps the order of what it sends again, on Kafka as well.
    assert (found if idempotent else sorted(found)) == list(range(30))
    assert not any(failures)


def test_drop_oldest_moves_the_log_start_up_and_counts_what_went(broker, peer):
    create(peer, "leaky", "drop-oldest")
    for _ in range(20):
        assert produce(peer, "leaky")[0].error_code == 0
    commit(peer, "leaky", 2)  # only now is there somebody who is behind
    log = broker.services.topics.partition("leaky", 0).log
    wait_for(lambda: log.start_offset == 16)  # four batches are as much as the bound allows
    assert peer.fetch("leaky", 2).error_code == OFFSET_OUT_OF_RANGE
    assert peer.fetch("leaky", 16).error_code == 0
    assert wait_for(lambda: counted(broker, "dropped_records", topic="leaky", which="oldest")) == 14
    assert sum(event["records"] for event in wait_for(lambda: events(broker, "dropped-oldest"))) == 14


def test_drop_newest_refuses_what_exceeds_the_bound_and_counts_it(broker, peer):
    create(peer, "full", "drop-newest")
    commit(peer, "full", 0)
    wait_measured(broker, "full")
    taken = produce_until(peer, "full", lambda part, _: part.error_code == POLICY_VIOLATION)
    assert taken == 5  # the bound and the batch that crossed it
    refused = 1 + sum(produce(peer, "full")[0].error_code == POLICY_VIOLATION for _ in range(3))
    assert refused == 4
    assert broker.services.topics.partition("full", 0).log.high_watermark == taken
    assert counted(broker, "dropped_records", topic="full", which="newest") == 4
    first = wait_for(lambda: events(broker, "dropped-newest"))[0]
    assert first == {**first, "topic": "full", "partition": 0, "group": None}
    assert first["records"] >= 1


def test_without_an_active_group_nothing_is_dropped_or_blocked(broker, peer):
    for policy in ("block", "drop-oldest", "drop-newest"):
        create(peer, f"alone-{policy}", policy)
    create(peer, "marker", "drop-oldest")
    commit(peer, "marker", 0)
    for _ in range(10):
        for policy in ("block", "drop-oldest", "drop-newest"):
            part, throttle_ms = produce(peer, f"alone-{policy}")
            assert (part.error_code, throttle_ms) == (0, 0)
        produce(peer, "marker")
    marker = broker.services.topics.partition("marker", 0)
    wait_for(lambda: marker.log.start_offset > 0)  # so the others were looked at
    for policy in ("block", "drop-oldest", "drop-newest"):
        assert broker.services.topics.partition(f"alone-{policy}", 0).log.start_offset == 0


def test_a_topic_buffers_unless_told_otherwise(broker, peer):
    peer.create("buffer", **{"headrace.overload.bytes": BOUND})
    create(peer, "marker", "drop-oldest")
    for topic in ("buffer", "marker"):
        commit(peer, topic, 0)
        for _ in range(10):
            part, throttle_ms = produce(peer, topic)
            assert (part.error_code, throttle_ms) == (0, 0)
    wait_for(lambda: broker.services.topics.partition("marker", 0).log.start_offset > 0)
    assert broker.services.topics.partition("buffer", 0).log.start_offset == 0


def test_what_is_not_yet_written_of_the_events_is_written_at_the_end(tmp_path):
    with running_broker(tmp_path) as broker:
        peer = Peer(broker.port)
        create(peer, "full", "drop-newest")
        commit(peer, "full", 0)
        wait_measured(broker, "full")
        produce_until(peer, "full", lambda part, _: part.error_code)
        wait_for(lambda: events(broker, "dropped-newest"))
        for _ in range(5):
            produce(peer, "full")  # within the interval: added up, not written yet
        peer.close()
    with running_broker(tmp_path) as broker:
        assert sum(event["records"] for event in events(broker, "dropped-newest")) == 6


def test_topics_describe_tells_of_drops(broker, peer):
    create(peer, "told", "drop-newest")
    commit(peer, "told", 0)
    wait_measured(broker, "told")
    produce_until(peer, "told", lambda part, _: part.error_code)
    wait_for(lambda: events(broker, "dropped-newest"))
    command = [
        sys.executable,
        "-m",
        "headrace",
        "topics",
        "describe",
        "told",
        "-b",
        f"127.0.0.1:{broker.port}",
    ]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert "warning: 1 records were dropped, the newest (headrace.overload=drop-newest)" in text
    found = subprocess.run(
        [*command, "--json"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert json.loads(found)["dropped_records"] == {"oldest": 0, "newest": 1}
