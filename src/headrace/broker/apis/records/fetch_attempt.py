"""What a fetch would answer now, partition by partition.

A reader asks the same again, from other offsets. So its attempt is kept, and if the next
request fits its shape (`wire.repeats`), it is the same attempt again.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headrace.broker.access import Operation, Resource, is_allowed
from headrace.broker.apis.answers import Reply
from headrace.broker.limits import CONSUMER, Quotas
from headrace.broker.log import Partition, Topics, WorkerThreads
from headrace.broker.metrics import Metrics
from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.storage import Extent, Topic
from headrace.wire import ErrorCode, FetchShape, Request, encode_response

__all__ = ["READ_COMMITTED", "Attempt", "FetchPartition", "Fetching"]

READ_COMMITTED = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """What every fetch needs of the broker, and the bounds on what it may ask for."""

    topics: Topics
    quotas: Quotas
    metrics: Metrics
    threads: WorkerThreads
    most_wait_ms: int
    most_bytes: int


class Waiting(Protocol):
    """What is told when a partition has more."""

    def wake(self, part: "FetchPartition") -> None: ...


class FetchPartition:
    """One partition of a fetch: what is asked of it, and what would be answered now."""

    __slots__ = (
        *("aborted", "extent", "fetch_offset", "index", "log", "max_bytes"),
        *("partition", "poll", "refusal", "seen", "state", "topic"),
    )

    def __init__(self, topic: Topic, partition: Partition, wanted: Any) -> None:
        self.topic = topic.name
        self.partition = partition
        self.log = partition.log
        self.index: int = wanted.partition
        self.fetch_offset: int = wanted.fetch_offset
        self.max_bytes: int = wanted.partition_max_bytes
        self.refusal: Mapping[str, Any] | None = None
        self.state = 0, 0, 0  # high watermark, last stable offset and log start when it was looked at
        self.seen = 0  # which of them it ended at
        self.extent: Extent | None = None  # where its records are
        self.aborted: Sequence[Mapping[str, int]] = ()
        self.poll: Waiting | None = None  # told when the partition has more

    def wake(self) -> None:
        """The partition has more, perhaps nothing that this reader may see."""
        if self.poll is not None:
            self.poll.wake(self)


class Attempt:
    """What a fetch would answer now; looked at again, only for what has changed since."""

    def __init__(self, fetching: Fetching, request: Request, shape: FetchShape | None = None) -> None:
        """With the `shape` of the request, if it has one, the next request can be this one again."""
        self.parts: list[FetchPartition] = []
        self._topics: list[tuple[Any, list[FetchPartition | Mapping[str, Any]]]] = []
        self.size_bytes = 0
        self.refused = False
        self._fetching = fetching
        self._request = request
        body = request.body
        self.wait_ms: int = min(body.max_wait, fetching.most_wait_ms)
        self.committed = body.isolation_level == READ_COMMITTED
        self._min_bytes: int = body.min_bytes
        # Twice, because an answer that ends between batches has at least half of what it might have.
        self._most: int = min(body.max_bytes, max(fetching.most_bytes, 2 * body.min_bytes))
        for wanted in body.topics:
            self._add_topic(wanted)
        self._correlation_id = request.correlation_id
        self._topic: Topic | None = None
        self._shape: FetchShape | None = None
        if shape is not None and not self.refused and not request.refused:
            self._shape = shape
            self._topic = fetching.topics.find(body.topics[0].topic, body.topics[0].topic_id)
            self._by_index = {part.index: part for part in self.parts}

    def is_same_again(self, frame: bytearray, version: int, correlation_id: int) -> bool:
        """Whether a request is this one again, perhaps from other offsets; from now on it is that one."""
        shape, topic = self._shape, self._topic
        if shape is None or topic is None or shape.version != version or self.refused:
            return False
        offsets = shape.offsets(frame)
        if offsets is None or not self._fetching.topics.is_current(topic):
            return False
        self._correlation_id, self.size_bytes = correlation_id, 0
        self.parts = [self._by_index[index] for index in offsets]
        for part in self.parts:
            part.fetch_offset, part.extent = offsets[part.index], None
        self._topics[0][1][:] = self.parts
        return True

    @property
    def kept(self) -> tuple[Topic, FetchShape] | None:
        """What the next request is known by, if it can be the same."""
        if self._topic is None or self._shape is None or self.refused:
            return None
        return self._topic, self._shape

    def fits(self, part: FetchPartition, size: int) -> bool:
        """Whether so many bytes of one partition are enough for an answer, and not too many."""
        return self._min_bytes <= size <= min(part.max_bytes, self._most)

    @property
    def enough(self) -> bool:
        return self.refused or self.size_bytes >= self._min_bytes or not self.parts

    @property
    def may_wait(self) -> bool:
        return not self.enough and self.wait_ms > 0 and not self._request.refused

    def reply(self) -> Reply:
        """The answer as it is; it holds what was found until it is released."""
        request = self._request
        if request.session is not None:
            self._withhold()
        throttle_ms = self._fetching.quotas.charge(CONSUMER, request.client_id, self.size_bytes)
        fields = {"responses": [*self._responses(), *request.refused], "throttle_time": throttle_ms}
        frame = encode_response(request.api_key, request.api_version, self._correlation_id, fields)
        return Reply(frame, self.release, throttle_ms)

    def _withhold(self) -> None:
        """Takes back what its reader may no longer read: the guard decided before the wait."""
        for part in self.parts:
            if not is_allowed(self._request.session, Operation.READ, Resource.TOPIC, part.topic):
                self._let_go(part)
                part.refusal = self._refusal(part.index, ErrorCode.topic_authorization_failed)

    def _responses(self) -> list[dict[str, Any]]:
        responses = [
            {
                "topic": wanted.topic,
                "topic_id": wanted.topic_id,
                "partitions": [
                    self._answer(each) if isinstance(each, FetchPartition) else each for each in parts
                ],
            }
            for wanted, parts in self._topics
        ]
        if self.refused:
            self._fetching.metrics.count_errors(self._request.api_key, responses)
        return responses

    def _answer(self, part: FetchPartition) -> Mapping[str, Any]:
        if part.refusal is not None:
            return part.refusal
        high, stable, start = part.state
        return {
            "partition_index": part.index,
            "error_code": 0,
            "high_watermark": high,
            "last_stable_offset": stable,
            "log_start_offset": start,
            "aborted_transactions": part.aborted if self.committed else None,
            "records": part.extent or b"",
        }

    def _add_topic(self, wanted: Any) -> None:
        topics = self._fetching.topics
        topic = topics.find(wanted.topic, wanted.topic_id)
        unknown_id = topic is None and wanted.topic_id is not None
        nowhere = ErrorCode.unknown_topic_id if unknown_id else ErrorCode.unknown_topic_or_partition
        parts: list[FetchPartition | Mapping[str, Any]] = []
        self._topics.append((wanted, parts))
        for asked in wanted.partitions:
            partition = topics.of(topic, asked.partition) if topic is not None else None
            if topic is None or partition is None:
                parts.append(self._refusal(asked.partition, nowhere))
                continue
            part = FetchPartition(topic, partition, asked)
            parts.append(part)
            self.parts.append(part)
            if asked.current_leader_epoch > 0 or asked.last_fetched_epoch > 0:
                part.refusal = self._refusal(part.index, _ahead_of_us(asked))

    def _refusal(self, index: int, code: int) -> Mapping[str, Any]:
        """With an error the answer does not say where the partition stands, as in Kafka."""
        self.refused = True
        return {
            "partition_index": index,
            "error_code": int(code),
            "high_watermark": -1,
            "aborted_transactions": () if self.committed else None,
            "records": b"",
        }

    def look(self, parts: list[FetchPartition]) -> list[FetchPartition]:
        """Adds what these partitions have to offer (the first batch of a fetch always fits).

        Those that are left from the first on for which the disk must be asked.
        """
        for place, part in enumerate(parts):
            if part.refusal is None and not self._look_at(part):
                return parts[place:]
        return []

    async def look_everywhere(self, parts: list[FetchPartition]) -> None:
        """The same, the disk included."""
        while left := self.look(parts):
            part, parts = left[0], left[1:]
            limits = part.fetch_offset, self._limit(part)
            try:
                found = await self._fetching.threads.run(part.log.locate, *limits, committed=self.committed)
                self._take(part, found)
            except _REFUSALS as error:
                self._refuse(part, error)

    def _look_at(self, part: FetchPartition) -> bool:
        """Whether it could be done without the disk, which old records may need to be found."""
        log, offset = part.log, part.fetch_offset
        self._let_go(part)
        part.state = high, stable, start = log.high_watermark, log.last_stable_offset, log.start_offset
        part.seen = end = stable if self.committed else high
        if (offset == end and start <= offset) or (self.size_bytes >= self._most and self.size_bytes):
            return True
        try:
            self._take(part, log.locate(offset, self._limit(part), wait=False, committed=self.committed))
        except BlockingIOError:
            return False
        except _REFUSALS as error:
            self._refuse(part, error)
        return True

    def _limit(self, part: FetchPartition) -> int:
        return min(part.max_bytes, max(self._most - self.size_bytes, 0))

    def _take(self, part: FetchPartition, extent: Extent | None) -> None:
        if extent is None:
            return
        if self.size_bytes and extent.size_bytes > self._most - self.size_bytes:
            extent.release()
            return
        part.extent = extent
        self.size_bytes += extent.size_bytes
        if self.committed:
            part.aborted = [
                {"producer_id": each.producer_id, "first_offset": each.first_offset}
                for each in part.log.aborted(part.fetch_offset, extent.offset_bound())
            ]

    def _refuse(self, part: FetchPartition, error: Exception) -> None:
        part.refusal = self._refusal(part.index, _code(error))

    def _let_go(self, part: FetchPartition) -> None:
        """Takes back what was found before."""
        part.aborted = ()
        extent, part.extent = part.extent, None
        if extent is not None:
            self.size_bytes -= extent.size_bytes
            extent.release()

    def release(self) -> None:
        """Counts what was read of files, and lets it go."""
        for part in self.parts:
            extent, partition = part.extent, part.partition
            if extent is not None:
                partition.fetched_records += extent.offsets_read
                partition.fetched_bytes += extent.bytes_read
                extent.release()


_REFUSALS = (RequestError, CorruptionError, DiskError)


def _ahead_of_us(part: Any) -> ErrorCode:
    """There is one leader epoch, 0: why a reader who has seen a later one is not served."""
    behind = part.current_leader_epoch > 0
    return ErrorCode.unknown_leader_epoch if behind else ErrorCode.offset_out_of_range


def _code(error: Exception) -> int:
    if isinstance(error, RequestError):
        return error.code
    return int(
        ErrorCode.corrupt_message if isinstance(error, CorruptionError) else ErrorCode.kafka_storage_error
    )
