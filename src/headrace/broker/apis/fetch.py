"""Fetch: records from synced extents, waiting for them as long as the client allows.

A reader of committed records gets those below the last stable offset, and is told
which transactions among them were aborted; it leaves those out by itself.

Theory of operation. Most fetches find nothing at first and are answered by the next
commit, so that a record's way to its reader leads through here: no task, future or
timer's turn shall lie between the two. `Poll` therefore waits with callbacks: the
partition whose records were synced calls it, it looks at that partition alone, and
tells its owner if that was enough. Where the disk must be waited for to find an offset,
`look` leaves off before it; `fetch`, the way for every case, then goes on in a thread.

A reader asks the same again, from other offsets. So its attempt is kept, and if the next
request fits its shape (`wire.repeats`), it is the same attempt again. For one who keeps up
there is a shorter way still: `follower`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headrace.broker.partition import Partition
from headrace.broker.quotas import CONSUMER
from headrace.broker.replies import Reply
from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.storage import Extent, Topic
from headrace.wire import ErrorCode, Request, encode_response
from headrace.wire.repeats import FetchShape

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["Attempt", "Poll", "fetch", "fetch_at_once"]

READ_COMMITTED = 1


async def fetch(broker: "Broker", request: Request) -> Reply | dict[str, Any]:
    """Answers when `min_bytes` are there, something is wrong, or `max_wait` is over."""
    if request.body.session_epoch > 0:
        # Every fetch names all its partitions: there are no sessions to find.
        return {"error_code": ErrorCode.fetch_session_id_not_found}
    attempt = Attempt(broker, request)
    try:
        await attempt.look_everywhere(attempt.parts)
        if attempt.may_wait:
            await _wait(attempt)
    except BaseException:
        attempt.release()
        raise
    return attempt.reply()


async def _wait(attempt: "Attempt") -> None:
    told = asyncio.Event()
    poll = Poll(attempt, told.set)
    try:
        poll.go_on()  # there may be more in some since the others were looked at
        while True:
            while poll.cold:
                await attempt.look_everywhere(poll.cold)
                poll.go_on()
            if poll.is_over or attempt.enough:
                return
            await told.wait()
            told.clear()
            if poll.error is not None:
                raise poll.error
    finally:
        poll.stop()


def fetch_at_once(attempt: "Attempt", tell: Callable[[], None]) -> "Reply | Poll | None":
    """The answer, or the wait for it; None if the disk must be asked first, which is for `fetch` to do.

    A poll's owner is told when there is something to do: a reply to be taken, or as
    above. It calls `taken` then, or `stop` before.
    """
    try:
        if attempt.look(attempt.parts):
            attempt.release()
            return None
        return Poll(attempt, tell) if attempt.may_wait else attempt.reply()
    except BaseException:
        attempt.release()
        raise


class _Part:
    """One partition of a fetch: what is asked of it, and what would be answered now."""

    __slots__ = (
        *("aborted", "extent", "fetch_offset", "index", "log", "max_bytes"),
        *("partition", "poll", "refusal", "seen", "state"),
    )

    def __init__(self, partition: Partition, wanted: Any) -> None:
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
        self.poll: Poll | None = None

    def wake(self) -> None:
        """The partition has more, perhaps nothing that this reader may see."""
        if self.poll is not None:
            self.poll.wake(self)


class Attempt:
    """What a fetch would answer now; looked at again, only for what has changed since."""

    def __init__(self, broker: "Broker", request: Request, shape: FetchShape | None = None) -> None:
        """With the `shape` of the request, if it has one, it can be asked again."""
        self.parts: list[_Part] = []
        self._topics: list[tuple[Any, list[_Part | Mapping[str, Any]]]] = []
        self.size_bytes = 0
        self.refused = False
        self._broker = broker
        self._request = request
        body = request.body
        self.wait_ms: int = min(body.max_wait, broker.settings.idle_timeout_ms)
        self.committed = body.isolation_level == READ_COMMITTED
        self._min_bytes: int = body.min_bytes
        # Twice, because an answer that ends between batches has at least half of what it might have.
        self._most: int = min(body.max_bytes, max(broker.settings.fetch_max_bytes, 2 * body.min_bytes))
        for wanted in body.topics:
            self._add_topic(wanted)
        self._correlation_id = request.correlation_id
        self._topic: Topic | None = None
        self._shape: FetchShape | None = None
        if shape is not None and not self.refused and not request.refused:
            self._shape = shape
            self._topic = broker.topics.find(body.topics[0].topic, body.topics[0].topic_id)
            self._by_index = {part.index: part for part in self.parts}

    def is_asked_again(self, frame: bytearray, version: int, correlation_id: int) -> bool:
        """Whether a request is this one again, perhaps from other offsets; from now on it is that one."""
        shape, topic = self._shape, self._topic
        if shape is None or topic is None or shape.version != version or self.refused:
            return False
        offsets = shape.offsets(frame)
        if offsets is None or not self._broker.topics.is_current(topic):
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

    def fits(self, part: _Part, size: int) -> bool:
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
        throttle_ms = self._broker.quotas.charge(CONSUMER, request.client_id, self.size_bytes)
        fields = {"responses": [*self._responses(), *request.refused], "throttle_time": throttle_ms}
        frame = encode_response(request.api_key, request.api_version, self._correlation_id, fields)
        return Reply(frame, self.release, throttle_ms)

    def _responses(self) -> list[dict[str, Any]]:
        responses = [
            {
                "topic": wanted.topic,
                "topic_id": wanted.topic_id,
                "partitions": [self._answer(each) if isinstance(each, _Part) else each for each in parts],
            }
            for wanted, parts in self._topics
        ]
        if self.refused:
            self._broker.metrics.count_errors(self._request.api_key, responses)
        return responses

    def _answer(self, part: _Part) -> Mapping[str, Any]:
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
        topics = self._broker.topics
        topic = topics.find(wanted.topic, wanted.topic_id)
        unknown_id = topic is None and wanted.topic_id is not None
        nowhere = ErrorCode.unknown_topic_id if unknown_id else ErrorCode.unknown_topic_or_partition
        parts: list[_Part | Mapping[str, Any]] = []
        self._topics.append((wanted, parts))
        for asked in wanted.partitions:
            partition = topics.of(topic, asked.partition) if topic is not None else None
            if partition is None:
                parts.append(self._refusal(asked.partition, nowhere))
                continue
            part = _Part(partition, asked)
            parts.append(part)
            self.parts.append(part)
            if asked.current_leader_epoch > 0 or asked.last_fetched_epoch > 0:
                part.refusal = self._refusal(part.index, _ahead_of_us(asked))

    def _refusal(self, index: int, code: int) -> Mapping[str, Any]:
        """With an error nothing is told of where the partition stands, as in Kafka."""
        self.refused = True
        return {
            "partition_index": index,
            "error_code": int(code),
            "high_watermark": -1,
            "aborted_transactions": () if self.committed else None,
            "records": b"",
        }

    def look(self, parts: list[_Part]) -> list[_Part]:
        """Adds what these partitions have to offer (the first batch of a fetch always fits).

        Those that are left from the first on for which the disk must be asked.
        """
        for place, part in enumerate(parts):
            if part.refusal is None and not self._look_at(part):
                return parts[place:]
        return []

    async def look_everywhere(self, parts: list[_Part]) -> None:
        """The same, the disk included."""
        while left := self.look(parts):
            part, parts = left[0], left[1:]
            limits = part.fetch_offset, self._limit(part)
            try:
                found = await self._broker.in_thread(part.log.locate, *limits, committed=self.committed)
                self._take(part, found)
            except _REFUSALS as error:
                self._refuse(part, error)

    def _look_at(self, part: _Part) -> bool:
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

    def _limit(self, part: _Part) -> int:
        return min(part.max_bytes, max(self._most - self.size_bytes, 0))

    def _take(self, part: _Part, extent: Extent | None) -> None:
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

    def _refuse(self, part: _Part, error: Exception) -> None:
        part.refusal = self._refusal(part.index, _code(error))

    def _let_go(self, part: _Part) -> None:
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


class Poll:
    """The wait of a fetch: looks again whenever a partition has more.

    Tells its owner when there is enough, when the time is over, when something failed, or
    when it came upon partitions for which the disk must be asked (`cold`); those come first
    then, and what else happens meanwhile is looked at when they are done (`go_on`).
    """

    __slots__ = ("_attempt", "_tell", "_timer", "cold", "error", "is_over")

    def __init__(self, attempt: Attempt, tell: Callable[[], None]) -> None:
        self._attempt = attempt
        self._tell = tell
        self.is_over = False
        self.error: Exception | None = None
        self.cold: list[_Part] = []
        # It may run a little early by the clock: that it ran is what counts.
        self._timer = asyncio.get_running_loop().call_later(attempt.wait_ms / 1000, self._end)
        for part in attempt.parts:
            part.poll = self
            part.partition.on_records(part.wake)

    def _end(self) -> None:
        self.is_over = True
        self._tell()

    def wake(self, part: _Part) -> None:
        """A partition has more, or so it says. What fails is told to the owner, not to the partition."""
        try:
            self._look_at(part)
        except Exception as error:
            self.error = error
        if self.cold or self.error is not None or self._attempt.enough:
            self._tell()

    def _look_at(self, part: _Part) -> None:
        if not self.cold and part.partition.readable_end(committed=self._attempt.committed) > part.seen:
            self.cold = self._attempt.look([part])

    def go_on(self) -> None:
        """Looks at what has more by now; what was cold has been looked at."""
        self.cold = []
        for part in self._attempt.parts:
            if not self._attempt.enough:
                self._look_at(part)

    def stop(self) -> None:
        """Waits no more."""
        self._timer.cancel()
        for part in self._attempt.parts:
            part.poll = None
            part.partition.forget(part.wake)

    def taken(self) -> Reply | None:
        """Ends the wait with its answer; None if the disk must be asked first, and nothing is held then."""
        self.stop()
        if self.cold or self.error is not None:
            self._attempt.release()
        if self.error is not None:
            raise self.error
        return None if self.cold else self._attempt.reply()

    def cancel(self) -> None:
        """Ends the wait for nobody."""
        self.stop()
        self._attempt.release()


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
