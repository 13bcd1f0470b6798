"""The timestamp of the first record a group has not yet processed. Thin I/O.

Reads one record a partition, by offset: it joins no group and commits nothing.
"""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from headrace.cli.clients import new_reader
from headrace.client.connect import from_kafka
from headrace.client.topics import ANSWER_TIMEOUT_S
from headrace.clock import SystemClock

__all__ = ["oldest_unread"]

Partition = tuple[str, int]

# Only the first record of each partition matters: fetch little, queue little.
SMALL_FETCHES: dict[str, Any] = {
    "fetch.message.max.bytes": 16_384,
    "fetch.max.bytes": 1_048_576,
    "queued.min.messages": 1,
}


def oldest_unread(bootstrap: str, positions: Mapping[Partition, int]) -> dict[Partition, int | None]:
    """Milliseconds per partition; None where no record stands at or after the position.

    A partition that does not answer in time is absent: nothing is known of it.
    """
    if not positions:
        return {}
    consumer = new_reader(bootstrap, **SMALL_FETCHES)
    try:
        consumer.assign(
            [TopicPartition(topic, index, offset) for (topic, index), offset in positions.items()]
        )
        return _first_timestamps(consumer, set(positions), bootstrap)
    finally:
        consumer.close()


def _first_timestamps(
    consumer: Consumer, waiting: set[Partition], bootstrap: str
) -> dict[Partition, int | None]:
    found: dict[Partition, int | None] = {}
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + int(1000 * ANSWER_TIMEOUT_S)
    while waiting and clock.monotonic_ms() < deadline_ms:
        message = consumer.poll(0.2)
        if message is None:
            continue
        each = message.topic() or "", message.partition() or 0
        if each in waiting and (message.error() is None or _at_end(message, bootstrap)):
            waiting.discard(each)
            consumer.incremental_unassign([TopicPartition(*each)])
            found[each] = message.timestamp()[1] if message.error() is None else None
    return found


def _at_end(message: Message, bootstrap: str) -> bool:
    """True at the log end, or where the log start has just passed the position; raises on other errors."""
    error = message.error()
    if error is None or error.code() in (KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET):
        return True
    if error.retriable():
        return False
    raise from_kafka(error, f"reading {message.topic()}:{message.partition()}", bootstrap)
