"""The client of `log.py`: one workload against several brokers, in a process of its own.

    log_client.py '{"ours": {"bootstrap": "127.0.0.1:9092", "pid": 4711, "record_bytes": 100, …}, …}'

For each broker it makes a topic, produces, reads everything back with a checksum for each
partition, reads it again against the clock, measures one record at a time, removes the
topic; then it prints one line of JSON. Whatever broker answers, this code and its settings
are the same. They take turns (`turns.py`): every phase is done on one broker right after
the other, and records that are sent alone, a few dozen here, a few dozen there, so that
what disturbs the machine disturbs all of them; a broker whose turn it is not is stopped.
What is produced and read against the clock goes through librdkafka without a Python object
for each record (`rdkafka.py`). The broker's processor time is read at the edges of each
phase: on few cores the client is often the slower half, and that figure shows the broker's
own cost, as the application's share of its one thread shows how near the client is to its
limit. "sync alone" is what the disk takes for a record, without a broker.
"""

import json
import os
import random
import statistics
import sys
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rdkafka import BulkConsumer, BulkProducer
from turns import Work, in_turns

CHUNK_RECORDS = 10_000
QUEUE_RECORDS = 100_000  # as much waits in the producer; beyond it, it lets the broker catch up
PHASE_TIMEOUT_S = 60
SEGMENTS, READINGS = (
    2,
    4,
)  # times that the records are produced, and that all of them are read, each in its turn
BLOCK_SAMPLES = 50  # records sent one by one, before it is another broker's turn
BLOCK_WARMUP = 10  # of them, the first that are not counted: this broker had nothing to do before
BATCH_BYTES = 70  # of a batch of one record, besides its value
SYNCED_BYTES = 1 << 20
PRIMED = 1  # records in each partition before those that are measured
GIGABYTE = 1e9

Chunk = list[list[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to do, as `log.py` writes it."""

    bootstrap: str
    pid: int
    record_bytes: int
    partitions: int
    records: int
    latency_samples: int
    held: bool  # whether it is stopped while it is another's turn
    alone: bool = False  # nothing but records that are sent alone

    @property
    def chunks(self) -> int:
        """How often the chunk is sent in one segment."""
        return -(-self.records // CHUNK_RECORDS)

    @property
    def produced(self) -> int:
        """Records of all segments."""
        return SEGMENTS * self.chunks * CHUNK_RECORDS


class WrongAnswerError(Exception):
    """The broker lost, repeated, reordered or changed records; its speed does not matter."""


@dataclass(slots=True)
class Span:
    """Records, wall-clock and processor seconds of one phase."""

    records: int = 0
    seconds: float = 0.0
    broker_cpu_s: float = 0.0
    client_cpu_s: float = 0.0
    application_cpu_s: float = 0.0  # of the client's, that of the thread which calls librdkafka
    others_cpu_s: float = 0.0

    def __iadd__(self, more: "Span") -> "Span":
        self.records += more.records
        self.seconds += more.seconds
        self.broker_cpu_s += more.broker_cpu_s
        self.client_cpu_s += more.client_cpu_s
        self.application_cpu_s += more.application_cpu_s
        self.others_cpu_s += more.others_cpu_s
        return self


@contextmanager
def timed(job: Job) -> Iterator[Span]:
    broker, span = psutil.Process(job.pid), Span()
    broker_cpu, client_cpu, machine_cpu = _cpu_seconds(broker), time.process_time(), _machine_cpu_seconds()
    application_cpu, started = time.thread_time(), time.perf_counter()
    yield span
    span.seconds = time.perf_counter() - started
    span.application_cpu_s = time.thread_time() - application_cpu
    span.client_cpu_s = time.process_time() - client_cpu
    span.broker_cpu_s = _cpu_seconds(broker) - broker_cpu
    span.others_cpu_s = _machine_cpu_seconds() - machine_cpu - span.client_cpu_s - span.broker_cpu_s


def _machine_cpu_seconds() -> float:
    """Processor time spent by anyone, and what the host kept back."""
    times = psutil.cpu_times()
    return float(sum(times[:8]) - times.idle - getattr(times, "iowait", 0.0))


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def chunk_of_records(job: Job) -> Chunk:
    """A list of values for each partition, the same in every run; incompressible."""
    source = random.Random(f"{job.record_bytes}/{job.partitions}")
    return [
        [source.randbytes(job.record_bytes) for _ in range(CHUNK_RECORDS // job.partitions)]
        for _ in range(job.partitions)
    ]


class Checksums:
    """Of each partition's values: one that knows their order, and one that does not."""

    def __init__(self, job: Job) -> None:
        self.in_order = [0] * job.partitions
        self.any_order = [0] * job.partitions

    def add(self, partition: int, value: bytes) -> None:
        self.in_order[partition] = zlib.crc32(value, self.in_order[partition])
        self.any_order[partition] += zlib.crc32(value)

    def compare(self, written: "Checksums") -> None:
        if self.any_order != written.any_order:
            raise WrongAnswerError("what was read is not what was written")
        if self.in_order != written.in_order:
            raise WrongAnswerError("what was written was read in another order")


def expected_checksums(job: Job, chunk: Chunk) -> Checksums:
    written = Checksums(job)
    for _ in range(SEGMENTS * job.chunks):
        for partition, values in enumerate(chunk):
            for value in values:
                written.add(partition, value)
    return written


def produce(job: Job, topic: str, chunk: Chunk) -> Work[Span]:
    """Everything acknowledged by the broker, timed from the first record to the last answer."""
    producer, span = BulkProducer(_producing(job), topic), Span()
    _prime(job, producer)
    batches = [producer.prepare(values) for values in chunk]
    for _ in range(SEGMENTS):
        yield
        deadline = time.monotonic() + PHASE_TIMEOUT_S
        with timed(job) as segment:
            for _ in range(job.chunks):
                _wait_for_room(producer, deadline)
                for partition, batch in enumerate(batches):
                    producer.send(partition, batch)
            unanswered = producer.flush(PHASE_TIMEOUT_S)
        if unanswered or producer.refused:
            raise WrongAnswerError(f"{unanswered} records unanswered, {producer.refused} refused")
        segment.records = job.chunks * CHUNK_RECORDS
        span += segment
    producer.close()
    return span


def _producing(job: Job) -> dict[str, object]:
    return {
        "bootstrap.servers": job.bootstrap,
        "acks": "all",
        "linger.ms": 5,
        "batch.size": 1_000_000,
        "queue.buffering.max.messages": 2 * QUEUE_RECORDS,
        "queue.buffering.max.kbytes": 2_000_000,
    }


def _prime(job: Job, producer: BulkProducer) -> None:
    """One acknowledged record a partition, before the clock starts.

    It connects the client, and it outlasts the moment in which a new topic's partitions
    are known but refuse records: retries of pipelined batches would arrive reordered.
    """
    first = producer.prepare([b"first"])
    for partition in range(job.partitions):
        producer.send(partition, first)
    if producer.flush(PHASE_TIMEOUT_S):
        raise WrongAnswerError("the new topic takes no records")


def _wait_for_room(producer: BulkProducer, deadline: float) -> None:
    while len(producer) > QUEUE_RECORDS:
        if time.monotonic() > deadline:
            raise WrongAnswerError(f"the broker took no more records within {PHASE_TIMEOUT_S} s")
        producer.poll(0.002)


def _reading(job: Job) -> dict[str, object]:
    return {
        "bootstrap.servers": job.bootstrap,
        "group.id": f"bench-{uuid.uuid4()}",
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
    }


def _reading_fast(job: Job) -> dict[str, object]:
    """Fetches ahead without pausing, in answers large enough for either broker's best."""
    return {
        **_reading(job),
        "max.partition.fetch.bytes": 4_000_000,
        "check.crcs": False,
        "queued.min.messages": 2_000_000,
        "queued.max.messages.kbytes": 2_000_000,
    }


def _reader(job: Job, settings: dict[str, object], topic: str, offset: int) -> Consumer:
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, offset) for partition in range(job.partitions)])
    return consumer


def _next_records(consumer: Consumer, wanted: int) -> list[Message]:
    messages: list[Message] = consumer.consume(min(wanted, CHUNK_RECORDS), timeout=PHASE_TIMEOUT_S)
    if not messages:
        raise WrongAnswerError(f"{wanted} records never came")
    for message in messages:
        if message.error() is not None:
            raise WrongAnswerError(str(message.error()))
    return messages


def verify(job: Job, topic: str, chunk: Chunk) -> None:
    """Every record once, in order, byte for byte; also what warms the broker's reading side."""
    consumer = _reader(job, _reading_fast(job), topic, PRIMED)
    found, remaining = Checksums(job), job.produced
    while remaining:
        messages = _next_records(consumer, remaining)
        remaining -= len(messages)
        for message in messages:
            found.add(message.partition(), message.value())
    if consumer.consume(1, timeout=0.05):
        raise WrongAnswerError("the broker has more records than were written")
    consumer.close()
    found.compare(expected_checksums(job, chunk))


def consume(job: Job, topic: str) -> Work[Span]:
    """Reads everything, timed from the arrival of the first records to that of the last."""
    span = Span()
    for _ in range(READINGS):
        yield
        consumer = BulkConsumer(_reading_fast(job), topic, job.partitions, PRIMED)
        before = consumer.read(1, PHASE_TIMEOUT_S)
        with timed(job) as pass_:
            read = consumer.read(job.produced, PHASE_TIMEOUT_S)
        consumer.close()
        if read != job.produced:
            raise WrongAnswerError(f"{job.produced} records were written, {read} read")
        pass_.records = read - before
        span += pass_
    return span


def latencies_ms(job: Job, topic: str, chunk: Chunk) -> Work[list[float]]:
    """From `produce` to its arrival at a long-polling consumer, one record at a time, in ms."""
    producer = Producer({"bootstrap.servers": job.bootstrap, "acks": "all", "linger.ms": 0})
    waiting = {**_reading(job), "fetch.wait.max.ms": 500, "fetch.min.bytes": 1}
    consumer = _reader(job, waiting, topic, PRIMED + job.produced // job.partitions)
    samples: list[float] = []
    sent = 0
    while len(samples) < job.latency_samples:
        yield
        for i in range(BLOCK_SAMPLES):
            partition, row = sent % job.partitions, sent // job.partitions % len(chunk[0])
            wait_ms = _round_trip_ms(producer, consumer, topic, partition, chunk[partition][row])
            sent += 1
            if i >= BLOCK_WARMUP:
                samples.append(wait_ms)
    consumer.close()
    return samples


def _round_trip_ms(producer: Producer, consumer: Consumer, topic: str, partition: int, value: bytes) -> float:
    started = time.perf_counter()
    producer.produce(topic, value, partition=partition)
    message = consumer.poll(PHASE_TIMEOUT_S)
    elapsed = time.perf_counter() - started
    producer.poll(0)
    if message is None or message.error() is not None or message.value() != value:
        raise WrongAnswerError("a record sent alone did not arrive as it was sent")
    return elapsed * 1000


def run(job: Job) -> Work[dict[str, float]]:
    topic, chunk = f"bench-{uuid.uuid4()}", chunk_of_records(job)
    admin = AdminClient({"bootstrap.servers": job.bootstrap})
    admin.create_topics([NewTopic(topic, job.partitions, 1)])[topic].result(PHASE_TIMEOUT_S)
    rates: dict[str, float] = {}
    if job.alone:
        _prime(job, producer := BulkProducer(_producing(job), topic))
        producer.close()
    else:
        rates = yield from throughput(job, topic, chunk)
    waits = yield from latencies_ms(job, topic, chunk)
    admin.delete_topics([topic])[topic].result(PHASE_TIMEOUT_S)
    return {**rates, **_percentiles(waits)}


def throughput(job: Job, topic: str, chunk: Chunk) -> Work[dict[str, float]]:
    written = yield from produce(job, topic, chunk)
    yield
    verify(job, topic, chunk)
    read = yield from consume(job, topic)
    others = (written.others_cpu_s + read.others_cpu_s) / (written.seconds + read.seconds)
    return {**_rates(job, "produce", written), **_rates(job, "consume", read), "others_cores": others}


def sync_alone(job: Job) -> Work[dict[str, float]]:
    """The least that a synced record can take: a record's bytes written over zeros, and synced.

    In the same moments as `latencies_ms`, one file, no client and no broker.
    """
    value = bytes(job.record_bytes + BATCH_BYTES)
    samples: list[float] = []
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(bytes(SYNCED_BYTES))
        os.fsync(file.fileno())
        for _ in range(0 if job.alone else SEGMENTS + READINGS + 1):  # while the others produce and consume
            yield
        while len(samples) < job.latency_samples:
            yield
            for i in range(BLOCK_SAMPLES):
                started = time.perf_counter()
                os.pwrite(file.fileno(), value, i * len(value))
                os.fdatasync(file.fileno())
                if i >= BLOCK_WARMUP:
                    samples.append((time.perf_counter() - started) * 1000)
    return _percentiles(samples)


def _percentiles(samples: list[float]) -> dict[str, float]:
    return {"p50_ms": statistics.median(samples), "p99_ms": statistics.quantiles(samples, n=100)[98]}


def _rates(job: Job, phase: str, span: Span) -> dict[str, float]:
    gigabytes = span.records * job.record_bytes / GIGABYTE
    return {
        f"{phase}_records_s": span.records / span.seconds,
        f"{phase}_mb_s": gigabytes * 1000 / span.seconds,
        f"{phase}_broker_cpu_s_gb": span.broker_cpu_s / gigabytes,
        f"{phase}_client_cores": span.client_cpu_s / span.seconds,
        f"{phase}_application_busy": span.application_cpu_s / span.seconds,
    }


def main() -> None:
    jobs = {system: Job(**job) for system, job in json.loads(sys.argv[1]).items()}
    works = {system: run(job) for system, job in jobs.items()}
    works["sync alone"] = sync_alone(next(iter(jobs.values())))
    print(json.dumps(in_turns(works, {system: job.pid for system, job in jobs.items() if job.held})))


if __name__ == "__main__":
    main()
