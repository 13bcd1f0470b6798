"""`kill -9` of the broker under acks=all load, again and again on the same data.

`HEADRACE_CRASH_SEED` repeats the moments of a campaign's crashes; what the
producers had under way at each of them is the machine's to decide.
"""

import os
import random
import signal
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka as ck
import psutil
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from history import History, broken_invariants
from load import (
    ONCE,
    PARTITIONS,
    RECONNECT,
    TOPIC,
    UNTIL_ACKED,
    LiveConsumer,
    LoadProducer,
    LoneProducer,
    Worker,
    read_back,
)

from headrace.storage import DataDirectory
from headrace.testing.broker import BrokerProcess

pytestmark = pytest.mark.xdist_group("crash")


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("HEADRACE_CRASH_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADRACE_CRASH_SEED={chosen}")
    return chosen


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as started:
        # Small segments, so that a crash also meets segments just rolled.
        create_topic(started.bootstrap, PARTITIONS, segment_bytes=1 << 20)
        yield started


def create_topic(bootstrap: str, partitions: int, *, segment_bytes: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **RECONNECT})
    topic = NewTopic(TOPIC, partitions, config={"segment.bytes": str(segment_bytes)})
    admin.create_topics([topic])[TOPIC].result(60)


def start_load(bootstrap: str, history: History) -> list[Worker]:
    producers = [
        LoadProducer("a", bootstrap, history, ONCE),
        LoadProducer("b", bootstrap, history, ONCE),
        LoadProducer("c", bootstrap, history, UNTIL_ACKED),
    ]
    consumers = [LiveConsumer(bootstrap, history) for _ in range(2)]
    return [Worker(client.step, client.end) for client in [*producers, *consumers]]


def wait_for_acks(history: History, count: int, *, timeout_s: float = 120) -> None:
    """Wait until `count` further records were acknowledged: the load has found the broker again."""
    wanted, deadline = len(history.acked) + count, time.monotonic() + timeout_s
    while len(history.acked) < wanted:
        assert time.monotonic() < deadline, f"fewer than {count} acknowledgements within {timeout_s} s"
        time.sleep(0.005)


def wait_for_readers(history: History, *, timeout_s: float = 120) -> None:
    """Wait until the live consumers saw most of it: they read on through the crashes, late or not."""
    deadline = time.monotonic() + timeout_s
    while len(history.seen) <= len(history.acked) // 2:
        assert time.monotonic() < deadline, "the live consumers hardly saw anything"
        time.sleep(0.05)


def crash_and_restart(broker: BrokerProcess, history: History, choose: random.Random) -> float:
    """One cycle: some load, a crash at a random moment of it, a start, sometimes another crash at once."""
    wait_for_acks(history, choose.choice([1, 50, 500]))
    time.sleep(choose.uniform(0, 0.2))  # not a wait: the moment of the crash is to be random
    broker.kill()
    broker.start()
    if choose.random() < 0.2:
        broker.kill()
        broker.start()
    return broker.start_seconds


def start_lone(bootstrap: str, history: History) -> list[Worker]:
    clients = (
        LoneProducer("a", bootstrap, history, {"linger.ms": 0, **ONCE}),
        LiveConsumer(bootstrap, history),
    )
    return [Worker(client.step, client.end) for client in clients]


def campaign(
    broker: BrokerProcess,
    seed: int,
    cycles: int,
    start: Callable[[str, History], list[Worker]] = start_load,
    consumers: int = 2,
) -> None:
    history, choose = History(), random.Random(seed)
    workers = start(broker.bootstrap, history)
    starts = [crash_and_restart(broker, history, choose) for _ in range(cycles)]
    wait_for_acks(history, 100)
    for producer in workers[:-consumers]:
        producer.stop()
    wait_for_readers(history)
    for consumer in workers[-consumers:]:
        consumer.stop()
    read_back(broker.bootstrap, history)
    print(
        f"{cycles} crashes, {len(history.sent)} sent, {len(history.acked)} acknowledged, "
        f"{len(history.log)} in the log, {len(history.seen)} seen live; "
        f"start-up median {statistics.median(starts):.2f} s, slowest {max(starts):.2f} s"
    )
    assert broken_invariants(history) == [], f"seed {seed}"
    assert "Traceback" not in broker.output(), broker.output()[-4000:]


@pytest.mark.timeout(900)
def test_twenty_crashes_under_load_lose_and_reuse_nothing(broker: BrokerProcess, seed: int):
    campaign(broker, seed, cycles=20)


@pytest.mark.timeout(900)
def test_ten_crashes_between_records_that_are_sent_alone_lose_and_reuse_nothing(
    broker: BrokerProcess, seed: int
):
    campaign(broker, seed, 10, start_lone, consumers=1)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_five_hundred_crashes_under_load_lose_and_reuse_nothing(broker: BrokerProcess, seed: int):
    campaign(broker, seed, cycles=500)


@pytest.mark.timeout(600)
def test_a_clean_stop_under_load_leaves_nothing_to_recover(broker: BrokerProcess, tmp_path: Path):
    history = History()
    workers = start_load(broker.bootstrap, history)
    wait_for_acks(history, 2000)
    assert broker.stop() == 0
    with_nothing_scanned(tmp_path)
    broker.start()
    wait_for_acks(history, 100)
    for worker in workers:
        worker.stop()
    read_back(broker.bootstrap, history)
    assert broken_invariants(history) == []


def with_nothing_scanned(data: Path) -> None:
    directory = DataDirectory(data)
    try:
        logs = [log for topic in directory.topics.values() for log in topic.partitions]
        assert logs
        assert [log.scanned_bytes for log in logs] == [0] * len(logs)
        assert [log.torn for log in logs] == [None] * len(logs)
    finally:
        directory.close()


@pytest.mark.timeout(600)
def test_a_broker_that_was_stopped_for_a_while_goes_on_where_it_was(broker: BrokerProcess):
    history = History()
    workers = start_load(broker.bootstrap, history)
    for _ in range(3):
        wait_for_acks(history, 500)
        broker.signal(signal.SIGSTOP)
        time.sleep(1.0)  # the time for which it is stopped
        broker.signal(signal.SIGCONT)
    wait_for_acks(history, 500)
    for worker in workers:
        worker.stop()
    read_back(broker.bootstrap, history)
    assert broken_invariants(history) == []
    assert len(history.log) == len(history.sent), "nothing crashed, so nothing may be missing"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_start_up_after_a_crash_costs_at_most_two_seconds_of_the_processor_a_gigabyte(tmp_path: Path):
    """One gigabyte in a segment that is never rolled, none of it known to be clean."""
    with BrokerProcess(tmp_path) as broker:
        empty_s = busy_seconds(broker.pid)
        create_topic(broker.bootstrap, 1, segment_bytes=2**31 - 1)
        gigabytes = fill(broker.bootstrap, 1 << 30) / (1 << 30)
        broker.kill()
        for checkpoint in tmp_path.rglob("checkpoint"):
            checkpoint.unlink()  # as if the crash had come before the first one: all of it is unclean
        broker.start()
        added_s = busy_seconds(broker.pid) - empty_s
        print(f"{gigabytes:.2f} GB: {empty_s:.2f} s of the processor to start empty, {added_s:.2f} s more")
        assert added_s <= 2 * gigabytes


def busy_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def fill(bootstrap: str, size: int) -> int:
    producer = ck.Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "batch.size": 1 << 20, **RECONNECT}
    )
    value, sent = random.Random(1).randbytes(10_000), 0
    while sent < size:
        try:
            producer.produce(TOPIC, value, partition=0)
        except BufferError:
            producer.poll(0.05)
            continue
        sent += len(value)
    assert producer.flush(120) == 0
    return sent
