"""Fetch: records from synced extents, waiting for them as long as the client allows.

A reader of committed records gets those below the last stable offset, and is told
which transactions among them were aborted; it leaves those out by itself.
"""

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

from headrace.broker.partition import Partition
from headrace.broker.quotas import CONSUMER
from headrace.broker.replies import Reply
from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.storage import Extent
from headrace.wire import ErrorCode, Request, encode_response

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["fetch"]

READ_COMMITTED = 1


async def fetch(broker: "Broker", request: Request) -> Reply | dict[str, Any]:
    """Answers when `min_bytes` are there, something is wrong, or `max_wait` is over."""
    body = request.body
    if body.session_epoch > 0:
        # Every fetch names all its partitions: there are no sessions to find.
        return {"error_code": ErrorCode.fetch_session_id_not_found}
    attempt = await _collect(broker, body)
    wait_ms = min(body.max_wait, broker.settings.idle_timeout_ms)
    if not attempt.enough and wait_ms > 0 and not request.refused:
        attempt = await _wait(broker, body, attempt, wait_ms / 1000)
    if attempt.refused:
        broker.metrics.count_errors(request.api_key, attempt.responses)
    throttle_ms = broker.quotas.charge(CONSUMER, request.client_id, attempt.size_bytes)
    fields = {"responses": [*attempt.responses, *request.refused], "throttle_time": throttle_ms}
    frame = encode_response(request.api_key, request.api_version, request.correlation_id, fields)
    return Reply(frame, attempt.release, throttle_ms)


@dataclasses.dataclass(slots=True)
class _Attempt:
    """What a fetch would answer now."""

    responses: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    extents: list[Extent] = dataclasses.field(default_factory=list)
    sources: list[Partition] = dataclasses.field(default_factory=list)  # of the extents, one each
    partitions: list[tuple[Partition, int]] = dataclasses.field(default_factory=list)  # and where it ended
    size_bytes: int = 0
    refused: bool = False
    enough: bool = False

    def release(self) -> None:
        for extent, partition in zip(self.extents, self.sources, strict=True):
            partition.fetched_records += extent.offsets_read
            partition.fetched_bytes += extent.bytes_read
            extent.release()


class _Waiter:
    """Wakes a fetch when there may be more, or when its time is over."""

    __slots__ = ("_future", "_woken", "is_over")

    def __init__(self) -> None:
        self.is_over = self._woken = False
        self._future: asyncio.Future[None] | None = None

    def wake(self) -> None:
        self._woken = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def end(self) -> None:
        # The timer may run a little early by the clock: that it ran is what counts.
        self.is_over = True
        self.wake()

    async def wait(self) -> None:
        if not self._woken:
            self._future = asyncio.get_running_loop().create_future()
            await self._future
        self._woken = False


async def _wait(broker: "Broker", body: Any, attempt: _Attempt, seconds: float) -> _Attempt:
    """Tries again whenever a partition has more, until there is enough or the time is over."""
    waiter = _Waiter()
    timer = asyncio.get_running_loop().call_later(seconds, waiter.end)
    partitions, committed = attempt.partitions, body.isolation_level == READ_COMMITTED
    for partition, seen in partitions:
        partition.on_records(waiter.wake)
        if partition.readable_end(committed=committed) > seen:  # moved while others were looked at
            waiter.wake()
    try:
        while not attempt.enough:
            await waiter.wait()
            if waiter.is_over:
                break
            if all(partition.readable_end(committed=committed) <= seen for partition, seen in partitions):
                continue  # something was synced, but nothing that this reader may see
            attempt.release()
            attempt = _Attempt()
            attempt = await _collect(broker, body)
    except BaseException:
        attempt.release()
        raise
    finally:
        timer.cancel()
        for partition, _ in partitions:
            partition.forget(waiter.wake)
    return attempt


async def _collect(broker: "Broker", body: Any) -> _Attempt:
    attempt = _Attempt()
    try:
        for wanted in body.topics:
            attempt.responses.append(await _collect_topic(broker, body, wanted, attempt))
    except BaseException:
        attempt.release()
        raise
    attempt.enough = attempt.refused or attempt.size_bytes >= body.min_bytes or not attempt.partitions
    return attempt


async def _collect_topic(broker: "Broker", body: Any, wanted: Any, attempt: _Attempt) -> dict[str, Any]:
    most = min(body.max_bytes, broker.settings.fetch_max_bytes)
    topic = broker.topics.find(wanted.topic, wanted.topic_id)
    parts = []
    for part in wanted.partitions:
        answer = _empty(part.partition, body.isolation_level)
        parts.append(answer)
        partition = broker.topics.of(topic, part.partition) if topic is not None else None
        if partition is None:
            unknown_id = topic is None and wanted.topic_id is not None
            code = ErrorCode.unknown_topic_id if unknown_id else ErrorCode.unknown_topic_or_partition
            answer["error_code"] = int(code)
            attempt.refused = True
            continue
        committed = body.isolation_level == READ_COMMITTED
        attempt.partitions.append((partition, partition.readable_end(committed=committed)))
        await _locate(broker, attempt, answer, partition, part, most - attempt.size_bytes, committed)
    return {"topic": wanted.topic, "topic_id": wanted.topic_id, "partitions": parts}


def _empty(index: int, isolation_level: int) -> dict[str, Any]:
    return {
        "partition_index": index,
        "high_watermark": -1,
        "aborted_transactions": () if isolation_level == READ_COMMITTED else None,
        "records": b"",
    }


async def _locate(
    broker: "Broker",
    attempt: _Attempt,
    answer: dict[str, Any],
    partition: Partition,
    part: Any,
    left: int,
    committed: bool,
) -> None:
    """Adds what one partition has to offer within `left` bytes (the first batch of a fetch always fits)."""
    log = partition.log
    ahead = _ahead_of_us(part)
    if ahead:
        answer["error_code"] = int(ahead)
        attempt.refused = True
        return
    answer["high_watermark"] = log.high_watermark
    answer["last_stable_offset"] = log.last_stable_offset
    answer["log_start_offset"] = log.start_offset
    if left <= 0 and attempt.extents:
        return
    try:
        most = min(part.partition_max_bytes, max(left, 0))
        extent = await _extent(broker, partition, part.fetch_offset, most, committed)
    except (RequestError, CorruptionError, DiskError) as error:
        answer.update(_NOWHERE, error_code=_code(error))
        attempt.refused = True
        return
    if extent is None:
        return
    if attempt.extents and extent.size_bytes > left:
        extent.release()
        return
    attempt.extents.append(extent)
    attempt.sources.append(partition)
    attempt.size_bytes += extent.size_bytes
    answer["records"] = extent
    if committed:
        answer["aborted_transactions"] = [
            {"producer_id": each.producer_id, "first_offset": each.first_offset}
            for each in log.aborted(part.fetch_offset, extent.offset_bound())
        ]


# With an error nothing is told of where the partition stands, as in Kafka.
_NOWHERE = {"high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1}


def _ahead_of_us(part: Any) -> ErrorCode:
    """There is one leader epoch, 0: why a reader who has seen a later one is not served, or none."""
    if part.current_leader_epoch > 0:
        return ErrorCode.unknown_leader_epoch
    return ErrorCode.offset_out_of_range if part.last_fetched_epoch > 0 else ErrorCode.none


async def _extent(
    broker: "Broker", partition: Partition, offset: int, max_bytes: int, committed: bool
) -> Extent | None:
    """Recent records are found in memory; the way to old ones may need the disk, and so a thread."""
    try:
        return partition.log.locate(offset, max_bytes, wait=False, committed=committed)
    except BlockingIOError:
        return await broker.in_thread(partition.log.locate, offset, max_bytes, committed=committed)


def _code(error: Exception) -> int:
    if isinstance(error, RequestError):
        return error.code
    return int(
        ErrorCode.corrupt_message if isinstance(error, CorruptionError) else ErrorCode.kafka_storage_error
    )
