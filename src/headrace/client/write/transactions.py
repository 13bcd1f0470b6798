"""Writes numbered batches in transactions, each exactly once.

A batch is one transaction: its records, and its number. The number is the committed
offset of a consumer group (partition 0 of the topic `headrace-batches`, with the query's id
in its metadata), so a repeated batch is recognised with one request. Brokers forget the
offsets of groups that have been idle for a week or so; the number is therefore also a record
of that compacted topic, which is read when the group has no offset.

Opening a writer takes over its name: an older writer of that name, wherever it runs, is
fenced by the broker and its open transaction aborted.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.client.connect import Connection
from headrace.client.connect.clients import consumer, producer
from headrace.client.fetcher import EARLIEST, LATEST, RawFetcher
from headrace.client.record_sizes import LARGEST_RECORD_BYTES
from headrace.client.topics import SILENT_LOGGER, TopicSettings, ensure_topics, named_configs
from headrace.crash_points import reached
from headrace.errors import FencedError, HeadraceError, RequestError, RetriableError
from headrace.records import Headers, decode_columns

__all__ = [
    "BATCHES_TOPIC",
    "Failures",
    "OutputRecord",
    "RecordTooLarge",
    "TransactionalWriter",
    "explained",
    "explained_call",
    "send",
    "smaller_limit",
    "transactional_id",
]

T = TypeVar("T")

BATCHES_TOPIC = "headrace-batches"
_LEAVE_TIMEOUT_S = 5.0
_BACKOFF_S = 0.1
_LEAST_BYTES = 1_024  # no topic takes less
_LIMIT = "max.message.bytes"
_REPORT_TIMEOUT_S = 5.0  # for the report of a record that has been refused
_POLL_EVERY = 1_000
_BATCH_BYTES = 1_000_000  # of several records; a topic may take smaller batches only, and then says so
_BATCHES_SETTINGS = TopicSettings(partitions=1, configs={"cleanup.policy": "compact"})


def transactional_id(name: str) -> str:
    """The transactional id of a writer's name."""
    return f"headrace-{name}"


class OutputRecord(NamedTuple):
    """A record to write; without `partition` its key decides (murmur2, as in Kafka's own clients)."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class RecordTooLarge(RequestError):  # noqa: N818 - what has happened, not what is wrong
    """A topic refused a record batch for its size.

    `takes` is the topic's limit, as far as it is known.
    """

    def __init__(self, message: str, *, topic: str, takes: int | None = None) -> None:
        super().__init__(message, code=KafkaError.MSG_SIZE_TOO_LARGE)
        self.topic = topic
        self.takes = takes


def smaller_limit(refused: RecordTooLarge, most_bytes: int) -> int:
    """The size limit for the next attempt, after a record within `most_bytes` was refused.

    The topic's limit, or half of `most_bytes` if the limit is unknown or was refused, too. Raises the
    refusal if that is too small for any record.
    """
    takes = refused.takes
    lower = takes if takes is not None and takes < most_bytes else most_bytes // 2
    if lower < _LEAST_BYTES:
        raise refused
    return lower


class TransactionalWriter:
    """Writes the batches of one name; exactly one process does so at a time.

    `open` takes over the name and says which batch was the last; `write` writes the next
    one atomically. After any failure the writer is closed: only the log knows then whether
    the transaction was committed, and `open` asks it. Calls from several threads wait for
    each other.

    `require_owner` is called whenever the name has been taken over, before anything is
    written, and raises FencedError if this process must not own it. A rightful owner that
    was fenced by such a process writes again.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        properties: Mapping[str, Any] | None = None,
        require_owner: Callable[[], None] | None = None,
    ) -> None:
        self.name = transactional_id(name)
        self._connection = connection
        self._properties = {each.replace(".", "_"): value for each, value in (properties or {}).items()}
        self._require_owner = require_owner
        self._timeout_s = connection.retry_timeout_ms / 1000
        self._lock = threading.RLock()
        self._producer: Producer | None = None
        self._member: Consumer | None = None
        self._last: dict[str, int] = {}
        self._batch_bytes = _BATCH_BYTES

    def open(self, query_id: str) -> int:
        """The last batch of the query that is on the log, or -1; fences every other owner."""
        with self._lock:
            if self._producer is None:
                self._take_over()
            if query_id not in self._last:
                self._last = {query_id: self._find_last(query_id)}
            return self._last[query_id]

    def write(self, query_id: str, batch_id: int, records: Iterable[OutputRecord]) -> bool:
        """Writes the batch in one transaction; False if it is on the log already.

        Raises FencedError when there is a newer owner, RetriableError when the log does not
        answer: the call may then be repeated.
        """
        with self._lock:
            if batch_id <= self.open(query_id):
                return False
            self.transact(records, query_id, batch_id)
            return True

    def take_over(self) -> None:
        """Takes over the name; its last owner's transaction is committed or aborted when this returns."""
        with self._lock:
            self.close()
            self._take_over()

    def transact(self, records: Iterable[OutputRecord], query_id: str, batch_id: int) -> None:
        """Writes one transaction with this number, whatever the last one was."""
        with self._lock:
            if self._producer is None:
                self._take_over()
            try:
                self._transact(query_id, batch_id, records)
            except RecordTooLarge as refused:
                self.close()
                raise self._with_limit(refused) from refused
            except FencedError as error:
                self.close()
                if self._require_owner is None:
                    raise
                self._require_owner()
                raise RetriableError(f"{self.name} was taken over by an older run; try again") from error
            except BaseException:
                self.close()
                raise
            self._last = {query_id: batch_id}

    @property
    def is_open(self) -> bool:
        """Whether this process owns the name, as far as it knows."""
        return self._producer is not None

    def close(self) -> None:
        """Aborts an open transaction and closes the clients; the next call opens new ones."""
        with self._lock:
            opened, self._producer = self._producer, None
            member, self._member = self._member, None
            self._last = {}
            if opened is not None:
                # No open transaction, or no broker: the next owner aborts it.
                with suppress(KafkaException, SystemError):
                    opened.abort_transaction(min(self._timeout_s, _LEAVE_TIMEOUT_S))
            if member is not None:
                member.close()

    def _with_limit(self, refused: RecordTooLarge) -> RecordTooLarge:
        """The refusal with the topic's limit, which batches of several records respect from now on."""
        found = named_configs(self._connection, [refused.topic], [_LIMIT]).get(refused.topic, {}).get(_LIMIT)
        takes = int(found) if found else None
        self._batch_bytes = min(self._batch_bytes, takes or self._batch_bytes // 2)
        return RecordTooLarge(str(refused), topic=refused.topic, takes=takes)

    # --- one step each ------------------------------------------------------------------------

    def _take_over(self) -> None:
        ensure_topics(self._connection, {BATCHES_TOPIC: _BATCHES_SETTINGS}, self._properties)
        opened = producer(
            self._connection,
            **{
                "transactional_id": self.name,
                "transaction_timeout_ms": 300_000,
                "partitioner": "murmur2_random",
                "compression_type": "lz4",
                "delivery_report_only_error": True,
                "message_max_bytes": LARGEST_RECORD_BYTES,
                "batch_size": self._batch_bytes,
                "linger_ms": 5,
                "logger": SILENT_LOGGER,
                **self._properties,
            },
        )
        explained(self.name, lambda: opened.init_transactions(self._timeout_s))
        if self._require_owner is not None:
            self._require_owner()
        self._producer = opened
        self._member = consumer(self._connection, self.name, logger=SILENT_LOGGER, **self._properties)

    def _transact(self, query_id: str, batch_id: int, records: Iterable[OutputRecord]) -> None:
        opened, failures = self._producer, Failures()
        assert opened is not None and self._member is not None
        explained(self.name, opened.begin_transaction)
        reached("begun")
        for number, record in enumerate(records):
            send(opened, record, failures)
            if number % _POLL_EVERY == 0:
                explained_call(self.name, opened, lambda: opened.poll(0))
        reached("rows written")
        send(opened, _number_record(self.name, query_id, batch_id), failures)
        at = TopicPartition(BATCHES_TOPIC, 0, batch_id + 1, query_id)
        group = self._member.consumer_group_metadata()
        try:
            explained_call(
                self.name,
                opened,
                lambda: opened.send_offsets_to_transaction([at], group, self._timeout_s),
            )
        except RetriableError:
            failures.raise_reported(opened)
            raise
        if explained_call(self.name, opened, lambda: opened.flush(self._timeout_s)):
            raise RetriableError(
                f"{self.name}: the log did not take batch {batch_id} in {self._timeout_s:.0f} s; try again"
            )
        failures.raise_first()
        reached("ledger written")
        explained_call(self.name, opened, lambda: opened.commit_transaction(self._timeout_s))
        reached("committed")

    def _find_last(self, query_id: str) -> int:
        assert self._member is not None
        member = self._member
        where = [TopicPartition(BATCHES_TOPIC, 0)]

        def committed() -> TopicPartition:
            (answer,) = member.committed(where, self._timeout_s)
            if answer.error is not None:
                raise KafkaException(answer.error)
            return answer

        found = self._retrying(committed)
        if found.offset >= 0:
            return int(found.offset) - 1 if found.metadata == query_id else -1
        return self._find_record(query_id)

    def _retrying(self, act: Callable[[], T]) -> T:
        """Retries while the coordinator is still loading; the library does not."""
        deadline = time.monotonic() + self._timeout_s
        while True:
            try:
                return explained(self.name, act)
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


class Failures:
    """Records that the log refused, from delivery reports; others are purged because of them."""

    def __init__(self) -> None:
        self.first: tuple[KafkaError, str] | None = None

    def report(self, error: KafkaError | None, message: Any) -> None:
        """A delivery report."""
        if error is None:
            return
        if self.first is None or self.first[0].code() in _PURGED:
            self.first = (error, message.topic())

    def or_written(
        self, on_written: Callable[[Any], None] | None
    ) -> Callable[[KafkaError | None, Any], None]:
        """What a delivery report is handed to."""
        if on_written is None:
            return self.report

        def report(error: KafkaError | None, message: Any) -> None:
            self.report(error, message)
            if error is None:
                on_written(message)

        return report

    def raise_first(self) -> None:
        """Raises why the first record was refused, if one was."""
        if self.first is not None:
            error, topic = self.first
            raise _refusal(error, topic)

    def raise_reported(self, opened: Producer) -> None:
        """Raises the cause if a call failed because the log has refused a record meanwhile.

        Of the call, the library then only says that the transaction cannot continue; the reason
        is in the record's delivery report, which may not have been served yet. One call of `poll`
        may serve a line of the library's log instead, so it is polled until there is a report.
        """
        deadline = time.monotonic() + _REPORT_TIMEOUT_S
        with suppress(KafkaException, SystemError):
            while self.first is None and (left := deadline - time.monotonic()) > 0:
                opened.poll(left)
        self.raise_first()


def _number_record(name: str, query_id: str, batch_id: int) -> OutputRecord:
    value = json.dumps({"query_id": query_id, "batch_id": batch_id}).encode()
    return OutputRecord(BATCHES_TOPIC, name.encode(), value, partition=0)


def send(
    opened: Producer,
    record: OutputRecord,
    failures: Failures,
    on_written: Callable[[Any], None] | None = None,
) -> None:
    """Hands a record to the library, waiting while its queue is full; raises why it is refused.

    What is refused later is reported to `failures`, success to `on_written`.
    """
    given: dict[str, Any] = {"on_delivery": failures.or_written(on_written)}
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
            explained(f"topic {record.topic!r}", lambda: opened.poll(0.1))
            failures.raise_first()
        except KafkaException as error:
            if error.args[0].code() == KafkaError._STATE:
                failures.raise_reported(opened)
                raise RetriableError(f"topic {record.topic!r}: the transaction failed; try again") from error
            raise _refusal(_cause(opened, error.args[0]), record.topic) from error
        else:
            return


def _cause(opened: Producer, error: KafkaError) -> KafkaError:
    """The reason for an error of `produce`, which only says that it was fatal; aborting the
    transaction tells which. A writer that is fenced while it still writes finds out here."""
    if error.code() != KafkaError._FATAL:
        return error
    try:
        opened.abort_transaction(_LEAVE_TIMEOUT_S)
    except (KafkaException, SystemError) as fatal:
        return _reason(fatal)
    return error


_FENCED = (KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)
_RETRIABLE = (
    *_PURGED,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.UNSTABLE_OFFSET_COMMIT,
    KafkaError.CONCURRENT_TRANSACTIONS,
)


def explained(name: str, act: Callable[[], T]) -> T:
    """What the call returns; the library's errors become ours."""
    try:
        return act()
    except (KafkaException, SystemError) as error:
        raise _translated(_reason(error), name) from error


def explained_call(name: str, opened: Producer, act: Callable[[], T]) -> T:
    """What a call within a transaction returns, as `explained`.

    A fatal error may leave the library without a word of it: aborting tells which it was.
    """
    try:
        return explained(name, act)
    except SystemError:
        explained(name, lambda: opened.abort_transaction(_LEAVE_TIMEOUT_S))
        raise RetriableError(f"{name}: the transaction failed; try again") from None


def _reason(error: KafkaException | SystemError) -> KafkaError:
    """The library's error. It raises a fatal one while a callback runs, and the callback's own
    next call into the library then fails with a SystemError because of that."""
    cause = error.__cause__ if isinstance(error, SystemError) else error
    if not isinstance(cause, KafkaException):
        raise error
    reason: KafkaError = cause.args[0]
    return reason


def _refusal(error: KafkaError, topic: str) -> HeadraceError:
    """Why a record was refused."""
    cause = f"topic {topic!r}"
    if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
        advice = "raise the topic's max.message.bytes, or send smaller records"
        return RecordTooLarge(f"{cause}: {error.str()}; {advice}", topic=topic)
    return _translated(error, cause)


def _translated(error: KafkaError, what: str) -> HeadraceError:
    """The client library's error as one of ours."""
    cause = f"{what}: {error.str()}"
    if error.code() in _FENCED:
        return FencedError(f"{cause}; another process has taken over, so this one must stop")
    if error.code() == KafkaError._MSG_TIMED_OUT and not error.retriable():
        return RequestError(f"{cause}; raise the topic's max.message.bytes, or send smaller records")
    if error.retriable() or error.txn_requires_abort() or error.code() in _RETRIABLE:
        return RetriableError(f"{cause}; try again", code=error.code())
    return RequestError(cause, code=error.code())
