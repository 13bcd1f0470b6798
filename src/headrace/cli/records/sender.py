"""Sending records and keeping account: every line ends acknowledged, failed, or named as unknown."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.cli.records.lines import InputRecord
from headrace.client.connect import from_kafka

__all__ = ["Failure", "LineSender"]

# Enough to see what is wrong without keeping a million copies of it; the count is exact.
FAILURES_KEPT = 100


@dataclass(frozen=True, slots=True)
class Failure:
    """A line that did not become a record, and why."""

    line: int
    cause: str


class LineSender:
    """Sends lines as records to one topic. read = acknowledged + failed + unknown, always."""

    def __init__(self, new_producer: Producer, topic: str, bootstrap: str) -> None:
        self._producer = new_producer
        self._topic = topic
        self._bootstrap = bootstrap
        self.read = 0
        self.acknowledged = 0
        self.failed = 0
        self.failures: list[Failure] = []

    @property
    def unknown(self) -> int:
        return self.read - self.acknowledged - self.failed

    def reject(self, line: int, cause: str) -> None:
        """Counts a line that cannot be sent at all."""
        self.read += 1
        self._fail(line, cause)

    def send(self, line: int, record: InputRecord, partition: int | None) -> None:
        """Hands a record over; waits while the producer's buffer is full."""
        self.read += 1
        options: dict[str, Any] = {"on_delivery": partial(self._delivered, line)}
        if partition is not None:
            options["partition"] = partition
        if record.timestamp_ms is not None:
            options["timestamp"] = record.timestamp_ms
        if record.headers:
            options["headers"] = list(record.headers)
        while True:
            try:
                self._producer.produce(self._topic, value=record.value, key=record.key, **options)
            except BufferError:
                self._producer.poll(0.1)
                continue
            except KafkaException as raised:
                self._fail(line, self._cause(raised.args[0]))
            self._producer.poll(0)
            return

    def wait_acknowledged(self, advance: Callable[[], None]) -> None:
        """Returns once every record is acknowledged or has failed; each fails after its own timeout."""
        while self._producer.flush(0.2):
            advance()

    def summary(self) -> dict[str, Any]:
        """The documented result of `headrace produce`."""
        return {
            "topic": self._topic,
            "read": self.read,
            "acknowledged": self.acknowledged,
            "failed": self.failed,
            "unknown": self.unknown,
            "failures": [{"line": each.line, "error": each.cause} for each in self.failures],
        }

    def _delivered(self, line: int, error: KafkaError | None, _message: Message) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self._fail(line, self._cause(error))

    def _cause(self, error: KafkaError) -> str:
        if error.code() == KafkaError._UNKNOWN_PARTITION:
            return f"sending: topic {self._topic!r} has no such partition; see `headrace topics describe`"
        return str(from_kafka(error, "sending", self._bootstrap))

    def _fail(self, line: int, cause: str) -> None:
        self.failed += 1
        if len(self.failures) < FAILURES_KEPT:
            self.failures.append(Failure(line, cause))
