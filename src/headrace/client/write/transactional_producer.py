"""Writes records in transactions under one name, of which there is one owner at a time.

`write` is for few records that are all known; `transact` for a stream of them, however long, whose
last records depend on the offsets of the others, such as the cut that ends a captured transaction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.client.connect import Connection
from headrace.client.connect.clients import producer
from headrace.client.record_sizes import LARGEST_RECORD_BYTES
from headrace.client.topics import SILENT_LOGGER
from headrace.client.write.record_block import RecordBlock, one_record_at_a_time
from headrace.client.write.transactions import Failures, OutputRecord, explained, explained_call, send
from headrace.crash_points import reached
from headrace.errors import FencedError, RetriableError

__all__ = ["NextOffsets", "TransactionalProducer"]

NextOffsets = Mapping[tuple[str, int], int]

_LEAVE_TIMEOUT_S = 5.0
_POLL_EVERY = 500


class TransactionalProducer:
    """Writes transactions under a name; taking the name over fences every other owner.

    After any failure it is closed: only the log knows then whether the transaction was
    committed, so the caller takes over again and reads what is there. For one thread.
    """

    def __init__(
        self, connection: Connection, name: str, *, properties: Mapping[str, Any] | None = None
    ) -> None:
        self.name = f"headrace-{name}"
        self._connection = connection
        self._properties = dict(properties or {})
        self._timeout_s = connection.retry_timeout_ms / 1000
        self._producer: Producer | None = None

    def take_over(self) -> None:
        """Fences the last owner, whose transaction is committed or aborted when this returns."""
        self.close()
        opened = producer(
            self._connection,
            **{
                "transactional_id": self.name,
                "transaction_timeout_ms": 60_000,
                "partitioner": "murmur2_random",
                "compression_type": "lz4",
                "message_max_bytes": LARGEST_RECORD_BYTES,
                "linger_ms": 0,
                "logger": SILENT_LOGGER,
                **self._properties,
            },
        )
        explained(self.name, lambda: opened.init_transactions(self._timeout_s))
        self._producer = opened

    def write(
        self,
        records: Sequence[OutputRecord],
        *,
        first_offset: int | None = None,
        offsets: tuple[Consumer, Sequence[TopicPartition]] | None = None,
    ) -> None:
        """Writes all of them or none.

        With `first_offset`, the first record must get that offset, or nothing is written and
        RetriableError is raised. `offsets` are committed for the consumer's group in the same
        transaction, unless its membership has ended: FencedError then.
        """
        try:
            self._write(self._opened(), records, first_offset, offsets)
        except BaseException:
            self.close()
            raise

    def transact(
        self,
        records: Iterable[OutputRecord | RecordBlock],
        last: Callable[[NextOffsets], Iterable[OutputRecord]],
    ) -> None:
        """Writes the records, and, once the log has taken them all, those that `last` makes of their offsets.

        All in one transaction: readers see every record or none. Raises FencedError when there
        is a newer owner, RetriableError when the log does not answer.
        """
        try:
            self._transact(records, last)
        except BaseException:
            self.close()
            raise

    def _opened(self) -> Producer:
        if self._producer is None:
            raise RetriableError(f"{self.name} is closed; take it over first")
        return self._producer

    def _write(
        self,
        opened: Producer,
        records: Sequence[OutputRecord],
        first_offset: int | None,
        offsets: tuple[Consumer, Sequence[TopicPartition]] | None,
    ) -> None:
        failures, first = Failures(), _FirstOffset()
        explained(self.name, opened.begin_transaction)
        for number, record in enumerate(records):
            watched = first.report if number == 0 and first_offset is not None else None
            send(opened, record, failures, on_written=watched)
        if offsets is not None:
            self._send_offsets(opened, *offsets)
        if explained_call(self.name, opened, lambda: opened.flush(self._timeout_s)):
            failures.raise_first()
            raise RetriableError(
                f"{self.name}: the log did not take a transaction in {self._timeout_s:.0f} s"
            )
        failures.raise_first()
        if first.written != first_offset:
            raise RetriableError(
                f"{self.name}: a record got offset {first.written} instead of {first_offset}; "
                "somebody else writes to that topic"
            )
        explained_call(self.name, opened, lambda: opened.commit_transaction(self._timeout_s))

    def _transact(
        self,
        records: Iterable[OutputRecord | RecordBlock],
        last: Callable[[NextOffsets], Iterable[OutputRecord]],
    ) -> None:
        opened, reports = self._opened(), _Reports()
        explained(self.name, opened.begin_transaction)
        reached("begun")
        for number, record in enumerate(one_record_at_a_time(records)):
            send(opened, record, reports)
            if number % _POLL_EVERY == 0:
                explained_call(self.name, opened, lambda: opened.poll(0))
        self._flush(opened, reports)
        reached("rows written")
        for record in last(reports.next_offsets):
            send(opened, record, reports)
        self._flush(opened, reports)
        reached("ledger written")
        explained_call(self.name, opened, lambda: opened.commit_transaction(self._timeout_s))
        reached("committed")

    def _flush(self, opened: Producer, reports: "_Reports") -> None:
        if explained_call(self.name, opened, lambda: opened.flush(self._timeout_s)):
            reports.raise_first()
            raise RetriableError(f"{self.name}: the log took nothing for {self._timeout_s:.0f} s; try again")
        reports.raise_first()

    def _send_offsets(self, opened: Producer, member: Consumer, offsets: Sequence[TopicPartition]) -> None:
        group = member.consumer_group_metadata()
        try:
            opened.send_offsets_to_transaction(list(offsets), group, self._timeout_s)
        except KafkaException as error:
            if error.args[0].code() in _LEFT:
                raise FencedError(f"{self.name}: the group has given its partitions to others") from error
            explained(self.name, _raising(error))

    def close(self) -> None:
        """Aborts an open transaction; harmless when repeated."""
        opened, self._producer = self._producer, None
        if opened is not None:
            with suppress(KafkaException, SystemError):
                opened.abort_transaction(min(self._timeout_s, _LEAVE_TIMEOUT_S))


class _Reports(Failures):
    """Delivery reports: the offset after the last record of each partition, and what was refused."""

    def __init__(self) -> None:
        super().__init__()
        self.next_offsets: dict[tuple[str, int], int] = {}

    def report(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.next_offsets[message.topic(), message.partition()] = message.offset() + 1
        else:
            super().report(error, message)


class _FirstOffset:
    """The offset that the first record of a transaction got, from its delivery report."""

    def __init__(self) -> None:
        self.written: int | None = None

    def report(self, message: Any) -> None:
        self.written = message.offset()


def _raising(error: KafkaException) -> Callable[[], None]:
    def act() -> None:
        raise error

    return act


_LEFT = (
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._FENCED,
)
