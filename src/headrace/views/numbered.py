"""A transactional producer that writes each numbered batch once.

A batch is one transaction: its records, and its number. The number is the committed
offset of a consumer group (partition 0 of the topic `headrace-batches`, the query's id
in its metadata), so a repeated batch finds it with one request. Brokers forget offsets
of groups that were idle for a week or so; the number is therefore a record of that
compacted topic too, which is read when the group has none.

Who opens the producer of a name takes it over: an older one, wherever it runs, is
fenced by the broker and its open transaction aborted.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher, consumer, producer
from headrace.errors import FencedError, HeadraceError, RequestError, RetriableError
from headrace.records import decode_columns
from headrace.steps import reached
from headrace.views.topics import SILENT, TopicSettings, create_topics

__all__ = ["BATCHES_TOPIC", "NumberedProducer", "OutputRecord"]

T = TypeVar("T")

BATCHES_TOPIC = "headrace-batches"
_LEAVE_TIMEOUT_S = 5.0
_BACKOFF_S = 0.1
_REPORT_TIMEOUT_S = 1.0  # for the report of a record that was refused already
_POLL_EVERY = 1_000
_BATCHES_SETTINGS = TopicSettings(partitions=1, configs={"cleanup.policy": "compact"})

Headers = tuple[tuple[str, bytes | None], ...]


class OutputRecord(NamedTuple):
    """A record to write; without `partition` its key decides (murmur2, as Kafka's own clients do)."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class NumberedProducer:
    """Writes batches of one name; exactly one process does so at a time.

    `open` takes the name over and says which batch was the last; `write` writes the
    next one whole. After any failure the producer is closed: whether the transaction
    was committed is then known only to the log, and `open` asks it. Calls wait for
    each other.
    """

    def __init__(
        self, connection: Connection, name: str, *, properties: Mapping[str, Any] | None = None
    ) -> None:
        self.name = f"headrace-{name}"
        self._connection = connection
        self._properties = {each.replace(".", "_"): value for each, value in (properties or {}).items()}
        self._timeout_s = connection.retry_timeout_ms / 1000
        self._lock = threading.RLock()
        self._producer: Producer | None = None
        self._member: Consumer | None = None
        self._last: dict[str, int] = {}

    def open(self, query_id: str) -> int:
        """The last batch of the query that is on the log, -1 if none is; fences every other owner."""
        with self._lock:
            if self._producer is None:
                self._take_over()
            if query_id not in self._last:
                self._last = {query_id: self._find_last(query_id)}
            return self._last[query_id]

    def write(self, query_id: str, batch_id: int, records: Iterable[OutputRecord]) -> bool:
        """Writes the batch in one transaction; False if it is on the log already.

        Raises FencedError when a newer owner exists, RetriableError when the log does not
        answer: the same call may be repeated.
        """
        with self._lock:
            if batch_id <= self.open(query_id):
                return False
            self.transact(records, query_id, batch_id)
            return True

    def take_over(self) -> None:
        """Makes the name ours; what its last owner had open is committed or gone when this returns."""
        with self._lock:
            self.close()
            self._take_over()

    def transact(self, records: Iterable[OutputRecord], query_id: str, batch_id: int) -> None:
        """One transaction with this number, whatever the last one was."""
        with self._lock:
            if self._producer is None:
                self._take_over()
            try:
                self._transact(query_id, batch_id, records)
            except BaseException:
                self.close()
                raise
            self._last = {query_id: batch_id}

    @property
    def is_open(self) -> bool:
        """Whether the name is ours, as far as we know."""
        return self._producer is not None

    def close(self) -> None:
        """Aborts what is open and leaves; the next call opens anew."""
        with self._lock:
            opened, self._producer = self._producer, None
            member, self._member = self._member, None
            self._last = {}
            if opened is not None:
                # Nothing open, or nobody there: the next owner aborts it.
                with suppress(KafkaException, SystemError):
                    opened.abort_transaction(min(self._timeout_s, _LEAVE_TIMEOUT_S))
            if member is not None:
                member.close()

    # --- one step each ------------------------------------------------------------------------

    def _take_over(self) -> None:
        create_topics(self._connection, {BATCHES_TOPIC: _BATCHES_SETTINGS}, self._properties)
        opened = producer(
            self._connection,
            **{
                "transactional_id": self.name,
                "transaction_timeout_ms": 300_000,
                "partitioner": "murmur2_random",
                "compression_type": "lz4",
                "delivery_report_only_error": True,
                "linger_ms": 5,
                "logger": SILENT,
                **self._properties,
            },
        )
        _explained(self.name, lambda: opened.init_transactions(self._timeout_s))
        self._producer = opened
        self._member = consumer(self._connection, self.name, logger=SILENT, **self._properties)

    def _transact(self, query_id: str, batch_id: int, records: Iterable[OutputRecord]) -> None:
        opened, failures = self._producer, _Failures()
        assert opened is not None and self._member is not None
        _explained(self.name, opened.begin_transaction)
        reached("begun")
        for number, record in enumerate(records):
            _send(opened, record, failures)
            if number % _POLL_EVERY == 0:
                _explained(self.name, lambda: opened.poll(0))
        reached("rows written")
        _send(opened, _number_record(self.name, query_id, batch_id), failures)
        at = TopicPartition(BATCHES_TOPIC, 0, batch_id + 1, query_id)
        group = self._member.consumer_group_metadata()
        try:
            _explained(self.name, lambda: opened.send_offsets_to_transaction([at], group, self._timeout_s))
        except RetriableError:
            failures.raise_reported(opened)
            raise
        if _explained(self.name, lambda: opened.flush(self._timeout_s)):
            raise RetriableError(
                f"{self.name}: the log did not take batch {batch_id} in {self._timeout_s:.0f} s; try again"
            )
        failures.raise_first()
        reached("ledger written")
        _explained(self.name, lambda: opened.commit_transaction(self._timeout_s))
        reached("committed")

    def _find_last(self, query_id: str) -> int:
        assert self._member is not None
        member = self._member
        where = [TopicPartition(BATCHES_TOPIC, 0)]
        (found,) = self._retrying(lambda: member.committed(where, self._timeout_s))
        if found.offset >= 0:
            return int(found.offset) - 1 if found.metadata == query_id else -1
        return self._find_record(query_id)

    def _retrying(self, act: Callable[[], T]) -> T:
        """Asks again while the broker is still finding its feet; the library does not."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return _explained(self.name, act)
            except RetriableError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_BACKOFF_S)

    def _find_record(self, query_id: str) -> int:
        last = -1
        with RawFetcher(self._connection) as fetcher:
            start = fetcher.offsets(BATCHES_TOPIC, EARLIEST)[0]
            end = fetcher.offsets(BATCHES_TOPIC, LATEST)[0]
            for run in fetcher.fetch(BATCHES_TOPIC, 0, start, end):
                columns = decode_columns(run, columns=("key", "value"))
                for key, value in zip(columns["key"].to_pylist(), columns["value"].to_pylist(), strict=True):
                    if key == self.name.encode() and value is not None:
                        entry = json.loads(value)
                        last = entry["batch_id"] if entry["query_id"] == query_id else -1
        return last


class _Failures:
    """What the log refused, told by delivery reports; others are given up because of it."""

    def __init__(self) -> None:
        self.first: tuple[KafkaError, str] | None = None

    def report(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            return
        if self.first is None or self.first[0].code() in _GIVEN_UP:
            self.first = (error, message.topic())

    def raise_first(self) -> None:
        if self.first is not None:
            error, topic = self.first
            raise _ours(error, f"topic {topic!r}")

    def raise_reported(self, opened: Producer) -> None:
        """Raises the cause if a call failed because of a record that the log has refused meanwhile.

        The library then says of the call only that the transaction cannot go on; why, the
        record's report tells, which may not have been taken yet.
        """
        with suppress(KafkaException, SystemError):
            opened.poll(_REPORT_TIMEOUT_S)
        self.raise_first()


def _number_record(name: str, query_id: str, batch_id: int) -> OutputRecord:
    value = json.dumps({"query_id": query_id, "batch_id": batch_id}).encode()
    return OutputRecord(BATCHES_TOPIC, name.encode(), value, partition=0)


def _send(opened: Producer, record: OutputRecord, failures: _Failures) -> None:
    given: dict[str, Any] = {"on_delivery": failures.report}
    if record.headers:
        given["headers"] = list(record.headers)
    if record.partition is not None:
        given["partition"] = record.partition
    if record.timestamp_ms is not None:
        given["timestamp"] = record.timestamp_ms
    while True:
        try:
            opened.produce(record.topic, record.value, record.key, **given)
        except BufferError:
            _explained(f"topic {record.topic!r}", lambda: opened.poll(0.1))
            failures.raise_first()
        except KafkaException as error:
            if error.args[0].code() == KafkaError._STATE:
                failures.raise_reported(opened)
            raise _ours(_cause(opened, error.args[0]), f"topic {record.topic!r}") from error
        else:
            return


def _cause(opened: Producer, error: KafkaError) -> KafkaError:
    """What is behind an error of `produce`, which says of a fatal one only that it was; ending a
    transaction tells which. One who is fenced while it still writes meets it there."""
    if error.code() != KafkaError._FATAL:
        return error
    try:
        opened.abort_transaction(_LEAVE_TIMEOUT_S)
    except (KafkaException, SystemError) as fatal:
        return _reason(fatal)
    return error


_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_GIVEN_UP = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_RETRIABLE = (
    *_GIVEN_UP,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.CONCURRENT_TRANSACTIONS,
)


def _explained(name: str, act: Callable[[], T]) -> T:
    try:
        return act()
    except (KafkaException, SystemError) as error:
        raise _ours(_reason(error), name) from error


def _reason(error: KafkaException | SystemError) -> KafkaError:
    """What the library says. A fatal error it raises behind the back of a callback, and the
    callback's own next call into it then fails with a SystemError because of that."""
    cause = error.__cause__ if isinstance(error, SystemError) else error
    if not isinstance(cause, KafkaException):
        raise error
    reason: KafkaError = cause.args[0]
    return reason


def _ours(error: KafkaError, what: str) -> HeadraceError:
    """The client library's error as one of ours."""
    cause = f"{what}: {error.str()}"
    if error.code() in _FENCED:
        return FencedError(f"{cause}; another process took over, and this one must stop")
    if error.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._MSG_TIMED_OUT) and not error.retriable():
        return RequestError(f"{cause}; raise the topic's max.message.bytes, or send less in a record")
    if error.retriable() or error.txn_requires_abort() or error.code() in _RETRIABLE:
        return RetriableError(f"{cause}; try again", code=error.code())
    return RequestError(cause, code=error.code())
