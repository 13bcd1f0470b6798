"""Fetch: records from synced extents, waiting for them as long as the client allows.

A reader of committed records gets those below the last stable offset, and is told
which transactions among them were aborted; it leaves those out by itself.
"""

import asyncio
from typing import TYPE_CHECKING, Any

from headrace.broker.partition import Partition
from headrace.broker.quotas import CONSUMER
from headrace.broker.replies import Reply
from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.storage import Extent, PartitionLog
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
    attempt = _Attempt(broker, body)
    wait_ms = min(body.max_wait, broker.settings.idle_timeout_ms)
    try:
        await attempt.look(attempt.parts)
        if not attempt.enough and wait_ms > 0 and not request.refused:
            await _wait(attempt, wait_ms / 1000)
    except BaseException:
        attempt.release()
        raise
    if attempt.refused:
        broker.metrics.count_errors(request.api_key, attempt.responses)
    throttle_ms = broker.quotas.charge(CONSUMER, request.client_id, attempt.size_bytes)
    fields = {"responses": [*attempt.responses, *request.refused], "throttle_time": throttle_ms}
    frame = encode_response(request.api_key, request.api_version, request.correlation_id, fields)
    return Reply(frame, attempt.release, throttle_ms)


class _Part:
    """One partition of a fetch: what is asked of it, and what would be answered now."""

    __slots__ = ("answer", "extent", "fetch_offset", "log", "max_bytes", "partition", "seen")

    def __init__(self, partition: Partition, wanted: Any, answer: dict[str, Any]) -> None:
        self.partition = partition
        self.log = partition.log
        self.fetch_offset: int = wanted.fetch_offset
        self.max_bytes: int = wanted.partition_max_bytes
        self.answer = answer
        self.extent: Extent | None = None
        self.seen = 0  # where it ended when it was looked at


class _Attempt:
    """What a fetch would answer now; looked at again, only for what has changed since."""

    def __init__(self, broker: "Broker", body: Any) -> None:
        self.responses: list[dict[str, Any]] = []
        self.parts: list[_Part] = []
        self.size_bytes = 0
        self.refused = False
        self._broker = broker
        self._committed = body.isolation_level == READ_COMMITTED
        self._min_bytes: int = body.min_bytes
        self._most: int = min(body.max_bytes, broker.settings.fetch_max_bytes)
        for wanted in body.topics:
            self._add_topic(wanted)

    @property
    def enough(self) -> bool:
        return self.refused or self.size_bytes >= self._min_bytes or not self.parts

    def _add_topic(self, wanted: Any) -> None:
        topics = self._broker.topics
        topic = topics.find(wanted.topic, wanted.topic_id)
        unknown_id = topic is None and wanted.topic_id is not None
        nowhere = ErrorCode.unknown_topic_id if unknown_id else ErrorCode.unknown_topic_or_partition
        answers = []
        for part in wanted.partitions:
            answer = {
                "partition_index": part.partition,
                "high_watermark": -1,
                "aborted_transactions": () if self._committed else None,
                "records": b"",
            }
            answers.append(answer)
            partition = topics.of(topic, part.partition) if topic is not None else None
            error = nowhere if partition is None else _ahead_of_us(part)
            if error:
                answer["error_code"] = int(error)
                self.refused = True
            if partition is not None:
                self.parts.append(_Part(partition, part, answer))
        self.responses.append({"topic": wanted.topic, "topic_id": wanted.topic_id, "partitions": answers})

    def moved(self) -> list[_Part]:
        """The partitions that have more to offer than when they were looked at."""
        committed = self._committed
        return [part for part in self.parts if part.partition.readable_end(committed=committed) > part.seen]

    async def look(self, parts: list[_Part]) -> None:
        """Adds what these partitions have to offer (the first batch of a fetch always fits)."""
        for part in parts:
            if "error_code" not in part.answer:
                await self._look_at(part)

    async def _look_at(self, part: _Part) -> None:
        log, answer, offset = part.log, part.answer, part.fetch_offset
        self._let_go(part)
        part.seen = end = part.partition.readable_end(committed=self._committed)
        answer["high_watermark"] = log.high_watermark
        answer["last_stable_offset"] = log.last_stable_offset
        answer["log_start_offset"] = start = log.start_offset
        left = self._most - self.size_bytes
        if (offset == end and start <= offset) or (left <= 0 and self.size_bytes):
            return
        try:
            extent = await self._extent(log, offset, min(part.max_bytes, max(left, 0)))
        except (RequestError, CorruptionError, DiskError) as error:
            answer.update(_NOWHERE, error_code=_code(error))
            self.refused = True
            return
        if extent is None:
            return
        if self.size_bytes and extent.size_bytes > left:
            extent.release()
            return
        part.extent = answer["records"] = extent
        self.size_bytes += extent.size_bytes
        if self._committed:
            answer["aborted_transactions"] = [
                {"producer_id": each.producer_id, "first_offset": each.first_offset}
                for each in log.aborted(offset, extent.offset_bound())
            ]

    async def _extent(self, log: PartitionLog, offset: int, max_bytes: int) -> Extent | None:
        """Recent records are found in memory; the way to old ones may need the disk, and so a thread."""
        try:
            return log.locate(offset, max_bytes, wait=False, committed=self._committed)
        except BlockingIOError:
            return await self._broker.in_thread(log.locate, offset, max_bytes, committed=self._committed)

    def _let_go(self, part: _Part) -> None:
        """Takes back what was found before."""
        if part.extent is not None:
            self.size_bytes -= part.extent.size_bytes
            part.extent.release()
            part.extent = None
            part.answer.update(records=b"", aborted_transactions=() if self._committed else None)

    def release(self) -> None:
        """Counts what was read, and lets it go."""
        for part in self.parts:
            extent, partition = part.extent, part.partition
            if extent is not None:
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


async def _wait(attempt: _Attempt, seconds: float) -> None:
    """Looks again whenever a partition has more, until there is enough or the time is over."""
    waiter = _Waiter()
    timer = asyncio.get_running_loop().call_later(seconds, waiter.end)
    for part in attempt.parts:
        part.partition.on_records(waiter.wake)
    try:
        moved = attempt.moved()  # while others were looked at
        while True:
            if moved:
                await attempt.look(moved)
                if attempt.enough:
                    return
            await waiter.wait()
            if waiter.is_over:
                return
            moved = attempt.moved()  # perhaps nothing that this reader may see
    finally:
        timer.cancel()
        for part in attempt.parts:
            part.partition.forget(waiter.wake)


# With an error nothing is told of where the partition stands, as in Kafka.
_NOWHERE = {"high_watermark": -1, "last_stable_offset": -1, "log_start_offset": -1}


def _ahead_of_us(part: Any) -> ErrorCode:
    """There is one leader epoch, 0: why a reader who has seen a later one is not served, or none."""
    if part.current_leader_epoch > 0:
        return ErrorCode.unknown_leader_epoch
    return ErrorCode.offset_out_of_range if part.last_fetched_epoch > 0 else ErrorCode.none


def _code(error: Exception) -> int:
    if isinstance(error, RequestError):
        return error.code
    return int(
        ErrorCode.corrupt_message if isinstance(error, CorruptionError) else ErrorCode.kafka_storage_error
    )
