"""The client of `promises.py`: one workload against several brokers, in a process of its own.

    promises_client.py '{"ours": {"kind": "transactions", "bootstrap": "127.0.0.1:9092", "pid": 4711, …}, …}'

For each broker, in turns as in `log_client.py`, it makes a topic, does what its kind
says, reads everything back under read_committed with a checksum for each partition,
removes the topic; then it prints one line of JSON. Whatever broker answers, this code and
its settings are the same.

    idempotent    one producer, as fast as it goes
    transactions  one producer, one transaction after another, of `each` records
    share         one share consumer that accepts what it is given, until it has everything
"""

import json
import random
import statistics
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import confluent_kafka as ck
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from log_client import Checksums, Span, WrongAnswerError, timed
from turns import Work, in_turns

CHUNK_RECORDS = 10_000
QUEUE_RECORDS = 300_000
TIMEOUT_S = 120
TURN_RECORDS = 20_000  # of transactions, about, before it is another broker's turn
TURN_TRANSACTIONS = 100  # at most
COMMITTED = {"isolation.level": "read_committed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to do, as `promises.py` writes it; `each`: the records of one transaction."""

    kind: str
    bootstrap: str
    pid: int
    record_bytes: int
    partitions: int
    records: int
    held: bool  # whether it is stopped while it is another's turn
    each: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Portion:
    """Values that go to one partition, one after another."""

    partition: int
    values: list[bytes]


def portions(job: Job, size: int) -> Iterator[list[Portion]]:
    """All the records in groups of `size`; the same in every run, incompressible.

    A group is spread over the partitions; one that is smaller than that goes to
    a few of them, the next group to the next few.
    """
    source = random.Random(f"{job.kind}/{job.record_bytes}/{job.partitions}")
    values = [source.randbytes(job.record_bytes) for _ in range(min(CHUNK_RECORDS, job.records))]
    spread = min(size, job.partitions)
    for number, at in enumerate(range(0, job.records, size)):
        end = min(size, job.records - at)
        yield [
            Portion(
                partition=(number * spread + i) % job.partitions,
                values=[values[(at + n) % len(values)] for n in range(i, end, spread)],
            )
            for i in range(spread)
        ]


# --- writing --------------------------------------------------------------------------------------


class Writer:
    """A producer, and the checksums of everything that it was given."""

    def __init__(self, job: Job, topic: str, **settings: object) -> None:
        self.written = Checksums(job)
        self.topic = topic
        self._errors: list[ck.KafkaError] = []
        self.producer = ck.Producer(
            {
                "bootstrap.servers": job.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 2 * QUEUE_RECORDS,
                "queue.buffering.max.kbytes": 2_000_000,
                "delivery.report.only.error": True,
                "on_delivery": self._answered,
                **settings,
            }
        )

    def _answered(self, error: ck.KafkaError | None, _: ck.Message) -> None:
        if error is not None:
            self._errors.append(error)

    def note(self, group: list[Portion]) -> None:
        for portion in group:
            for value in portion.values:
                self.written.add(portion.partition, value)

    def send(self, group: list[Portion]) -> None:
        for portion in group:
            if len(portion.values) == 1:
                self.producer.produce(self.topic, portion.values[0], partition=portion.partition)
            else:
                batch = [{"value": value} for value in portion.values]
                self.producer.produce_batch(self.topic, batch, partition=portion.partition)

    def flush(self) -> None:
        unanswered = self.producer.flush(TIMEOUT_S)
        if unanswered or self._errors:
            raise WrongAnswerError(
                f"{unanswered} unanswered, {len(self._errors)} refused: {self._errors[:1]}"
            )


def idempotent(job: Job, topic: str) -> Work[dict[str, float]]:
    writer = Writer(job, topic, **{"linger.ms": 5})
    groups = list(portions(job, CHUNK_RECORDS))
    prime(job, topic)
    yield
    with timed(job) as span:
        for group in groups:
            while len(writer.producer) > QUEUE_RECORDS:
                writer.producer.poll(0.002)
            writer.send(group)
        writer.flush()
    for group in groups:
        writer.note(group)
    yield
    verify(job, topic, writer.written)
    return report(job, span)


def transactions(job: Job, topic: str) -> Work[dict[str, float]]:
    """Timed from `begin` to the return of `commit`, each transaction and all of them."""
    writer = Writer(job, topic, **{"transactional.id": f"bench-{uuid.uuid4()}", "linger.ms": 0})
    groups = list(portions(job, job.each))
    prime(job, topic)
    writer.producer.init_transactions(TIMEOUT_S)
    waits: list[float] = []
    span, turn = Span(), min(TURN_TRANSACTIONS, -(-TURN_RECORDS // job.each))
    for at in range(0, len(groups), turn):
        yield
        with timed(job) as part:
            for group in groups[at : at + turn]:
                began = time.perf_counter()
                writer.producer.begin_transaction()
                writer.send(group)
                writer.producer.commit_transaction(TIMEOUT_S)
                waits.append((time.perf_counter() - began) * 1000)
        span += part
    writer.flush()
    yield
    for group in groups:
        writer.note(group)
    verify(job, topic, writer.written)
    return {
        **report(job, span),
        "transactions_s": len(groups) / span.seconds,
        "broker_cpu_ms_transaction": span.broker_cpu_s * 1000 / len(groups),
        "p50_ms": statistics.median(waits),
        "p99_ms": statistics.quantiles(waits, n=100)[98],
    }


def prime(job: Job, topic: str) -> None:
    """One acknowledged record a partition first: a new topic may refuse records for a moment."""
    producer = ck.Producer({"bootstrap.servers": job.bootstrap, "acks": "all"})
    for partition in range(job.partitions):
        producer.produce(topic, b"first", partition=partition)
    if producer.flush(TIMEOUT_S):
        raise WrongAnswerError("the new topic takes no records")


# --- reading --------------------------------------------------------------------------------------


def verify(job: Job, topic: str, written: Checksums) -> None:
    """Every record once, in order, byte for byte, as a reader of committed records sees it."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": job.bootstrap,
            "group.id": f"bench-{uuid.uuid4()}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            **COMMITTED,
        }
    )
    consumer.assign([ck.TopicPartition(topic, partition, 1) for partition in range(job.partitions)])
    found, remaining = Checksums(job), job.records
    while remaining:
        messages = consumer.consume(min(remaining, CHUNK_RECORDS), timeout=TIMEOUT_S)
        if not messages:
            raise WrongAnswerError(f"{remaining} committed records never came")
        remaining -= len(messages)
        for message in messages:
            if message.error() is not None:
                raise WrongAnswerError(str(message.error()))
            found.add(message.partition(), message.value())
    if consumer.consume(1, timeout=0.1):
        raise WrongAnswerError("the broker has more records than were written")
    consumer.close()
    found.compare(written)


def share(job: Job, topic: str) -> Work[dict[str, float]]:
    """From the first records' arrival to the last acceptance; each record is to come once."""
    prime(job, topic)
    writer = Writer(job, topic, **{"linger.ms": 5})
    for group in portions(job, CHUNK_RECORDS):
        writer.send(group)
        writer.note(group)
    writer.flush()
    verify(job, topic, writer.written)
    group = f"bench-{uuid.uuid4()}"
    begin_at_the_start(job, group)
    yield
    consumer = ck.ShareConsumer({"bootstrap.servers": job.bootstrap, "group.id": group})
    consumer.subscribe([topic])
    seen = take(consumer, TIMEOUT_S)
    with timed(job) as span:
        while len(seen) < job.records + job.partitions:
            more = take(consumer, TIMEOUT_S)
            if seen & more:
                raise WrongAnswerError(f"{len(seen & more)} records came twice")
            seen |= more
        failed = [error for error in consumer.commit_sync(TIMEOUT_S).values() if error is not None]
    if failed:
        raise WrongAnswerError(f"records could not be accepted: {failed[0]}")
    consumer.close()
    return report(job, span)


def begin_at_the_start(job: Job, group: str) -> None:
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(TIMEOUT_S)


def take(consumer: Any, timeout_s: float) -> set[tuple[int, int]]:
    """The places of the next records; the ones before are accepted by asking for more."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        messages = consumer.poll(1.0)
        for message in messages:
            if message.error() is not None:
                raise WrongAnswerError(str(message.error()))
        if len(messages):
            return {(message.partition(), message.offset()) for message in messages}
    raise WrongAnswerError(f"no record for {timeout_s} s")


# --- the whole ------------------------------------------------------------------------------------


def report(job: Job, span: Span) -> dict[str, float]:
    return {
        "records_s": job.records / span.seconds,
        "broker_cpu_us_record": span.broker_cpu_s * 1e6 / job.records,
        "client_cores": span.client_cpu_s / span.seconds,
        "others_cores": span.others_cpu_s / span.seconds,
    }


KINDS: dict[str, Callable[[Job, str], Work[dict[str, float]]]] = {
    "idempotent": idempotent,
    "transactions": transactions,
    "share": share,
}


def run(job: Job) -> Work[dict[str, float]]:
    topic = f"bench-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    admin.create_topics([NewTopic(topic, job.partitions, 1)])[topic].result(TIMEOUT_S)
    result = yield from KINDS[job.kind](job, topic)
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    return result


if __name__ == "__main__":
    jobs = {system: Job(**job) for system, job in json.loads(sys.argv[1]).items()}
    works = {system: run(job) for system, job in jobs.items()}
    print(json.dumps(in_turns(works, {system: job.pid for system, job in jobs.items() if job.held})))
