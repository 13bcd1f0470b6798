"""Records on their way to the log: one idempotent producer for all requests.

A request hands its records over together and hears of each what became of it. The
producer's threads do the waiting; the event loop is woken once a request.
"""

import asyncio
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from headrace.client import Connection, producer
from headrace.client.connect import from_kafka
from headrace.console.workers import Workers
from headrace.errors import HeadraceError, RequestError, RetriableError

__all__ = ["ProducerRecord", "RecordMetadata", "RecordWriter"]

_TIMEOUT_MS = 15_000
_POLL_S = 0.1
_FLUSH_S = 3.0
_MOST_QUEUED_KIB = 64 * 1024
_LATER = (
    KafkaError._MSG_TIMED_OUT,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
)
_MISSING = (KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerRecord:
    """A record to write; without a partition its key picks one."""

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class RecordMetadata:
    """Where an acknowledged record is."""

    partition: int
    offset: int


WriteOutcome = RecordMetadata | HeadraceError


class RecordWriter:
    """Writes durably, and without duplicates on retry. `write` is for the event loop alone."""

    def __init__(self, connection: Connection, workers: Workers) -> None:
        self._connection = connection
        self._workers = workers
        self._lock = threading.Lock()
        self._producer: Producer | None = None
        self._closed = False

    async def write(self, topic: str, records: Sequence[ProducerRecord]) -> list[WriteOutcome]:
        """What became of each record, in their order; returns when all are acknowledged or have failed."""
        if not records:
            return []
        batch = _Batch(asyncio.get_running_loop(), len(records))
        await self._workers.run(self._send, topic, records, batch)
        return await batch.done

    def _send(self, topic: str, records: Sequence[ProducerRecord], batch: "_Batch") -> None:
        for index, record in enumerate(records):
            try:
                self._produce(topic, record, partial(self._delivered, batch, index))
            except KafkaException as raised:
                batch.enter(index, self._failure(raised.args[0], topic))
            except HeadraceError as error:
                batch.enter(index, error)

    def _produce(self, topic: str, record: ProducerRecord, delivered: Any) -> None:
        options: dict[str, Any] = {"on_delivery": delivered}
        if record.partition is not None:
            options["partition"] = record.partition
        if record.timestamp_ms is not None:
            options["timestamp"] = record.timestamp_ms
        if record.headers:
            options["headers"] = list(record.headers)
        deadline = time.monotonic() + _TIMEOUT_MS / 1000
        while True:
            try:
                self._client().produce(topic, value=record.value, key=record.key, **options)
            except BufferError:
                if time.monotonic() > deadline:
                    raise RetriableError("too many records are waiting for the log; try again") from None
                time.sleep(_POLL_S / 10)  # the poller makes room
            else:
                return

    def _delivered(self, batch: "_Batch", index: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            batch.enter(index, RecordMetadata(message.partition() or 0, message.offset() or 0))
            return
        if error.fatal():
            with self._lock:
                self._producer = None  # the next write begins with a new one
        batch.enter(index, self._failure(error, message.topic() or "the log"))

    def _failure(self, error: KafkaError, topic: str) -> HeadraceError:
        """Why a record was not written, and so whether the same may succeed later."""
        doing = f"writing to {topic}"
        if error.code() in _LATER:
            return RetriableError(
                f"{doing}: {error.str()}; the log is unreachable or not ready", code=error.code()
            )
        if error.code() in _MISSING:
            code = KafkaError.UNKNOWN_TOPIC_OR_PART
            return RequestError(f"{doing}: there is no such topic or partition", code=code)
        return from_kafka(error, doing, self._connection.bootstrap_servers)

    def _client(self) -> Producer:
        with self._lock:
            if self._closed:
                raise RetriableError("the console is shutting down; try again")
            if self._producer is None:
                self._producer = _new_producer(self._connection)
                threading.Thread(
                    target=self._poll, args=(self._producer,), name="headrace-console-writer", daemon=True
                ).start()
            return self._producer

    def _poll(self, client: Producer) -> None:
        while not self._closed and (client is self._producer or len(client)):
            client.poll(_POLL_S)

    def close(self) -> None:
        """Waits a little for what is under way, then gives it up."""
        with self._lock:
            self._closed = True
            client = self._producer
        if client is not None:
            client.flush(_FLUSH_S)


def _new_producer(connection: Connection) -> Producer:
    return producer(
        connection,
        enable_idempotence=True,
        partitioner="murmur2_random",
        linger_ms=2,
        message_timeout_ms=_TIMEOUT_MS,
        message_max_bytes=64 * 1024 * 1024,
        queue_buffering_max_kbytes=_MOST_QUEUED_KIB,
        queue_buffering_max_messages=200_000,
        log_level=0,
        error_cb=lambda _: None,
    )


class _Batch:
    """The outcomes of one request's records; `done` is set, on its loop, when the last one is in."""

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int) -> None:
        self.done: asyncio.Future[list[WriteOutcome]] = loop.create_future()
        self._loop = loop
        self._lock = threading.Lock()
        self._outcomes: list[WriteOutcome | None] = [None] * count
        self._left = count

    def enter(self, index: int, outcome: WriteOutcome) -> None:
        """Any thread, once for each record."""
        with self._lock:
            self._outcomes[index] = outcome
            self._left -= 1
            last = self._left == 0
        if last and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._finish)

    def _finish(self) -> None:
        if not self.done.done():
            self.done.set_result([each for each in self._outcomes if each is not None])
