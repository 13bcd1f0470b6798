"""`kill -9` while records are rejected and their dead letters written: each gets there, and once."""

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from queue_member import REJECT, QueueMember

from headrace.client import Connection
from headrace.client.connect.channel import Channel
from headrace.client.queues import describe_queue
from headrace.errors import RetriableError
from headrace.testing.broker import BrokerProcess
from headrace.wire import Api

QUEUE, PATIENCE_S = "doomed", 120.0
LEASE_MS = 10_000  # enough to acknowledge thirty records one by one on a slow machine
RECORDS_EACH = 30
pytestmark = pytest.mark.xdist_group("crash")


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("HEADRACE_CRASH_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADRACE_CRASH_SEED={chosen}")
    return chosen


def topic_id(broker: BrokerProcess) -> object:
    channel = Channel("127.0.0.1", broker.port, client_id="test", timeout_ms=20_000)
    answer = channel.request(Api.METADATA, 12, {"topics": [{"topic_id": None, "name": QUEUE}]})
    channel.close()
    return answer.topics[0].topic_id


def produce(broker: BrokerProcess, first: int) -> None:
    # Idempotent, because a record's value is to be its offset.
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "metadata.recovery.strategy": "none",
            "enable.idempotence": True,
        }
    )
    for number in range(first, first + RECORDS_EACH):
        producer.produce(QUEUE, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def reject_and_die(broker: BrokerProcess, chance: random.Random) -> None:
    """Rejects what there is, record by record, until the broker is killed in the midst of it."""
    member = QueueMember(broker.port, QUEUE, f"member-{chance.random()}", topic_id(broker))
    assert member.beat(QUEUE).error_code == 0
    member.fetch(wait_ms=10_000)
    last = chance.randrange(len(member.got))
    for number, (_, offset, _, _) in enumerate(member.got):
        assert member.acknowledge((offset, offset, REJECT)) == 0
        if number == last:
            time.sleep(chance.choice([0, 0.001, 0.004, 0.01]))  # a burial takes a few milliseconds
            broker.kill()
            break
    member.close()


def finish(broker: BrokerProcess) -> None:
    """Rejects whatever is left."""
    member = QueueMember(broker.port, QUEUE, "last", topic_id(broker))
    assert member.beat(QUEUE).error_code == 0
    deadline = time.monotonic() + PATIENCE_S
    while describe_queue(Connection(bootstrap_servers=broker.bootstrap), QUEUE)["partitions"][0]["left"]:
        assert time.monotonic() < deadline, "not finished in time"
        assert member.beat().error_code == 0
        member.fetch(wait_ms=500)
        for _, offset, _, _ in member.got:
            assert member.acknowledge((offset, offset, REJECT)) == 0
    member.close()


def dead_offsets(broker: BrokerProcess) -> list[int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "check"})
    try:
        place = TopicPartition(f"dlq.{QUEUE}", 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=60)
        consumer.assign([place])
        found: list[int] = []
        while len(found) < end:
            message = consumer.poll(60)
            assert message is not None and message.error() is None
            headers = dict(message.headers())
            assert message.value() == headers["__dlq.errors.offset"]
            found.append(int(headers["__dlq.errors.offset"]))
        return found
    finally:
        consumer.close()


def run_kills(folder: Path, seed: int, cycles: int) -> None:
    chance = random.Random(seed)
    with BrokerProcess(folder / "data", group_share_record_lock_duration_ms=LEASE_MS) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(QUEUE, 1, 1)])[QUEUE].result(60)
        first = QueueMember(broker.port, QUEUE, "first", topic_id(broker))
        assert first.beat(QUEUE).error_code == 0  # the queue begins here
        first.close()
        for cycle in range(cycles):
            produce(broker, cycle * RECORDS_EACH)
            try:
                reject_and_die(broker, chance)
            except RetriableError:
                assert not broker.is_alive()
            broker.start()
        finish(broker)
        assert sorted(dead_offsets(broker)) == list(range(cycles * RECORDS_EACH))


@pytest.mark.timeout(600)
def test_three_kills_around_dead_letters_lose_and_repeat_none(tmp_path: Path, seed: int) -> None:
    run_kills(tmp_path, seed, 3)


@pytest.mark.slow
def test_sixty_kills_around_dead_letters_lose_and_repeat_none(tmp_path: Path, seed: int) -> None:
    run_kills(tmp_path, seed, 60)
