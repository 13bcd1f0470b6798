"""Produce: check each batch, append it, answer when it is on disk.

A batch of a transaction is appended only if the transactions' coordinator admits
it, and a compressed one only after a look at its records; both may have to be
waited for. The requests behind it on the connection then wait too, so that their
order holds.

A producer sends the same request again and again, with other records. So the last one is
kept (`Repeatable`), and if the next one fits its shape (`wire.repeats`), only its batches
are read; whatever is in them, they are appended as those of any request.
"""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.broker.apis.record_checks import bad_records, check_times
from headrace.broker.begun import Begun, begin
from headrace.broker.committer import SMALL_BYTES
from headrace.broker.partition import Partition
from headrace.broker.replies import Answer, Reply
from headrace.broker.topics import INTERNAL_TOPICS
from headrace.broker.transactions import IMPLICIT_SINCE
from headrace.errors import CorruptionError, DiskError, HeadraceError, RequestError, RetriableError
from headrace.records import BatchHeader, check_batch, read_header
from headrace.storage import Topic
from headrace.wire import Api, ErrorCode, Frame, Request, encode_response
from headrace.wire.repeats import ProduceShape

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["Repeatable", "produce", "produce_again", "repeatable"]

NEWEST_CODEC = 4
ZSTD = 4
FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_ABORTABLE = 11


_Parts = list[tuple[int, memoryview]]


class Asked(NamedTuple):
    """What a produce request says besides its batches."""

    version: int
    correlation_id: int
    acks: int
    transactional_id: str | None
    throttle_ms: int  # how long its client's quota lets it wait


class Repeatable(NamedTuple):
    """A connection's last request, if the next one may be known by its shape; and whose it was."""

    shape: ProduceShape
    topic: Topic
    acks: int
    client_id: str | None

    def parts_of(self, broker: "Broker", frame: bytearray, version: int) -> _Parts | None:
        """Partitions and records of the next request, if it is like this one."""
        if version != self.shape.version or not broker.topics.is_current(self.topic):
            return None
        parts = self.shape.again(frame)
        if parts is not None:
            for _, records in parts:
                if broker.inspector.takes_long(records):
                    return None
        return parts


class _Pending(Answer):
    """An answer that is there once everything that was appended for it is synced."""

    __slots__ = ("_finish", "_left")

    def __init__(self) -> None:
        super().__init__()
        self._left = 1  # more may be appended
        self._finish: Callable[[], None] | None = None

    def add(self, partition: Partition, answer: dict[str, Any]) -> None:
        """One more: what was just appended to `partition`, with its part of the answer."""
        self._left += 1

        def synced(error: BaseException | None) -> None:
            if error is not None:
                _refuse(answer, error)
            self._settle()

        partition.when_synced(synced)

    def when_synced(self, finish: Callable[[], None]) -> None:
        """Nothing more is appended; calls once everything is synced or refused, perhaps at once."""
        self._finish = finish
        self._settle()

    def _settle(self) -> None:
        self._left -= 1
        if not self._left:
            finish, self._finish = self._finish, None  # which knows us, and the request: no cycle is left
            assert finish is not None
            finish()


def repeatable(broker: "Broker", request: Request, frame: bytearray) -> Repeatable | None:
    """How to know the next request if it is like this one."""
    shape = ProduceShape.of(frame, request.api_version)
    if shape is None or request.session is not None:
        return None
    data = request.body.topic_data[0]
    topic = broker.topics.find(data.name, data.topic_id)
    if topic is None or topic.name in INTERNAL_TOPICS:
        return None
    return Repeatable(shape, topic, request.body.acks, request.client_id)


def produce_again(
    broker: "Broker", last: Repeatable, parts: _Parts, frame: bytearray, throttle_ms: int
) -> Answer:
    """As `produce`, for what `last.parts_of` found in a request."""
    topic, shape = last.topic, last.shape
    correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
    asked, pending = Asked(shape.version, correlation_id, last.acks, None, throttle_ms), _Pending()
    alone = len(parts) == 1 and len(frame) <= SMALL_BYTES and not broker.is_asked_for
    answers = [
        _append(broker, asked, topic, index, records, pending, alone=alone) for index, records in parts
    ]
    topics = [{"name": topic.name, "topic_id": topic.id, "partition_responses": answers}]
    return _answer(broker, asked, frame, topics, pending, shape)


def produce(broker: "Broker", request: Request, frame: bytearray) -> Answer | Begun[Answer]:
    """Appends now, in order; the answer is there when every batch is synced or refused.

    A transactional request, or one with compressed batches, may have to wait before;
    the answer itself is awaited then, until everything is appended.
    """
    if request.body.transactional_id is not None or _takes_long(broker, request):
        return begin(_produce_later(broker, request, frame))
    asked, pending = _asked(request), _Pending()
    topics = [
        {
            "name": data.name,
            "topic_id": data.topic_id,
            "partition_responses": [
                _append(broker, asked, data, part.index, part.records, pending)
                for part in data.partition_data
            ],
        }
        for data in request.body.topic_data
    ]
    return _answer(broker, asked, frame, [*topics, *request.refused], pending)


def _asked(request: Request) -> Asked:
    body = request.body
    about = request.api_version, request.correlation_id, body.acks, body.transactional_id
    return Asked(*about, request.throttle_ms)


def _takes_long(broker: "Broker", request: Request) -> bool:
    takes_long = broker.inspector.takes_long
    for data in request.body.topic_data:
        for part in data.partition_data:
            if takes_long(part.records):
                return True
    return False


async def _produce_later(broker: "Broker", request: Request, frame: bytearray) -> Answer:
    asked, pending = _asked(request), _Pending()
    topics = []
    try:
        for data in request.body.topic_data:
            parts = [await _append_later(broker, asked, data, part, pending) for part in data.partition_data]
            topics.append({"name": data.name, "topic_id": data.topic_id, "partition_responses": parts})
    except BaseException:
        pending.when_synced(lambda: broker.release_frame(frame))  # the log still writes from it
        raise
    return _answer(broker, asked, frame, [*topics, *request.refused], pending)


async def _append_later(
    broker: "Broker", asked: Asked, data: Any, part: Any, pending: _Pending
) -> dict[str, Any]:
    """Looks at the records, asks the coordinator, then appends at once: no marker can come first."""
    try:
        inspected = await _inspected(broker, data, part)
        admitted = await _admitted(broker, asked, data, part)
    except HeadraceError as error:
        answer: dict[str, Any] = {"index": part.index}
        _refuse(answer, error)
        return answer
    about = data, part.index, part.records
    return _append(broker, asked, *about, pending, admitted=admitted, inspected=inspected)


async def _inspected(broker: "Broker", data: Any, part: Any) -> bool:
    """Whether the batch's records were looked at; RequestError if something is wrong with them."""
    topic = broker.topics.find(data.name, data.topic_id)
    if topic is None or not broker.inspector.takes_long(part.records):
        return False
    if len(part.records) > topic.config.max_message_bytes:  # refused, whatever is in it
        return False
    if broker.inspector.looks_into(part.records, keyed=topic.config.compacts):
        await broker.inspector.inspect(part.records, keyed=topic.config.compacts)
    return True


async def _admitted(broker: "Broker", asked: Asked, data: Any, part: Any) -> bool:
    """Whether the batch is of a transaction that goes on; RequestError if it does not go on."""
    if part.records is None or asked.transactional_id is None:
        return False
    header = read_header(part.records)
    if not header.is_transactional:
        return False
    try:
        outcome = broker.transactions.admit(
            header.producer_id,
            header.producer_epoch,
            asked.transactional_id,
            _topic(broker, data).name,
            part.index,
            asked.version,
        )
        if inspect.isawaitable(outcome):
            await outcome
    except (RequestError, RetriableError) as error:
        error.code = int(_code_for_producers(error.code, asked.version))
        raise
    return True


def _code_for_producers(code: int, version: int) -> int:
    """The coordinator's code as a producer of the version understands it; what it retries is retried."""
    if code == ErrorCode.invalid_txn_state and version >= FIRST_VERSION_WITH_ABORTABLE:
        return ErrorCode.transaction_abortable
    unknown = code == ErrorCode.concurrent_transactions and version < IMPLICIT_SINCE
    if unknown or code == ErrorCode.coordinator_not_available:
        return ErrorCode.not_enough_replicas
    return code


def _answer(
    broker: "Broker",
    asked: Asked,
    frame: bytearray,
    topics: list[dict[str, Any]],
    pending: _Pending,
    shape: ProduceShape | None = None,
) -> Answer:
    def finish() -> None:
        broker.release_frame(frame)
        throttle_ms = max(_settled(broker, topics), asked.throttle_ms)
        if asked.acks == 0:
            pending.give(Reply(Frame(), throttle_ms=throttle_ms) if throttle_ms else None)
            return
        about = asked.correlation_id, throttle_ms
        encoded = shape.answer(*about, topics[0]["partition_responses"]) if shape is not None else None
        if encoded is None:
            fields = {"responses": topics, "throttle_time": throttle_ms}
            encoded = encode_response(Api.PRODUCE, asked.version, asked.correlation_id, fields)
        pending.give(Reply(encoded, None, throttle_ms))

    pending.when_synced(finish)
    return pending


def _settled(broker: "Broker", topics: list[dict[str, Any]]) -> int:
    """Counts the errors of a finished answer; the longest wait that a topic asks its producer for, in ms."""
    throttle_ms = 0
    for topic in topics:
        for part in topic["partition_responses"]:
            if part.get("error_code"):
                broker.metrics.count_errors(Api.PRODUCE, part)
            if "throttle_ms" in part:
                throttle_ms = max(throttle_ms, part.pop("throttle_ms"))
    return throttle_ms


def _append(
    broker: "Broker",
    asked: Asked,
    data: Any,
    index: int,
    records: memoryview | None,
    pending: _Pending,
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
        if asked.acks not in (-1, 0, 1):
            raise RequestError("acks must be -1, 0 or 1", code=ErrorCode.invalid_required_acks)
        topic = data if isinstance(data, Topic) else _topic(broker, data)
        partition = broker.topics.of(topic, index)
        if partition is None:
            raise RequestError("no such partition", code=ErrorCode.unknown_topic_or_partition)
        now_ms, config = broker.clock.now_ms(), topic.config
        batch, header = _checked(topic, records, asked, admitted)
        try:
            check_times(config, header, now_ms)
            if not inspected and broker.inspector.looks_into(batch, keyed=config.compacts):
                broker.inspector.check(header, batch, keyed=config.compacts)
        except RequestError as error:
            answer["record_errors"] = bad_records(error.code, config, header, batch, now_ms)
            raise
        broker.overload.admit(topic, partition, batch, answer)
        appended = partition.append(batch, now_ms=now_ms, alone=alone)
        if config.stamps_append_time:
            answer["log_append_time"] = appended.timestamp_ms
        answer["base_offset"] = appended.base_offset
        answer["log_start_offset"] = partition.log.start_offset
        pending.add(partition, answer)
    except HeadraceError as error:
        _refuse(answer, error)
    return answer


def _topic(broker: "Broker", data: Any) -> Topic:
    topic = broker.topics.find(data.name, data.topic_id)
    if topic is None:
        by_id = data.topic_id is not None
        code = ErrorCode.unknown_topic_id if by_id else ErrorCode.unknown_topic_or_partition
        raise RequestError(f"there is no topic {data.topic_id if by_id else data.name}", code=code)
    if topic.name in INTERNAL_TOPICS:
        raise RequestError(
            f"{topic.name} is written by the broker only", code=ErrorCode.invalid_topic_exception
        )
    return topic


def _checked(
    topic: Topic, records: memoryview | None, asked: Asked, admitted: bool
) -> tuple[memoryview, BatchHeader]:
    """The one batch of a partition, once nothing in its header speaks against it."""
    if records is None or not len(records):
        raise RequestError("no record batch for the partition", code=ErrorCode.invalid_record)
    if len(records) > topic.config.max_message_bytes:
        raise RequestError(
            f"a batch of {len(records)} bytes; {topic.name} takes"
            f" {topic.config.max_message_bytes} (max.message.bytes)",
            code=ErrorCode.message_too_large,
        )
    header = check_batch(records, 0)
    if header.size_bytes != len(records):
        raise RequestError("more than one record batch for the partition", code=ErrorCode.invalid_record)
    if header.is_transactional and not admitted:
        unnamed = asked.transactional_id is None
        raise RequestError(
            "a transactional batch outside of any transaction known here",
            code=ErrorCode.transactional_id_authorization_failed if unnamed else ErrorCode.invalid_txn_state,
        )
    _check_kind(header, asked.version)
    return records, header


def _check_kind(header: BatchHeader, version: int) -> None:
    if not header.attributes and header.producer_id < 0:  # as plain as can be
        return
    if header.is_control or header.delete_horizon_ms is not None:
        raise RequestError(
            "control batches and delete horizons are written by the broker only",
            code=ErrorCode.invalid_record,
        )
    if (header.producer_id >= 0 and header.base_sequence < 0) or (
        header.is_transactional and header.producer_id < 0
    ):
        raise RequestError(
            f"producer {header.producer_id} sent sequence number {header.base_sequence}",
            code=ErrorCode.invalid_record,
        )
    if header.codec > NEWEST_CODEC or (header.codec == ZSTD and version < FIRST_VERSION_WITH_ZSTD):
        raise RequestError(
            f"codec {header.codec} is unknown here", code=ErrorCode.unsupported_compression_type
        )


def _refuse(answer: dict[str, Any], error: BaseException) -> None:
    if isinstance(error, RequestError | RetriableError):
        code = error.code
    elif isinstance(error, CorruptionError):
        code = int(ErrorCode.corrupt_message)
    elif isinstance(error, DiskError):
        code = int(ErrorCode.kafka_storage_error)
    else:
        code = int(ErrorCode.unknown_server_error)
    answer.update(error_code=code, error_message=str(error), base_offset=-1, log_append_time=-1)
