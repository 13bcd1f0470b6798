"""Reads a topic for a hook: committed records, ends of partitions, and positions lost to retention."""

import contextlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from headrace.client import Connection, consumer
from headrace.client.topics import SILENT_LOGGER
from headrace.errors import RequestError, RetriableError
from headrace.hooks.log.records import HookRecord

__all__ = ["HookReader", "Item", "PartitionEnd", "PositionLost"]

_READER: dict[str, Any] = {
    "isolation_level": "read_committed",
    "enable_partition_eof": True,
    "auto_offset_reset": "error",
    "enable_auto_offset_store": False,
    "allow_auto_create_topics": False,
    # Enough to keep a receiver busy; the rest waits on the log.
    "queued_min_messages": 200,
    "queued_max_messages_kbytes": 8_192,
    "reconnect_backoff_max_ms": 1_000,
    "logger": SILENT_LOGGER,
}
_GONE = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


@dataclass(frozen=True, slots=True)
class PartitionEnd:
    """A partition was read to its current end; transaction markers take offsets, too."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class PositionLost:
    """A partition no longer has the offset from which it was to be read."""

    partition: int


Item = HookRecord | PartitionEnd | PositionLost


class HookReader:
    """Some partitions of a topic, in order each; synchronous, for one thread at a time.

    Belongs to its group by name only: nobody shares the work, so nobody waits for a dead
    member's time to run out.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        positions: Mapping[int, int],
        *,
        group: str,
        properties: Mapping[str, Any] | None = None,
    ) -> None:
        self._topic = topic
        self._consumer: Consumer = consumer(connection, group, **{**_READER, **(properties or {})})
        with contextlib.suppress(KafkaException):  # asked first, the library finds a broker sooner
            self._consumer.list_topics(topic, timeout=connection.request_timeout_ms / 1000)
        self._consumer.assign([TopicPartition(topic, each, offset) for each, offset in positions.items()])

    def read(self, wait_s: float, most: int = 100) -> list[Item]:
        """What is available now or within that time; raises RetriableError if the topic is gone."""
        try:
            first = self._consumer.poll(wait_s)
            found = [] if first is None else [first, *self._consumer.consume(most - 1, 0)]
        except KafkaException as error:
            raise RetriableError(f"topic {self._topic!r} cannot be read: {error.args[0].str()}") from error
        return [item for message in found if (item := self._item(message)) is not None]

    def pause(self, partitions: Iterable[int]) -> None:
        """Pauses these partitions."""
        self._consumer.pause([TopicPartition(self._topic, each) for each in partitions])

    def resume(self, partitions: Iterable[int]) -> None:
        self._consumer.resume([TopicPartition(self._topic, each) for each in partitions])

    def show(self, positions: Mapping[int, int]) -> None:
        """Commits the progress of the group, for monitoring only: nothing waits for it or depends on it."""
        places = [TopicPartition(self._topic, *each) for each in positions.items()]
        if not places:
            return
        with contextlib.suppress(
            KafkaException, RuntimeError
        ):  # the log is unreachable, or the reader is closed
            self._consumer.commit(offsets=places, asynchronous=True)

    def close(self) -> None:
        self._consumer.close()

    def _item(self, message: Message) -> Item | None:
        error, partition = message.error(), int(message.partition() or 0)
        if error is None:
            return _record(message)
        if error.code() == KafkaError._PARTITION_EOF:
            return PartitionEnd(partition, int(message.offset() or 0))
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            return PositionLost(partition)
        if error.code() in _GONE:
            raise RetriableError(f"topic {self._topic!r} is gone, or has fewer partitions than before")
        if error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            return None
        raise RequestError(f"topic {self._topic!r} cannot be read: {error.str()}", code=error.code())


def _record(message: Message) -> HookRecord:
    headers: Any = message.headers() or ()
    return HookRecord(
        topic=str(message.topic()),
        partition=int(message.partition() or 0),
        offset=int(message.offset() or 0),
        timestamp_ms=message.timestamp()[1],
        key=_bytes(message.key()),
        value=_bytes(message.value()),
        headers=tuple(headers),
    )


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
