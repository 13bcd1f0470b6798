"""Produce: check each batch, append it, answer when it is on disk.

A batch of a transaction is appended only if the transactions' coordinator admits
it, and a compressed one only after a look at its records; both may have to be
waited for. The requests behind it on the connection then wait too, so that their
order holds.

A producer sends the same request again and again, with other records. So the last one is
kept (`KnownProduce`), and if the next one fits its shape (`wire.repeats`), only its batches
are read; whatever is in them, they are appended as those of any request.
"""

import inspect
from typing import Any, NamedTuple

from headrace.broker.access import ClientSession, Operation, Resource, is_allowed
from headrace.broker.apis.answers import Begun, DeferredReply, Reply, begin
from headrace.broker.apis.records.batch_checks import bad_records, check_times, checked_batch
from headrace.broker.apis.records.produce_answer import ProduceAnswer, refuse
from headrace.broker.coordinators import IMPLICIT_SINCE, TransactionCoordinator
from headrace.broker.limits import Overload, OverloadedError, RequestMemory
from headrace.broker.log import INTERNAL_TOPICS, Inspector, Topics
from headrace.broker.metrics import Metrics
from headrace.clock import Clock
from headrace.errors import HeadraceError, RequestError, RetriableError
from headrace.records import read_header
from headrace.storage import Topic
from headrace.wire import Api, ErrorCode, Frame, ProduceShape, Request, encode_response

__all__ = ["KnownProduce", "Parts", "Produce"]

FIRST_VERSION_WITH_ABORTABLE = 11

Parts = list[tuple[int, memoryview]]
"""Partitions and their records."""


class _Head(NamedTuple):
    """What a produce request says besides its batches."""

    version: int
    correlation_id: int
    acks: int
    transactional_id: str | None


class KnownProduce(NamedTuple):
    """A connection's last produce request, by whose shape the next one is known."""

    shape: ProduceShape
    topic: Topic
    acks: int
    client_id: str | None


class Produce:
    """Appends what producers send. Event loop only."""

    def __init__(
        self,
        *,
        topics: Topics,
        inspector: Inspector,
        overload: Overload,
        transactions: TransactionCoordinator,
        memory: RequestMemory,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._topics = topics
        self._inspector = inspector
        self._overload = overload
        self._transactions = transactions
        self._memory = memory
        self._metrics = metrics
        self._clock = clock

    def start(
        self, request: Request, frame: bytearray, throttle_ms: int
    ) -> DeferredReply | Begun[DeferredReply]:
        """Appends now, in order; the answer is there when every batch is synced or refused.

        A transactional request, or one with compressed batches, may have to wait before;
        the answer itself is awaited then, until everything is appended.
        """
        if request.body.transactional_id is not None or self._takes_long(request):
            return begin(self._start_later(request, frame, throttle_ms))
        head, pending = _head(request), ProduceAnswer(throttle_ms)
        topics = [
            {
                "name": data.name,
                "topic_id": data.topic_id,
                "partition_responses": [
                    self._append(head, data, part.index, part.records, pending)
                    for part in data.partition_data
                ],
            }
            for data in request.body.topic_data
        ]
        return self._answer(head, frame, [*topics, *request.refused], pending)

    # --- requests like the last one ---------------------------------------------------------------

    def known(self, request: Request, frame: bytearray) -> KnownProduce | None:
        """How to know the next request if it is like this one."""
        shape = ProduceShape.of(frame, request.api_version)
        if shape is None or request.session is not None:
            return None
        data = request.body.topic_data[0]
        topic = self._topics.find(data.name, data.topic_id)
        if topic is None or topic.name in INTERNAL_TOPICS:
            return None
        return KnownProduce(shape, topic, request.body.acks, request.client_id)

    def parts_of(self, known: KnownProduce, frame: bytearray, version: int) -> Parts | None:
        """Partitions and records of the next request, if it is like the one before."""
        if version != known.shape.version or not self._topics.is_current(known.topic):
            return None
        parts = known.shape.again(frame)
        if parts is not None:
            for _, records in parts:
                if self._inspector.takes_long(records):
                    return None
        return parts

    def start_known(
        self, known: KnownProduce, parts: Parts, frame: bytearray, throttle_ms: int, *, alone: bool
    ) -> DeferredReply:
        """As `start`, for what `parts_of` found.

        `alone`: nothing else has been received that could share its sync.
        """
        topic, shape = known.topic, known.shape
        correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
        head, pending = _Head(shape.version, correlation_id, known.acks, None), ProduceAnswer(throttle_ms)
        answers = [
            self._append(head, topic, index, records, pending, alone=alone) for index, records in parts
        ]
        topics = [{"name": topic.name, "topic_id": topic.id, "partition_responses": answers}]
        return self._answer(head, frame, topics, pending, shape)

    # --- requests that wait before they are appended ----------------------------------------------

    def _takes_long(self, request: Request) -> bool:
        takes_long = self._inspector.takes_long
        for data in request.body.topic_data:
            for part in data.partition_data:
                if takes_long(part.records):
                    return True
        return False

    async def _start_later(self, request: Request, frame: bytearray, throttle_ms: int) -> DeferredReply:
        head, pending = _head(request), ProduceAnswer(throttle_ms)
        topics = []
        try:
            for data in request.body.topic_data:
                parts = [
                    await self._append_later(head, data, part, pending, request.session)
                    for part in data.partition_data
                ]
                topics.append({"name": data.name, "topic_id": data.topic_id, "partition_responses": parts})
        except BaseException:
            pending.when_synced(lambda: self._memory.release_frame(frame))  # the log still writes from it
            raise
        return self._answer(head, frame, [*topics, *request.refused], pending)

    async def _append_later(
        self, head: _Head, data: Any, part: Any, pending: ProduceAnswer, session: ClientSession | None
    ) -> dict[str, Any]:
        """Looks at the records, asks the coordinator, then appends at once: no marker can come first."""
        try:
            inspected = await self._inspected(data, part)
            self._check_may_write(head, data, session)  # or it would be in the transaction
            admitted = await self._admitted(head, data, part)
            self._check_may_write(head, data, session)
        except HeadraceError as error:
            answer: dict[str, Any] = {"index": part.index}
            refuse(answer, error)
            return answer
        about = data, part.index, part.records
        return self._append(head, *about, pending, admitted=admitted, inspected=inspected)

    def _check_may_write(self, head: _Head, data: Any, session: ClientSession | None) -> None:
        """Raises RequestError if what was allowed before the wait no longer is."""
        if session is None:
            return
        transactional_id, topic = head.transactional_id, self._topic(data).name
        if not is_allowed(session, Operation.WRITE, Resource.TOPIC, topic):
            raise RequestError("not allowed for this user", code=ErrorCode.topic_authorization_failed)
        if transactional_id is not None and not is_allowed(
            session, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id
        ):
            raise RequestError(
                "not allowed for this user", code=ErrorCode.transactional_id_authorization_failed
            )

    async def _inspected(self, data: Any, part: Any) -> bool:
        """Whether the batch's records were looked at; RequestError if something is wrong with them."""
        topic = self._topics.find(data.name, data.topic_id)
        if topic is None or not self._inspector.takes_long(part.records):
            return False
        if len(part.records) > topic.config.max_message_bytes:  # refused, whatever is in it
            return False
        if self._inspector.looks_into(part.records, keyed=topic.config.compacts):
            await self._inspector.inspect(part.records, keyed=topic.config.compacts)
        return True

    async def _admitted(self, head: _Head, data: Any, part: Any) -> bool:
        """Whether the batch is of a transaction that goes on; RequestError if it does not go on."""
        if part.records is None or head.transactional_id is None:
            return False
        header = read_header(part.records)
        if not header.is_transactional:
            return False
        try:
            outcome = self._transactions.admit(
                header.producer_id,
                header.producer_epoch,
                head.transactional_id,
                self._topic(data).name,
                part.index,
                head.version,
            )
            if inspect.isawaitable(outcome):
                await outcome
        except (RequestError, RetriableError) as error:
            error.code = int(_code_for_producers(error.code, head.version))
            raise
        return True

    # --- append and answer ------------------------------------------------------------------------

    def _append(
        self,
        head: _Head,
        data: Any,
        index: int,
        records: memoryview | None,
        pending: ProduceAnswer,
        *,
        admitted: bool = False,
        inspected: bool = False,
        alone: bool = False,
    ) -> dict[str, Any]:
        """Appends one partition's batch; its part of the answer, completed when it is synced.

        `data` is the topic, or the part of the request that says which one.
        """
        answer: dict[str, Any] = {"index": index, "error_code": 0, "base_offset": -1}
        try:
            if head.acks not in (-1, 0, 1):
                raise RequestError("acks must be -1, 0 or 1", code=ErrorCode.invalid_required_acks)
            topic = data if isinstance(data, Topic) else self._topic(data)
            partition = self._topics.of(topic, index)
            if partition is None:
                raise RequestError("no such partition", code=ErrorCode.unknown_topic_or_partition)
            now_ms, config = self._clock.now_ms(), topic.config
            batch, header = checked_batch(
                topic, records, head.version, transactional_id=head.transactional_id, admitted=admitted
            )
            try:
                check_times(config, header, now_ms)
                if not inspected and self._inspector.looks_into(batch, keyed=config.compacts):
                    self._inspector.check(header, batch, keyed=config.compacts)
            except RequestError as error:
                answer["record_errors"] = bad_records(error.code, config, header, batch, now_ms)
                raise
            throttle_ms = self._overload.admit(topic, index, partition, batch)
            if throttle_ms:
                pending.throttle_ms = max(pending.throttle_ms, throttle_ms)
            appended = partition.append(batch, now_ms=now_ms, alone=alone)
            if config.stamps_append_time:
                answer["log_append_time"] = appended.timestamp_ms
            answer["base_offset"] = appended.base_offset
            answer["log_start_offset"] = partition.log.start_offset
            pending.add(partition, answer)
        except HeadraceError as error:
            if isinstance(error, OverloadedError):
                pending.throttle_ms = max(pending.throttle_ms, error.throttle_ms)
            refuse(answer, error)
        return answer

    def _topic(self, data: Any) -> Topic:
        topic = self._topics.find(data.name, data.topic_id)
        if topic is None:
            by_id = data.topic_id is not None
            code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
            raise RequestError(f"there is no topic {data.topic_id if by_id else data.name}", code=code)
        if topic.name in INTERNAL_TOPICS:
            raise RequestError(
                f"{topic.name} is written by the broker only", code=ErrorCode.invalid_topic_exception
            )
        return topic

    def _answer(
        self,
        head: _Head,
        frame: bytearray,
        topics: list[dict[str, Any]],
        pending: ProduceAnswer,
        shape: ProduceShape | None = None,
    ) -> DeferredReply:
        def finish() -> None:
            self._memory.release_frame(frame)
            for topic in topics:
                for part in topic["partition_responses"]:
                    if part.get("error_code"):
                        self._metrics.count_errors(Api.PRODUCE, part)
            throttle_ms = pending.throttle_ms
            if head.acks == 0:
                pending.give(Reply(Frame(), throttle_ms=throttle_ms) if throttle_ms else None)
                return
            about = head.correlation_id, throttle_ms
            encoded = shape.answer(*about, topics[0]["partition_responses"]) if shape is not None else None
            if encoded is None:
                fields = {"responses": topics, "throttle_time": throttle_ms}
                encoded = encode_response(Api.PRODUCE, head.version, head.correlation_id, fields)
            pending.give(Reply(encoded, None, throttle_ms))

        pending.when_synced(finish)
        return pending


def _head(request: Request) -> _Head:
    body = request.body
    return _Head(request.api_version, request.correlation_id, body.acks, body.transactional_id)


def _code_for_producers(code: int, version: int) -> int:
    """The coordinator's code as a producer of the version understands it; what it retries is retried."""
    if code == ErrorCode.invalid_txn_state and version >= FIRST_VERSION_WITH_ABORTABLE:
        return ErrorCode.transaction_abortable
    unknown = code == ErrorCode.concurrent_transactions and version < IMPLICIT_SINCE
    if unknown or code == ErrorCode.coordinator_not_available:
        return ErrorCode.not_enough_replicas
    return code
