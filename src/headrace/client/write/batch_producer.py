"""Writes transactions in record batches of our own making, without a client library in between.

The same promises as `TransactionalProducer.transact`, for a fraction of the processor time: records that
are encoded already (`RecordBlock`) go into batches by a kernel, and batches to the leaders of their
partitions by plain Produce requests, one at a time for each broker, so that a request that has to be
repeated never overtakes another. A sequence number lets the broker recognise what it has already.

The protocol is that of every Kafka since 3.1: InitProducerId fences the last owner,
AddPartitionsToTxn names partitions before their first batch, EndTxn ends the transaction. Where the
brokers have agreed on transaction version 2 (KIP-890), batches name their partitions themselves, and each
transaction has an epoch of its own, which the end of the last one gives.

A transaction that is open for too long is aborted by its coordinator, which also takes the epoch from its
producer: to that one it looks like a takeover. DescribeTransactions tells them apart. What has expired is
aborted under the next epoch; a new owner has an empty transaction, or a later epoch.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from headrace.client.connect import Channel, Connection
from headrace.client.connect.brokers import Brokers, check_code
from headrace.client.record_sizes import LARGEST_RECORD_BYTES
from headrace.client.write.open_batches import OpenBatches, PlainBatch
from headrace.client.write.record_block import RecordBlock
from headrace.client.write.transactional_producer import NextOffsets
from headrace.client.write.transactions import OutputRecord, RecordTooLarge
from headrace.crash_points import reached
from headrace.errors import ConfigError, FencedError, HeadraceError, RequestError, RetriableError
from headrace.records import TRANSACTIONAL_BIT, BatchHeader, Codec, assemble
from headrace.wire import Api, ErrorCode, Fields

__all__ = ["BatchProducer", "TransactionExpired"]

T = TypeVar("T")

_VERSIONS = {
    Api.METADATA: 12,
    Api.FIND_COORDINATOR: 4,
    Api.INIT_PRODUCER_ID: 4,
    Api.ADD_PARTITIONS_TO_TXN: 3,
    Api.PRODUCE: 9,
    Api.END_TXN: 3,
    Api.DESCRIBE_TRANSACTIONS: 0,
}
_TRANSACTION_VERSION, _EPOCH_EACH = "transaction.version", 2
_VERSIONS_OF_2 = {Api.PRODUCE: 12, Api.END_TXN: 5}
_ALL_REPLICAS = -1
_OF_TRANSACTIONS = 1  # the kind of coordinator
_REQUEST_BYTES = 1 << 20
_WORTH_COMPRESSING_BYTES = 1 << 10
_METADATA_S = 300.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.005, 0.5
_SEQUENCES = 1 << 31
_FENCED = (ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch)
# The transaction is over, one way or another: whoever takes over again finds out which.
_LOST = (
    ErrorCode.invalid_txn_state,
    ErrorCode.out_of_order_sequence_number,
    ErrorCode.duplicate_sequence_number,
    ErrorCode.unknown_producer_id,
    ErrorCode.invalid_producer_id_mapping,
    ErrorCode.transaction_coordinator_fenced,
    ErrorCode.transaction_abortable,
)
_WAIT = (ErrorCode.concurrent_transactions, ErrorCode.not_enough_replicas)
_ABORTED = ("PrepareAbort", "CompleteAbort")
_TOO_LARGE = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)

Place = tuple[str, int]


class _Lost(RetriableError):  # noqa: N818 - what has happened
    """The transaction cannot go on, but another can."""


class TransactionExpired(RetriableError):  # noqa: N818 - what has happened
    """The log has aborted a transaction that was open for longer than `timeout_ms`; nobody has taken over."""

    def __init__(self, name: str, timeout_ms: int) -> None:
        super().__init__(
            f"{name}: the log aborted a transaction that took longer than {timeout_ms / 1000:g} s to write"
        )
        self.timeout_ms = timeout_ms


class BatchProducer:
    """Writes transactions under a name; taking the name over fences every other owner.

    A transaction may take as long as the first of `timeouts_ms` that the log allows: `timeout_ms`, once
    it is the owner.

    After any failure it is closed: only the log knows then whether the transaction was
    committed, so the caller takes over again and reads what is there. For one thread.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        *,
        timeouts_ms: Sequence[int] = (60_000,),
        codec: Codec = Codec.ZSTD,
    ) -> None:
        self.name = f"headrace-{name}"
        self._connection = connection
        self._timeouts_ms = timeouts_ms
        self.timeout_ms = timeouts_ms[-1]
        self._codec = codec
        self._timeout_s = connection.retry_timeout_ms / 1000
        self._brokers: Brokers | None = None
        self._coordinator: tuple[str, int] | None = None
        self._leaders: dict[str, Mapping[int, int]] = {}
        self._learned_at = 0.0
        self._producer_id, self._epoch = -1, -1
        self._sequences: dict[Place, int] = {}
        self._batches = OpenBatches(self._partitions, self._take)
        self._queue: dict[int, dict[Place, PlainBatch]] = {}  # by leader
        self._sent: dict[int, tuple[Channel, Sequence[_Sealed]]] = {}  # whose answers are to come
        self._added: set[Place] = set()
        self._next_offsets: dict[Place, int] = {}
        self._is_open = False
        self._has_own_epochs = False  # its transactions

    def take_over(self) -> None:
        """Fences the last owner, whose transaction is committed or aborted when this returns."""
        self.close()
        self._brokers = Brokers(self._connection, _VERSIONS, forget=self._forget)
        try:
            answer = self._initialized()
            self._has_own_epochs = self._brokers.features().get(_TRANSACTION_VERSION, 0) >= _EPOCH_EACH
            if self._has_own_epochs:
                self._brokers.speak(_VERSIONS_OF_2)
        except BaseException:
            self.close()
            raise
        self._continue_as(answer)

    def _continue_as(self, answer: Fields) -> None:
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()

    def transact(
        self,
        records: Iterable[OutputRecord | RecordBlock],
        last: Callable[[NextOffsets], Iterable[OutputRecord]],
    ) -> None:
        """Writes the records, and, once the log has taken them all, those that `last` makes of their offsets.

        All in one transaction: readers see every record or none. Raises FencedError when there
        is a newer owner, TransactionExpired when it took too long, and RetriableError when the log does
        not answer.
        """
        try:
            self._transact(records, last)
        except (FencedError, _Lost) as error:
            has_expired, self._is_open = self._has_expired(), False
            self.close()
            if has_expired:
                raise TransactionExpired(self.name, self.timeout_ms) from error
            raise
        except BaseException:
            self.close()
            raise

    def write(self, records: Sequence[OutputRecord], *, first_offset: int | None = None) -> None:
        """Writes all of them or none.

        With `first_offset`, the first record must get that offset, and those of its partition the next
        ones, or nothing is written and RetriableError is raised.
        """
        for each in records:
            if len(each.value or b"") > LARGEST_RECORD_BYTES:
                raise _too_large(each.topic)

        def require_place(next_offsets: NextOffsets) -> Iterable[OutputRecord]:
            if first_offset is not None:
                self._require_place(records, next_offsets, first_offset)
            return ()

        self.transact(records, require_place)

    def close(self) -> None:
        """Aborts an open transaction; harmless when repeated."""
        brokers, is_open = self._brokers, self._is_open
        self._brokers, self._is_open = None, False
        self._batches.clear()
        self._queue.clear()
        self._sent.clear()
        if brokers is None:
            return
        where = self._coordinator
        brokers.close()  # answers that are still to come must not be taken for others
        if is_open and where is not None:
            with suppress(HeadraceError):
                brokers.ask(brokers.at(*where), Api.END_TXN, self._end(commit=False))
        brokers.close()

    # --- a transaction ------------------------------------------------------------------------

    def _transact(
        self,
        records: Iterable[OutputRecord | RecordBlock],
        last: Callable[[NextOffsets], Iterable[OutputRecord]],
    ) -> None:
        self._opened()
        self._added.clear()
        self._next_offsets = {}
        if time.monotonic() - self._learned_at > _METADATA_S:
            self._leaders.clear()
            self._batches.clear()
        reached("begun")
        self._write(records)
        reached("rows written")
        self._write(last(self._next_offsets))
        reached("ledger written")
        if self._added:
            answer = self._coordinate(Api.END_TXN, self._end(commit=True), lambda each: [each.error_code])
            if self._has_own_epochs:
                self._continue_as(answer)
        self._is_open = False
        reached("committed")

    def _write(self, records: Iterable[OutputRecord | RecordBlock]) -> None:
        """Writes them; the log has them all when this returns."""
        for each in records:
            self._batches.add(each)
        self.flush()

    def flush(self) -> None:
        """Waits until the log has every record of the transaction so far; within `transact`."""
        self._batches.flush()
        for leader in list(self._queue):
            self._send(leader)
        self._collect_all()

    def _end(self, *, commit: bool) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self._producer_id,
            "producer_epoch": self._epoch,
            "committed": commit,
        }

    def _opened(self) -> Brokers:
        if self._brokers is None:
            raise RetriableError(f"{self.name} is closed; take it over first")
        return self._brokers

    def _require_place(
        self, records: Sequence[OutputRecord], next_offsets: NextOffsets, first_offset: int
    ) -> None:
        topic, partition = records[0].topic, records[0].partition
        beside = sum(each.topic == topic and each.partition == partition for each in records)
        first = next_offsets[topic, partition or 0] - beside
        if first != first_offset:
            raise RetriableError(
                f"{self.name}: a record got offset {first} instead of {first_offset}; "
                "somebody else writes to that topic"
            )

    # --- batches ------------------------------------------------------------------------------

    def _take(self, batch: PlainBatch) -> None:
        """Queues a batch; sends what is queued for its broker when that is enough for a request."""
        leader = self._leader(batch.topic, batch.partition)
        place = (batch.topic, batch.partition)
        if place in self._queue.get(leader, ()):
            self._send(leader)
        queue = self._queue.setdefault(leader, {})
        queue[place] = batch
        del batch  # which may be large: once it is compressed, nobody needs it
        if sum(len(each.records) for each in queue.values()) >= _REQUEST_BYTES:
            self._send(leader)

    def _send(self, leader: int) -> None:
        """Sends what is queued, once the broker has answered what it got before."""
        queued = self._queue.pop(leader, {})
        if not queued:
            return
        self._collect(leader)
        self._add_partitions([each for each in queued if each not in self._added])
        sealed = [self._sealed(queued.pop(place)) for place in list(queued)]
        try:
            channel = self._opened().node(leader)
            channel.ask(Api.PRODUCE, self._opened().version_of(Api.PRODUCE), self._produce(sealed))
        except RetriableError:
            self._forget_connections()
            self._repeat(sealed)
        else:
            self._sent[leader] = (channel, sealed)

    def _sealed(self, batch: PlainBatch) -> "_Sealed":
        place = (batch.topic, batch.partition)
        sequence = self._sequences.get(place, 0)
        self._sequences[place] = (sequence + batch.count) % _SEQUENCES
        codec = self._codec if len(batch.records) >= _WORTH_COMPRESSING_BYTES else Codec.NONE
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            leader_epoch=-1,
            magic=2,
            crc=0,
            attributes=codec | TRANSACTIONAL_BIT,
            last_offset_delta=batch.count - 1,
            base_timestamp=batch.base_timestamp_ms,
            max_timestamp=batch.max_timestamp_ms,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            record_count=batch.count,
        )
        return _Sealed(place, assemble(header, batch.records), batch.count)

    def _produce(self, batches: Sequence["_Sealed"]) -> dict[str, Any]:
        by_topic: dict[str, list[dict[str, Any]]] = {}
        for each in batches:
            topic, partition = each.place
            by_topic.setdefault(topic, []).append({"index": partition, "records": each.batch})
        return {
            "transactional_id": self.name,
            "acks": _ALL_REPLICAS,
            "timeout": self._connection.request_timeout_ms,
            "topic_data": [
                {"name": topic, "partition_data": partitions} for topic, partitions in by_topic.items()
            ],
        }

    def _collect_all(self) -> None:
        for leader in list(self._sent):
            self._collect(leader)

    def _collect(self, leader: int) -> None:
        """Waits for the answer to what was sent to a broker, and repeats what it asks to be repeated."""
        if leader not in self._sent:
            return
        channel, batches = self._sent.pop(leader)
        try:
            answer = channel.answer(
                Api.PRODUCE,
                self._opened().version_of(Api.PRODUCE),
                wait_ms=self._connection.request_timeout_ms,
            )
        except RetriableError:
            self._forget_connections()
            self._repeat(batches)
        else:
            refused = self._written(batches, answer)
            if refused:
                self._repeat(refused)

    def _written(self, batches: Sequence["_Sealed"], answer: Fields) -> list["_Sealed"]:
        """Notes the offsets of batches; those that are to be sent again."""
        by_place = {each.place: each for each in batches}
        for topic in answer.responses:
            for each in topic.partition_responses:
                batch = by_place.get((topic.name, each.index))
                if batch is None:
                    continue
                if _is_retriable(each.error_code, topic.name):
                    batch.refusal = each.error_code
                    continue
                self._next_offsets[batch.place] = each.base_offset + batch.count
                del by_place[batch.place]
        return list(by_place.values())

    def _repeat(self, batches: Sequence["_Sealed"]) -> None:
        """Sends batches again until the log has them, to the leaders of the moment."""
        left = list(batches)

        def attempt() -> None:
            nonlocal left
            self._collect_all()
            if any(each.refusal not in _WAIT for each in left):
                self._leaders.clear()
            by_leader: dict[int, list[_Sealed]] = {}
            for each in left:
                by_leader.setdefault(self._leader(*each.place), []).append(each)
            for leader, several in by_leader.items():
                answer = self._opened().ask(
                    self._opened().node(leader),
                    Api.PRODUCE,
                    self._produce(several),
                    wait_ms=self._connection.request_timeout_ms,
                )
                refused = self._written(several, answer)
                left = [each for each in left if each not in several or each in refused]
            if left:
                codes = {each.refusal for each in left}
                raise RetriableError(
                    f"{self.name}: the log does not take batches at present",
                    code=next((each for each in codes if each not in _WAIT), left[0].refusal),
                )

        self._retrying(attempt)

    # --- the coordinator ----------------------------------------------------------------------

    def _initialized(self) -> Fields:
        """Who this producer is from now on, with the longest time-out that the log allows."""
        for each in self._timeouts_ms:
            self.timeout_ms = each
            fields = {"transactional_id": self.name, "transaction_timeout": each}
            try:
                return self._coordinate(Api.INIT_PRODUCER_ID, fields, lambda answer: [answer.error_code])
            except RequestError as error:
                if error.code != ErrorCode.invalid_transaction_timeout:
                    raise
        raise ConfigError(
            f"{self.name}: the log allows transactions for less than {self.timeout_ms / 1000:g} s; "
            "raise its transaction_max_timeout_ms (transaction.max.timeout.ms in Kafka)"
        )

    def _has_expired(self) -> bool:
        """Whether this producer was fenced by the end of its time; not if that cannot be told."""
        fields = {"transactional_ids": [self.name]}
        try:
            self._forget_connections()  # answers that are still to come must not be taken for others
            self._sent.clear()
            answer = self._coordinate(
                Api.DESCRIBE_TRANSACTIONS, fields, lambda each: [each.transaction_states[0].error_code]
            )
        except HeadraceError:
            return False
        (found,) = answer.transaction_states
        claim = (found.producer_id, found.producer_epoch)
        return claim == (self._producer_id, self._epoch + 1) and found.transaction_state in _ABORTED

    def _add_partitions(self, places: Sequence[Place]) -> None:
        if not places:
            return
        self._is_open = True
        if self._has_own_epochs:
            self._added.update(places)
            return
        by_topic: dict[str, list[int]] = {}
        for topic, partition in places:
            by_topic.setdefault(topic, []).append(partition)
        fields = {
            "v3_and_below_transactional_id": self.name,
            "v3_and_below_producer_id": self._producer_id,
            "v3_and_below_producer_epoch": self._epoch,
            "v3_and_below_topics": [
                {"name": topic, "partitions": partitions} for topic, partitions in by_topic.items()
            ],
        }
        self._coordinate(
            Api.ADD_PARTITIONS_TO_TXN,
            fields,
            lambda answer: [
                each.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for each in topic.results_by_partition
                if each.partition_error_code != ErrorCode.operation_not_attempted
            ],
        )
        self._added.update(places)

    def _coordinate(
        self, api: Api, fields: Mapping[str, Any], codes: Callable[[Fields], Iterable[int]]
    ) -> Fields:
        """What the coordinator answers, once it has done it."""

        def attempt() -> Fields:
            self._collect_all()  # one of them may be the coordinator's
            answer = self._opened().ask(self._find_coordinator(), api, fields)
            for code in codes(answer):
                if _is_retriable(code, self.name):
                    if code not in _WAIT:
                        self._coordinator = None
                    raise RetriableError(f"{self.name}: the log is not ready: error {code}", code=code)
            return answer

        return self._retrying(attempt)

    def _find_coordinator(self) -> Channel:
        brokers = self._opened()
        if self._coordinator is None:
            wanted = {"key_type": _OF_TRANSACTIONS, "coordinator_keys": [self.name]}
            (found,) = brokers.ask(brokers.any(), Api.FIND_COORDINATOR, wanted).coordinators
            check_code(found.error_code, f"{self.name}: its coordinator")
            self._coordinator = (found.host, found.port)
        return brokers.at(*self._coordinator)

    # --- leaders ------------------------------------------------------------------------------

    def _partitions(self, topic: str) -> int:
        return len(self._layout(topic))

    def _leader(self, topic: str, partition: int) -> int:
        leaders = self._layout(topic)
        if partition not in leaders:
            raise RequestError(f"topic {topic!r} has no partition {partition}")
        return leaders[partition]

    def _layout(self, topic: str) -> Mapping[int, int]:
        if topic not in self._leaders:
            self._collect_all()
            self._retrying(lambda: self._learn(topic))
        return self._leaders[topic]

    def _learn(self, topic: str) -> None:
        brokers = self._opened()
        fields = {"topics": [{"topic_id": None, "name": topic}], "allow_auto_topic_creation": False}
        answer = brokers.ask(brokers.any(), Api.METADATA, fields)
        brokers.learn(answer.brokers)
        (found,) = answer.topics
        check_code(found.error_code, f"topic {topic!r}")
        for each in found.partitions:
            check_code(each.error_code, f"topic {topic!r}, partition {each.partition_index}")
        if not self._leaders:
            self._learned_at = time.monotonic()
        self._leaders[topic] = {each.partition_index: each.leader_id for each in found.partitions}

    # --- trying again -------------------------------------------------------------------------

    def _retrying(self, attempt: Callable[[], T]) -> T:
        """What `attempt` returns; RetriableErrors are retried for `retry_timeout_ms`, then raised."""
        deadline, pause_s = time.monotonic() + self._timeout_s, _FIRST_PAUSE_S
        while True:
            try:
                return attempt()
            except _Lost:
                raise
            except RetriableError as error:
                if error.code not in _WAIT:
                    self._forget_connections()
                if time.monotonic() + pause_s > deadline:
                    raise
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _forget_connections(self) -> None:
        if self._brokers is not None:
            self._brokers.close()

    def _forget(self) -> None:
        """Connections are closed: who leads, and who coordinates, may have changed."""
        self._leaders.clear()
        self._coordinator = None


class _Sealed:
    """A batch as it is sent, however often."""

    __slots__ = ("batch", "count", "place", "refusal")

    def __init__(self, place: Place, batch: bytearray, count: int) -> None:
        self.place, self.batch, self.count = place, batch, count
        self.refusal = 0  # the code that it was last refused with, to be sent again


def _is_retriable(code: int, what: str) -> bool:
    """Whether a request is to be repeated; raises if that is of no use."""
    if code == ErrorCode.none:
        return False
    if code in _FENCED:
        raise FencedError(f"{what}: another process has taken over, so this one must stop (error {code})")
    if code in _TOO_LARGE:
        raise _too_large(what)
    if code in _LOST:
        raise _Lost(f"{what}: the transaction failed (error {code}); try again")
    if code in _WAIT:
        return True
    try:
        check_code(code, what)
    except RetriableError:
        return True
    return False


def _too_large(topic: str) -> RecordTooLarge:
    return RecordTooLarge(
        f"topic {topic!r}: a batch is too large; raise the topic's max.message.bytes, or send "
        "smaller records",
        topic=topic,
    )
