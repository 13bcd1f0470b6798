"""Eight consumers of a queue, killed, paused and late, and a broker that is killed under them.

Every record ends accepted once or as one dead letter. `HEADRACE_CRASH_SEED` repeats
who is killed when; what they had in hand at that moment is the machine's to decide.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from queue_consumer import CURSED, POISON
from queue_ledger import Ledger, broken_invariants

from headrace.client.connect.channel import Channel
from headrace.errors import RetriableError
from headrace.testing.broker import BrokerProcess
from headrace.wire import Api

TOPIC, GROUP, PARTITIONS, CONSUMERS = "work", "workers", 4, 8
LEASE_MS = 2_000
pytestmark = pytest.mark.xdist_group("crash")


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("HEADRACE_CRASH_SEED", random.SystemRandom().randrange(2**32)))
    print(f"HEADRACE_CRASH_SEED={chosen}")
    return chosen


@dataclass
class Plan:
    """How much, how fast, and how often what goes wrong."""

    records: int
    records_per_s: int
    consumer_kills: int
    consumer_pauses: int
    broker_kills: int
    every_s: float


@dataclass
class Crew:
    """The consumers; whoever is killed is replaced."""

    bootstrap: str
    folder: Path
    chance: random.Random
    pace: float
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    paused: list[tuple[float, subprocess.Popen[bytes]]] = field(default_factory=list)
    hired: int = 0

    def hire(self) -> None:
        self.hired += 1
        arguments = [self.bootstrap, GROUP, TOPIC, str(self.folder / f"{self.hired}.ledger")]
        arguments += [str(self.chance.randrange(2**32)), str(LEASE_MS), str(self.pace)]
        script = Path(__file__).with_name("queue_consumer.py")
        self.running.append(
            subprocess.Popen([sys.executable, str(script), *arguments], stderr=subprocess.DEVNULL)
        )

    def kill_one(self) -> None:
        victim = self.running.pop(self.chance.randrange(len(self.running)))
        victim.kill()
        victim.wait()
        self.hire()

    def pause_one(self) -> None:
        """Stopped for longer than its lease: its records go to others, its late word must not count."""
        victim = self.chance.choice(self.running)
        victim.send_signal(signal.SIGSTOP)
        self.paused.append((time.monotonic() + 1.5 * LEASE_MS / 1000, victim))

    def resume(self, *, everybody: bool = False) -> None:
        for due, victim in tuple(self.paused):
            if everybody or due <= time.monotonic():
                victim.send_signal(signal.SIGCONT)
                self.paused.remove((due, victim))

    def dismiss(self) -> None:
        self.resume(everybody=True)
        for each in self.running:
            each.send_signal(signal.SIGTERM)
        for each in self.running:
            try:
                each.wait(20)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()


@contextmanager
def crew_of(crew: Crew) -> Iterator[Crew]:
    try:
        for _ in range(CONSUMERS):
            crew.hire()
        yield crew
    finally:
        crew.dismiss()


def prepare(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    wanted = {
        "share.auto.offset.reset": "earliest",
        "share.record.lock.duration.ms": str(LEASE_MS),
        "share.delivery.count.limit": "8",
        "share.heartbeat.interval.ms": "500",
        "share.session.timeout.ms": "6000",
    }
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in wanted.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=changes)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(60)


def produce(bootstrap: str, records: int) -> dict[tuple[int, int], bytes]:
    produced: dict[tuple[int, int], bytes] = {}

    def delivered(error: object, message: object) -> None:
        assert error is None
        produced[message.partition(), message.offset()] = message.value()  # type: ignore[attr-defined]

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.num.messages": 50,
            "linger.ms": 5,
            "enable.idempotence": True,  # a record that is there twice would be one that nobody sent
        }
    )
    for number in range(records):
        kind = POISON if number % 499 == 7 else CURSED if number % 997 == 11 else b"fine"
        producer.produce(
            TOPIC, b"%s %d" % (kind, number), partition=number % PARTITIONS, on_delivery=delivered
        )
        producer.poll(0)
    producer.flush(60)
    assert len(produced) == records
    return produced


def left(port: int) -> int | None:
    """Records that are not finished; None while nobody can say."""
    try:
        channel = Channel("127.0.0.1", port, client_id="campaign", timeout_ms=5_000)
        try:
            answer = channel.request(
                Api.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": GROUP, "topics": None}]}
            )
        finally:
            channel.close()
    except RetriableError:
        return None
    group = answer.groups[0]
    parts = [part for topic in group.topics for part in topic.partitions]
    if group.error_code or len(parts) < PARTITIONS:  # no consumer came so far that they are all known
        return None
    return sum(part.lag for part in parts)


def dead_letters(bootstrap: str, ledger: Ledger) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "auto.offset.reset": "earliest"}
    )
    try:
        place = TopicPartition(f"dlq.{GROUP}", 0, 0)
        _, end = consumer.get_watermark_offsets(place, timeout=60)
        consumer.assign([place])
        seen = 0
        while seen < end:
            message = consumer.poll(60)
            assert message is not None and message.error() is None
            seen = message.offset() + 1
            headers = dict(message.headers())
            assert headers["__dlq.errors.group"] == GROUP.encode()
            assert headers["__dlq.errors.topic"] == TOPIC.encode()
            assert headers["__dlq.errors.message"]
            source = int(headers["__dlq.errors.partition"]), int(headers["__dlq.errors.offset"])
            ledger.dead[source] += 1
            ledger.dead_values[source] = message.value()
    finally:
        consumer.close()


def crash(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def run_campaign(folder: Path, seed: int, plan: Plan) -> Ledger:
    chance = random.Random(seed)
    acts: list[str] = ["kill"] * plan.consumer_kills + ["pause"] * plan.consumer_pauses
    acts += ["broker"] * plan.broker_kills
    chance.shuffle(acts)
    (folder / "ledgers").mkdir()
    with BrokerProcess(folder / "data") as broker:
        prepare(broker.bootstrap)
        ledger = Ledger(produced=produce(broker.bootstrap, plan.records))
        crew = Crew(broker.bootstrap, folder / "ledgers", chance, plan.records_per_s / CONSUMERS)
        done: dict[str, Callable[[], None]] = {
            "kill": crew.kill_one,
            "pause": crew.pause_one,
            "broker": lambda: crash(broker),
        }
        began = time.monotonic()
        with crew_of(crew):
            deadline = began + 240 + 4 * plan.records / plan.records_per_s
            next_s = time.monotonic() + plan.every_s
            while (open_records := left(broker.port)) != 0 or acts:
                assert time.monotonic() < deadline, f"{open_records} records are not finished in time"
                crew.resume()
                if acts and time.monotonic() >= next_s and (open_records or not crew.paused):
                    done[acts.pop()]()
                    next_s = time.monotonic() + plan.every_s * chance.uniform(0.5, 1.5)
                time.sleep(0.05)
        took = time.monotonic() - began
        ledger.read((folder / "ledgers").iterdir())
        with suppress(KeyError):
            dead_letters(broker.bootstrap, ledger)
        unsure = set(ledger.produced) - set(ledger.confirmed) - set(ledger.dead)
        print(
            f"{plan.records} records in {took:.1f} s, {crew.hired} consumers hired:"
            f" {len(ledger.confirmed)} accepted and confirmed, {len(ledger.dead)} dead letters,"
            f" {len(unsure)} accepted by consumers that did not hear of it"
        )
    return ledger


def check(ledger: Ledger) -> None:
    assert not broken_invariants(ledger)
    poison = {place for place, value in ledger.produced.items() if value.startswith((POISON, CURSED))}
    assert poison <= set(ledger.dead), "what nobody can process ends as a dead letter"
    assert len(ledger.confirmed) > 0.75 * len(ledger.produced), "most are accepted: the consumers did work"


@pytest.mark.timeout(900)
def test_each_of_5000_records_is_accepted_once_or_dead_lettered(tmp_path: Path, seed: int) -> None:
    plan = Plan(
        records=5_000, records_per_s=700, consumer_kills=4, consumer_pauses=2, broker_kills=2, every_s=0.8
    )
    check(run_campaign(tmp_path, seed, plan))


@pytest.mark.slow
def test_each_of_100000_records_is_accepted_once_or_dead_lettered(tmp_path: Path, seed: int) -> None:
    plan = Plan(
        records=100_000,
        records_per_s=1_200,
        consumer_kills=30,
        consumer_pauses=15,
        broker_kills=12,
        every_s=1.3,
    )
    check(run_campaign(tmp_path, seed, plan))
