"""Produce: check each batch, append it, answer when it is on disk."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.broker.replies import Reply
from headrace.broker.topics import INTERNAL_TOPICS
from headrace.errors import CorruptionError, DiskError, HeadraceError, RequestError
from headrace.records import BatchHeader, check_batch
from headrace.storage import Topic
from headrace.wire import Api, ErrorCode, Request, encode_response

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["produce"]

NEWEST_CODEC = 4
ZSTD = 4
FIRST_VERSION_WITH_ZSTD = 7


def produce(broker: "Broker", request: Request, frame: bytearray) -> "asyncio.Future[Reply | None]":
    """Appends now, in order; the future is done when every batch is synced or refused."""
    acks = request.body.acks
    pending: list[asyncio.Future[None]] = []
    topics = [
        {
            "name": data.name,
            "topic_id": data.topic_id,
            "partition_responses": [
                _append(broker, request, data, part, pending) for part in data.partition_data
            ],
        }
        for data in request.body.topic_data
    ]
    topics += request.refused
    done: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

    def finish() -> None:
        broker.release_frame(frame)
        broker.metrics.count_errors(Api.PRODUCE, topics)
        if done.done():  # the client left
            return
        if acks == 0:
            done.set_result(None)
        else:
            fields = {"responses": topics}
            done.set_result(
                Reply(encode_response(Api.PRODUCE, request.api_version, request.correlation_id, fields))
            )

    _when_all(pending, finish)
    return done


def _when_all(pending: "list[asyncio.Future[None]]", call: Callable[[], None]) -> None:
    """Calls once all are done, however they ended."""
    left = len(pending)
    if not left:
        call()
        return

    def one_more(_: "asyncio.Future[None]") -> None:
        nonlocal left
        left -= 1
        if not left:
            call()

    for future in pending:
        future.add_done_callback(one_more)


def _append(
    broker: "Broker", request: Request, data: Any, part: Any, pending: "list[asyncio.Future[None]]"
) -> dict[str, Any]:
    """Appends one partition's batch; its part of the answer, completed when it is synced."""
    answer: dict[str, Any] = {"index": part.index, "error_code": 0, "base_offset": -1}
    try:
        if request.body.acks not in (-1, 0, 1):
            raise RequestError("acks must be -1, 0 or 1", code=ErrorCode.invalid_required_acks)
        topic = _topic(broker, data)
        partition = broker.topics.of(topic, part.index)
        if partition is None:
            raise RequestError("no such partition", code=ErrorCode.unknown_topic_or_partition)
        now_ms = broker.clock.now_ms()
        batch = _checked(topic, part.records, request.api_version)
        if topic.config.stamps_append_time:
            answer["log_append_time"] = now_ms
        answer["base_offset"] = partition.append(batch, now_ms=now_ms)
        answer["log_start_offset"] = partition.log.start_offset
        synced = partition.synced()
        synced.add_done_callback(lambda future: _note_failure(answer, future))
        pending.append(synced)
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


def _checked(topic: Topic, records: memoryview | None, version: int) -> memoryview:
    """The one batch of a partition, once nothing speaks against it."""
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
    _check_kind(header, version)
    return records


def _check_kind(header: BatchHeader, version: int) -> None:
    if header.is_control:
        raise RequestError("control batches are written by the broker only", code=ErrorCode.invalid_record)
    if header.is_transactional:
        raise RequestError("transactions are not served yet", code=ErrorCode.invalid_txn_state)
    if header.codec > NEWEST_CODEC or (header.codec == ZSTD and version < FIRST_VERSION_WITH_ZSTD):
        raise RequestError(
            f"codec {header.codec} is unknown here", code=ErrorCode.unsupported_compression_type
        )


def _note_failure(answer: dict[str, Any], future: "asyncio.Future[None]") -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        _refuse(answer, error)


def _refuse(answer: dict[str, Any], error: BaseException) -> None:
    if isinstance(error, RequestError):
        code = error.code
    elif isinstance(error, CorruptionError):
        code = int(ErrorCode.corrupt_message)
    elif isinstance(error, DiskError):
        code = int(ErrorCode.kafka_storage_error)
    else:
        code = int(ErrorCode.unknown_server_error)
    answer.update(error_code=code, error_message=str(error), base_offset=-1, log_append_time=-1)
