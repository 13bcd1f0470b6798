"""Fetch: records from synced extents, waiting for them as long as the client allows.

A reader of committed records gets those below the last stable offset, and is told
which transactions among them were aborted; it leaves those out by itself.

Theory of operation. Most fetches find nothing at first and are answered by the next
commit, so that a record's way to its reader leads through here: no task, future or
timer's turn shall lie between the two. `Poll` therefore waits with callbacks: the
partition whose records were synced calls it, it looks at that partition alone, and
tells its owner if that was enough. Where the disk must be waited for to find an offset,
`look` leaves off before it; `fetch`, the way for every case, then goes on in a thread.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from headrace.broker.partition import Partition
from headrace.broker.quotas import CONSUMER
from headrace.broker.replies import Reply
from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.storage import Extent
from headrace.wire import ErrorCode, Request, encode_response
from headrace.wire.hot import fetched_nothing

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["Poll", "fetch", "fetch_at_once"]

READ_COMMITTED = 1


async def fetch(broker: "Broker", request: Request) -> Reply | dict[str, Any]:
    """Answers when `min_bytes` are there, something is wrong, or `max_wait` is over."""
    if request.body.session_epoch > 0:
        # Every fetch names all its partitions: there are no sessions to find.
        return {"error_code": ErrorCode.fetch_session_id_not_found}
    attempt = _Attempt(broker, request)
    try:
        await attempt.look_everywhere(attempt.parts)
        if attempt.may_wait:
            await _wait(attempt)
    except BaseException:
        attempt.release()
        raise
    return attempt.reply()


async def _wait(attempt: "_Attempt") -> None:
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


def fetch_at_once(broker: "Broker", request: Request, tell: Callable[[], None]) -> "Reply | Poll | None":
    """The answer, or the wait for it; None if the disk must be asked first, which is for `fetch` to do.

    A poll's owner is told when there is something to do: a reply to be taken, or as
    above. It calls `taken` then, or `stop` before.
    """
    if request.body.session_epoch > 0:
        return None
    attempt = _Attempt(broker, request)
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

    __slots__ = ("answer", "extent", "fetch_offset", "index", "log", "max_bytes", "partition", "poll", "seen")

    def __init__(self, partition: Partition, wanted: Any) -> None:
        self.partition = partition
        self.log = partition.log
        self.index: int = wanted.partition
        self.fetch_offset: int = wanted.fetch_offset
        self.max_bytes: int = wanted.partition_max_bytes
        self.answer: Mapping[str, Any] = {}
        self.extent: Extent | None = None
        self.seen = 0  # where it ended when it was looked at
        self.poll: Poll | None = None

    def wake(self) -> None:
        """The partition has more, perhaps nothing that this reader may see."""
        if self.poll is not None:
            self.poll.wake(self)


class _Attempt:
    """What a fetch would answer now; looked at again, only for what has changed since."""

    def __init__(self, broker: "Broker", request: Request) -> None:
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

    @property
    def enough(self) -> bool:
        return self.refused or self.size_bytes >= self._min_bytes or not self.parts

    @property
    def may_wait(self) -> bool:
        return not self.enough and self.wait_ms > 0 and not self._request.refused

    def reply(self) -> Reply:
        """The answer as it is; it holds what was found until it is released."""
        broker, request = self._broker, self._request
        responses = [
            {
                "topic": wanted.topic,
                "topic_id": wanted.topic_id,
                "partitions": [each.answer if isinstance(each, _Part) else each for each in parts],
            }
            for wanted, parts in self._topics
        ]
        if self.refused:
            broker.metrics.count_errors(request.api_key, responses)
        throttle_ms = broker.quotas.charge(CONSUMER, request.client_id, self.size_bytes)
        fields = {"responses": [*responses, *request.refused], "throttle_time": throttle_ms}
        frame = encode_response(request.api_key, request.api_version, request.correlation_id, fields)
        return Reply(frame, self.release, throttle_ms)

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
                part.answer = self._refusal(part.index, _ahead_of_us(asked))

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
            if not part.answer.get("error_code") and not self._look_at(part):
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
        if part.extent is not None:
            self._let_go(part)
        state = log.high_watermark, log.last_stable_offset, log.start_offset
        part.seen = end = state[1] if self.committed else state[0]
        if (offset == end and state[2] <= offset) or (self.size_bytes >= self._most and self.size_bytes):
            part.answer = self._nothing(part, *state)
            return True
        part.answer = self._standing(part, *state)
        try:
            self._take(part, log.locate(offset, self._limit(part), wait=False, committed=self.committed))
        except BlockingIOError:
            return False
        except _REFUSALS as error:
            self._refuse(part, error)
        return True

    def _nothing(self, part: _Part, high: int, stable: int, start: int) -> Mapping[str, Any]:
        """That there are no records; made once for as long as it is true of the partition."""
        state = high, stable, start, self.committed
        kept = part.partition.nothing_to_fetch
        if kept is None or kept[0] != state:
            answer = fetched_nothing(self._standing(part, high, stable, start))
            kept = part.partition.nothing_to_fetch = state, answer
        return kept[1]

    def _standing(self, part: _Part, high: int, stable: int, start: int) -> dict[str, Any]:
        """Where the partition stands, and no records yet."""
        return {
            "partition_index": part.index,
            "error_code": 0,
            "high_watermark": high,
            "last_stable_offset": stable,
            "log_start_offset": start,
            "aborted_transactions": () if self.committed else None,
            "records": b"",
        }

    def _limit(self, part: _Part) -> int:
        return min(part.max_bytes, max(self._most - self.size_bytes, 0))

    def _take(self, part: _Part, extent: Extent | None) -> None:
        if extent is None:
            return
        if self.size_bytes and extent.size_bytes > self._most - self.size_bytes:
            extent.release()
            return
        part.extent = extent
        part.answer = {**part.answer, "records": extent}
        self.size_bytes += extent.size_bytes
        if self.committed:
            part.answer["aborted_transactions"] = [
                {"producer_id": each.producer_id, "first_offset": each.first_offset}
                for each in part.log.aborted(part.fetch_offset, extent.offset_bound())
            ]

    def _refuse(self, part: _Part, error: Exception) -> None:
        part.answer = self._refusal(part.index, _code(error))

    def _let_go(self, part: _Part) -> None:
        """Takes back what was found before."""
        extent, part.extent = part.extent, None
        if extent is not None:
            self.size_bytes -= extent.size_bytes
            extent.release()

    def release(self) -> None:
        """Counts what was read, and lets it go."""
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

    def __init__(self, attempt: _Attempt, tell: Callable[[], None]) -> None:
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
