"""Consumers: ones that read every partition as it grows, and members of groups that come and go."""

import contextlib

import confluent_kafka as ck

from recorded.client import DERIVED, PARTITIONS, SOURCE, Job
from recorded.recorder import Recorder

__all__ = ["run_live", "run_member"]

POLLED = 100


def run_live(job: Job) -> None:
    """Reads both topics from their starts; `isolation.level` is among its settings."""
    recorder = job.recorder()
    consumer = ck.Consumer(
        job.librdkafka(
            group_id=job.process, enable_auto_commit=False, auto_offset_reset="error", fetch_wait_max_ms=100
        )
    )
    places = [(topic, partition, 0) for topic in (SOURCE, DERIVED) for partition in range(PARTITIONS)]
    recorder.ok("assign", partitions=places, committed=_reads_committed(job))
    consumer.assign([ck.TopicPartition(*place) for place in places])
    while not job.stopping:
        messages = consumer.consume(POLLED, 0.2)
        for message in messages:
            if message.error() is not None and message.error().code() == ck.KafkaError._AUTO_OFFSET_RESET:
                recorder.info("refused", why=f"the log is shorter than it was: {message.error()}")
        _record(recorder, [each for each in messages if each.error() is None])
    consumer.close()


def _reads_committed(job: Job) -> bool:
    return job.settings.get("isolation.level", "read_committed") == "read_committed"


def _record(recorder: Recorder, messages: list[ck.Message]) -> None:
    if messages:
        records = [(m.topic(), m.partition(), m.offset(), m.value().decode()) for m in messages]
        recorder.ok("poll", records=records)


def run_member(job: Job) -> None:
    """A member of the group of its settings; commits only what it has written down."""
    recorder = job.recorder()
    consumer = ck.Consumer(
        job.librdkafka(
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            fetch_wait_max_ms=100,
        )
    )
    polled: list[ck.Message] = []

    def note() -> None:
        _record(recorder, polled)
        polled.clear()

    def assigned(_: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        note()
        places = [(each.topic, each.partition, None) for each in partitions]
        recorder.ok("assign", partitions=places, committed=True, group=job.settings["group.id"])

    consumer.subscribe([SOURCE], on_assign=assigned)
    while not job.stopping:
        # One at a time: a rebalance may come between any two of them.
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            polled.append(message)
        if len(polled) == POLLED or (polled and message is None):
            note()
            with contextlib.suppress(ck.KafkaException):  # rebalancing, or the broker is down
                consumer.commit(asynchronous=False)
    note()
    consumer.close()
