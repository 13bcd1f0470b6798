"""Delayed commands: they are sent when they are due, even if nothing else happens.

A timer is a record of the compacted topic `APP.timers` whose key is the id of its command. The
owner of a partition knows all timers in it; when one is due, the command and the end of the timer
(a tombstone) are one transaction, under a transactional id of the partition, so that each is sent
once, no matter what fails when.
"""

import heapq
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from confluent_kafka import Consumer, TopicPartition

from headrace.client import EARLIEST, Connection, RawFetcher, consumer
from headrace.client.topics import SILENT_LOGGER, TopicSettings, ensure_topics
from headrace.client.write import OutputRecord, TransactionalProducer
from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.sourcing.records import Command
from headrace.sourcing.topics import read_records, wait_committed_ends

__all__ = ["Timer", "TimerQueue", "TimerWorker", "create_timers_topic", "timers_topic"]

_PARTITIONS = 4
_POLL_S = 0.2
_AGAIN_S = 0.5
_MOST_TIMERS = 500  # in one transaction


def timers_topic(app: str) -> str:
    """The topic of an application's timers."""
    return f"{app}.timers"


def create_timers_topic(connection: Connection, app: str) -> None:
    """Creates the topic if it is missing."""
    settings = TopicSettings(partitions=_PARTITIONS, configs={"cleanup.policy": "compact"})
    ensure_topics(connection, {timers_topic(app): settings})


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A command, the topic it goes to, and when."""

    command: Command
    topic: str
    due_ms: int

    def value(self) -> bytes:
        kept = {name: getattr(self.command, name) for name in _KEPT}
        return orjson.dumps({"due_ms": self.due_ms, "topic": self.topic, "command": kept})

    @classmethod
    def from_value(cls, value: bytes) -> "Timer":
        found = orjson.loads(value)
        return cls(command=Command(**found["command"]), topic=found["topic"], due_ms=found["due_ms"])


_KEPT = ("entity", "name", "data", "id", "schema", "by", "cause", "correlation", "expected")


@dataclass(slots=True)
class TimerQueue:
    """The timers of one partition that have not ended. Pure."""

    _timers: dict[bytes, Timer] = field(default_factory=dict)
    _due: list[tuple[int, bytes]] = field(default_factory=list)

    def apply(self, key: bytes, value: bytes | None) -> None:
        """A record of the topic: a timer, or the end of one."""
        if value is None:
            self._timers.pop(key, None)
            return
        timer = Timer.from_value(value)
        self._timers[key] = timer
        heapq.heappush(self._due, (timer.due_ms, key))

    def due(self, now_ms: int, most: int = _MOST_TIMERS) -> list[Timer]:
        """Those that are due, in order; they stay until `apply` learns that they ended."""
        found: dict[bytes, Timer] = {}
        while self._due and self._due[0][0] <= now_ms and len(found) < most:
            due_ms, key = heapq.heappop(self._due)
            timer = self._timers.get(key)
            if timer is not None and timer.due_ms == due_ms:
                found[key] = timer
        return list(found.values())

    def __len__(self) -> int:
        return len(self._timers)


@dataclass(slots=True)
class _Owned:
    """A partition of timers that this process owns."""

    producer: TransactionalProducer
    queue: TimerQueue


class TimerWorker:
    """A member of the group that shares an application's timers; `run` returns when `stopping` is set."""

    def __init__(
        self,
        connection: Connection,
        app: str,
        stopping: threading.Event,
        clock: Clock,
        on_message: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._app = app
        self._stopping = stopping
        self._clock = clock
        self._say = on_message
        self._owned: dict[int, _Owned] = {}
        self._failure: HeadraceError | None = None

    def run(self) -> None:
        """Sends what is due; after a failure it joins again and reads its partitions from the start."""
        while not self._stopping.is_set():
            try:
                self._fire_until_stopped()
            except HeadraceError as error:
                self._say(f"timers: {error}; trying again")
                self._stopping.wait(_AGAIN_S)

    def _fire_until_stopped(self) -> None:
        self._failure = None
        member = consumer(
            self._connection,
            timers_topic(self._app),
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            fetch_error_backoff_ms=50,
            logger=SILENT_LOGGER,
        )
        try:
            member.subscribe(
                [timers_topic(self._app)],
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_revoke,
            )
            while not self._stopping.is_set():
                self._read(member)
                if self._failure is not None:
                    raise self._failure
                for partition, owned in list(self._owned.items()):
                    self._fire(partition, owned)
        finally:
            self._release()
            member.close()

    def _read(self, member: Consumer) -> None:
        first: Any = member.poll(_POLL_S)
        messages: list[Any] = [] if first is None else [first, *member.consume(_MOST_TIMERS, 0)]
        for each in messages:
            owned = self._owned.get(each.partition())
            if each.error() is None and owned is not None and each.key() is not None:
                owned.queue.apply(each.key(), each.value())

    def _fire(self, partition: int, owned: _Owned) -> None:
        due = owned.queue.due(self._clock.now_ms())
        if not due:
            return
        records = []
        for timer in due:
            command, key = timer.command, timer.command.id.encode()
            records.append(
                OutputRecord(timer.topic, command.entity.encode(), command.value(), command.headers())
            )
            records.append(OutputRecord(timers_topic(self._app), key, None, (), partition))
        owned.producer.write(records)
        for timer in due:
            owned.queue.apply(timer.command.id.encode(), None)

    def _on_assign(self, member: Consumer, assigned: list[TopicPartition]) -> None:
        starts = []
        try:
            for each in assigned:
                owned, end = self._take_over(each.partition)
                self._owned[each.partition] = owned
                starts.append(TopicPartition(each.topic, each.partition, end))
        except HeadraceError as error:
            self._failure = error
        member.assign(starts)

    def _take_over(self, partition: int) -> tuple[_Owned, int]:
        topic = timers_topic(self._app)
        producer = TransactionalProducer(self._connection, f"{topic}-{partition}")
        producer.take_over()
        queue = TimerQueue()
        with RawFetcher(self._connection) as fetcher:
            start = fetcher.offsets(topic, EARLIEST)[partition]
            end = wait_committed_ends(fetcher, topic)[partition]
            for record in read_records(fetcher, topic, partition, start, end):
                if record.key is not None:
                    queue.apply(record.key, record.value)
        return _Owned(producer, queue), end

    def _on_revoke(self, member: Consumer, revoked: list[TopicPartition]) -> None:
        del revoked
        self._release()
        member.unassign()

    def _release(self) -> None:
        for each in self._owned.values():
            each.producer.close()
        self._owned.clear()
