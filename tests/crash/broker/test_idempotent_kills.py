"""Idempotent producers while the broker is killed: everything acknowledged is there, and nothing twice."""

import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from history import History, broken_invariants
from load import PARTITIONS, RECONNECT, TOPIC, LoadProducer, Worker, read_back

from headrace.testing.broker import BrokerProcess

pytestmark = pytest.mark.xdist_group("crash")

IDEMPOTENT = {"enable.idempotence": True}


def wait_for_acks(history: History, count: int, *, timeout_s: float = 120) -> None:
    wanted, deadline = len(history.acked) + count, time.monotonic() + timeout_s
    while len(history.acked) < wanted:
        assert time.monotonic() < deadline, f"fewer than {count} acknowledgements within {timeout_s} s"
        time.sleep(0.005)


def campaign(data: Path, cycles: int) -> None:
    seed = int(os.environ.get("HEADRACE_CRASH_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADRACE_CRASH_SEED={seed}")
    history, choose = History(), random.Random(seed)
    with BrokerProcess(data) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, **RECONNECT})
        topic = NewTopic(TOPIC, PARTITIONS, config={"segment.bytes": str(1 << 20)})
        admin.create_topics([topic])[TOPIC].result(60)
        producers = [LoadProducer(name, broker.bootstrap, history, IDEMPOTENT) for name in ("a", "b", "c")]
        workers = [Worker(producer.step, producer.end) for producer in producers]
        for _ in range(cycles):
            wait_for_acks(history, choose.choice([1, 50, 500]))
            time.sleep(choose.uniform(0, 0.2))  # not a wait: the moment of the crash is to be random
            broker.kill()
            broker.start()
        wait_for_acks(history, 100)
        for worker in workers:
            worker.stop()
        read_back(broker.bootstrap, history)
        output = broker.output()
    print(f"{cycles} kills, {len(history.sent)} sent, {len(history.acked)} acknowledged")
    assert broken_invariants(history) == [], f"seed {seed}"
    assert "Traceback" not in output, output[-4000:]
    # Idempotence retries until it succeeds: all that was sent is there, each once, in order.
    assert Counter(history.log.values()) == Counter(history.sent.keys()), f"seed {seed}"
    for name in (b"a", b"b", b"c"):
        for partition in range(PARTITIONS):
            numbers = [
                int(value.split(b":")[1])
                for (where, _), value in sorted(history.log.items())
                if where == partition and value.startswith(name + b":")
            ]
            assert numbers == sorted(numbers), f"seed {seed}"


@pytest.mark.timeout(900)
def test_ten_kills_under_idempotent_load_lose_and_double_nothing(tmp_path: Path):
    campaign(tmp_path, cycles=10)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_two_hundred_kills_under_idempotent_load_lose_and_double_nothing(tmp_path: Path):
    campaign(tmp_path, cycles=200)
