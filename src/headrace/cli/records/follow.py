"""Reading ranges of partitions until they are read, or for ever. Thin I/O.

A partition is done when a record at or after its stop arrives, or the log end
is met there: offsets have gaps (markers, compaction), so counting would not do.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, TopicPartition

from headrace.cli.clients import new_reader
from headrace.cli.records.lines import ReadRecord
from headrace.cli.terminal import Output
from headrace.client.connect import UnreachableError, from_kafka
from headrace.client.topics import ANSWER_TIMEOUT_S
from headrace.clock import SystemClock
from headrace.stopping import hearing

__all__ = ["OffsetRange", "Show", "follow", "until_interrupted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """What to read of a partition: from `start`, up to but without `stop`; None goes on for ever."""

    topic: str
    partition: int
    start: int
    stop: int | None

    @property
    def empty(self) -> bool:
        return self.stop is not None and self.start >= self.stop


@contextlib.contextmanager
def until_interrupted(output: Output, *, has_end: bool) -> Iterator[None]:
    """Within, Ctrl-C and SIGTERM end the reading; of what has no end of its own that is the good end.

    Raises KeyboardInterrupt if there was an end to come to.
    """
    try:
        with hearing(_interrupt):
            yield
    except KeyboardInterrupt:
        if has_end:
            raise
        output.note("stopped")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


class Show(Protocol):
    """Takes records in the order they are read; False means that it has had enough."""

    def __call__(self, record: ReadRecord) -> bool: ...


def follow(bootstrap: str, ranges: Iterable[OffsetRange], show: Show, output: Output) -> None:
    """Shows every record of the ranges; returns when all are read or `show` has had enough.

    Raises UnreachableError when ranges that have an end stop making progress. Records
    that were deleted before they could be read are named in a note.
    """
    waiting = {each.partition: each for each in ranges if not each.empty}
    if waiting:
        _Reading(bootstrap, waiting, show, output).run()


class _Reading:
    """One tail under way."""

    def __init__(self, bootstrap: str, waiting: dict[int, OffsetRange], show: Show, output: Output) -> None:
        self.bootstrap = bootstrap
        self.waiting = waiting
        self.show = show
        self.output = output
        self.clock = SystemClock()
        self.cut_off = False

    def run(self) -> None:
        self.consumer: Consumer = new_reader(self.bootstrap, on_error=self._connection_changed)
        try:
            self.consumer.assign(
                [TopicPartition(r.topic, r.partition, r.start) for r in self.waiting.values()]
            )
            self._read()
        finally:
            self.consumer.close()

    def _read(self) -> None:
        heard_ms = self.clock.monotonic_ms()
        while self.waiting:
            messages = self.consumer.consume(500, 0.1)
            if messages:
                heard_ms = self.clock.monotonic_ms()
            elif self._bounded() and self.clock.monotonic_ms() - heard_ms > 1000 * ANSWER_TIMEOUT_S:
                waited = f"{ANSWER_TIMEOUT_S:.0f} s"
                raise UnreachableError(f"no response from {self.bootstrap} for {waited}; try again")
            for message in messages:
                if message.partition() in self.waiting and not self._take(message):
                    return

    def _bounded(self) -> bool:
        return all(each.stop is not None for each in self.waiting.values())

    def _take(self, message: Any) -> bool:
        """False once enough has been shown."""
        if message.error() is not None:
            self._take_error(message)
            return True
        self.cut_off = False
        wanted = self.waiting[message.partition()]
        if wanted.stop is not None and message.offset() >= wanted.stop:
            self._finish(wanted)
            return True
        if not self.show(_record(message)):
            return False
        if message.offset() + 1 == wanted.stop:
            self._finish(wanted)
        return True

    def _finish(self, done: OffsetRange) -> None:
        del self.waiting[done.partition]
        self.consumer.incremental_unassign([TopicPartition(done.topic, done.partition)])

    def _take_error(self, message: Any) -> None:
        error: KafkaError = message.error()
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:  # no group is used here
            return
        wanted = self.waiting[message.partition()]
        if error.code() == KafkaError._PARTITION_EOF:
            if wanted.stop is not None and message.offset() >= wanted.stop:
                self._finish(wanted)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._resume_at_log_start(wanted)
        elif not error.retriable():
            raise from_kafka(error, f"reading {wanted.topic}:{wanted.partition}", self.bootstrap)

    def _resume_at_log_start(self, wanted: OffsetRange) -> None:
        """The records that were next are gone; say so, and go on with the oldest that are left."""
        place = TopicPartition(wanted.topic, wanted.partition)
        start, _ = self.consumer.get_watermark_offsets(place, timeout=ANSWER_TIMEOUT_S)
        self.output.note(
            f"{wanted.topic}:{wanted.partition}: the records before offset {start} were deleted before they "
            f"were read; continuing at {start}"
        )
        self.waiting[wanted.partition] = replace(wanted, start=start)
        self.consumer.incremental_unassign([place])
        self.consumer.incremental_assign([TopicPartition(wanted.topic, wanted.partition, start)])

    def _connection_changed(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN and not self.cut_off:
            self.cut_off = True
            self.output.note(f"the broker at {self.bootstrap} is unreachable; waiting for it to return")


def _record(message: Any) -> ReadRecord:
    kind, timestamp_ms = message.timestamp()
    return ReadRecord(
        topic=message.topic(),
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=timestamp_ms,
        timestamp_type="append" if kind == TIMESTAMP_LOG_APPEND_TIME else "create",
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )
