"""What happens when consumers do not keep up: a choice per topic, `headrace.overload`.

The measure is the backlog of a partition: the bytes from the committed offset of
its slowest active group to the end of the log. Active is a group that has
members, or committed within the last minute. Where no active group has
committed, there is nobody to wait for and the backlog is 0.

Backlogs are measured every `CHECK_S`, on worker threads and only for topics that
ask for it; what is produced in between is added. `verdict` decides.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable

from headrace.broker.events import Events, Subject
from headrace.broker.limits.lag import GroupPositions
from headrace.broker.log import Partition, Topics, WorkerThreads
from headrace.broker.metrics import Metrics
from headrace.errors import HeadraceError, RequestError
from headrace.records import read_header
from headrace.storage import PartitionLog, Topic
from headrace.wire import ErrorCode

__all__ = ["MOST_THROTTLE_MS", "Admission", "Overload", "OverloadedError", "first_kept", "verdict"]

CHECK_S = 0.1
LEAST_THROTTLE_MS = 50
MOST_THROTTLE_MS = 1000

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Admission:
    """Whether a batch is taken, and how long its producer shall wait before the next one."""

    accept: bool = True
    throttle_ms: int = 0


ACCEPT = Admission()


class OverloadedError(RequestError):
    """A batch is refused because consumers are too far behind; its producer waits for `throttle_ms`."""

    def __init__(self, message: str, *, code: int, throttle_ms: int = 0) -> None:
        super().__init__(message, code=code)
        self.throttle_ms = throttle_ms


def verdict(policy: str, backlog_bytes: int, bound_bytes: int) -> Admission:
    """What to do with a batch for a partition with this backlog.

    block: from the bound on producers wait, the longer the nearer the backlog is
    to twice the bound; from there on they are told to try again. drop-newest: the
    batch is refused for good. Otherwise it is taken.
    """
    if backlog_bytes <= bound_bytes or policy not in ("block", "drop-newest"):
        return ACCEPT
    if policy == "drop-newest":
        return Admission(accept=False)
    excess = (backlog_bytes - bound_bytes) / bound_bytes
    if excess >= 1:
        return Admission(accept=False, throttle_ms=MOST_THROTTLE_MS)
    return Admission(throttle_ms=max(LEAST_THROTTLE_MS, int(excess * MOST_THROTTLE_MS)))


def first_kept(log: PartitionLog, offset: int, bound_bytes: int) -> int:
    """The first offset from which at most so many bytes follow; reads the disk, on a worker thread."""
    low, high = offset, log.high_watermark
    while low < high:
        middle = (low + high) // 2
        if log.backlog(middle).size_bytes <= bound_bytes:
            high = middle
        else:
            low = middle + 1
    return low


@dataclasses.dataclass(slots=True)
class _Measured:
    """A backlog when it was measured, None if nobody reads there, and what had been produced by then."""

    backlog_bytes: int | None
    produced_bytes: int


class Overload:
    """Measures backlogs and applies the topics' choices. Event loop only.

    `on_deleted` is called when unread records were dropped to keep a bound.
    """

    def __init__(
        self,
        positions: GroupPositions,
        topics: Topics,
        events: Events,
        metrics: Metrics,
        threads: WorkerThreads,
        *,
        on_deleted: Callable[[], None],
    ) -> None:
        self._positions = positions
        self._topics = topics
        self._events = events
        self._metrics = metrics
        self._threads = threads
        self._on_deleted = on_deleted
        self._measured: dict[Partition, _Measured] = {}
        self._concerned: list[Topic] | None = None  # None: topics have changed since the last look
        topics.on_change.append(self._topic_changed)

    # --- producing ----------------------------------------------------------------------------

    def admit(self, topic: Topic, index: int, partition: Partition, batch: memoryview) -> int:
        """Lets a checked batch pass; for how long its producer shall wait, in ms. Or OverloadedError."""
        config = topic.config
        if config.headrace_overload == "buffer":
            return 0
        backlog = self.backlog(partition) or 0
        found = verdict(config.headrace_overload, backlog, config.headrace_overload_bytes)
        if found.throttle_ms:
            self._metrics.throttled.add(found.throttle_ms / 1000, "overload")
        if found.accept:
            return found.throttle_ms
        behind = f"consumers of {topic.name}:{index} are {backlog} bytes behind"
        if config.headrace_overload == "block":
            self._metrics.blocked.add(1, topic.name)
            raise OverloadedError(
                f"{behind}; try again when they have caught up (headrace.overload=block)",
                code=ErrorCode.not_enough_replicas,  # which every client takes as "not stored, send it again"
                throttle_ms=found.throttle_ms,
            )
        self.count_dropped("dropped-newest", topic.name, index, read_header(batch).record_count)
        raise OverloadedError(
            f"{behind}; the batch was dropped (headrace.overload=drop-newest)",
            code=ErrorCode.policy_violation,
        )

    def backlog(self, partition: Partition) -> int | None:
        """Unread bytes of the slowest active group, as far as known; None where none is active."""
        measured = self._measured.get(partition)
        if measured is None or measured.backlog_bytes is None:
            return None
        return measured.backlog_bytes + partition.produced_bytes - measured.produced_bytes

    def count_dropped(self, kind: str, topic: str, index: int, records: int) -> None:
        """Counts records that an overload cost, for metrics and events."""
        self._metrics.dropped.add(records, topic, kind.removeprefix("dropped-"))
        self._events.note(Subject(kind, topic, index), records=records)

    # --- measuring ----------------------------------------------------------------------------

    async def run(self) -> None:
        """Measures and drops until cancelled."""
        failing = False
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.check()
                failing = False
            except HeadraceError as error:
                if not failing:  # ten lines a second would help nobody
                    logger.warning("a backlog cannot be measured, the last one holds: %s", error)
                failing = True

    async def check(self) -> None:
        """One round over the topics that ask for it.

        Where a partition cannot be measured its last figure holds; the others are measured,
        and the first error is raised afterwards.
        """
        topics = self._limited()
        if not topics:
            self._measured = {}
            return
        slowest = await self._slowest({topic.name for topic in topics})
        measured, failed = {}, None
        for topic in topics:
            for index in range(len(topic.partitions)):
                partition = self._topics.of(topic, index)
                if partition is None:  # deleted meanwhile
                    continue
                offset = slowest.get((topic.name, index))
                try:
                    measured[partition] = await self._measure(topic, index, partition, offset)
                except HeadraceError as error:
                    failed = failed or error
                    measured[partition] = self._measured.get(partition, _Measured(None, 0))
        self._measured = measured
        if failed is not None:
            raise failed

    def _topic_changed(self, _: str) -> None:
        self._concerned = None

    def _limited(self) -> list[Topic]:
        if self._concerned is None:
            topics = self._topics.all()
            self._concerned = [topic for topic in topics if topic.config.headrace_overload != "buffer"]
        return self._concerned

    async def _slowest(self, topics: set[str]) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for position in await self._positions():
            if position.is_active and position.topic in topics:
                place = position.topic, position.partition
                found[place] = min(position.offset, found.get(place, position.offset))
        return found

    async def _measure(self, topic: Topic, index: int, partition: Partition, offset: int | None) -> _Measured:
        produced, log, bound = partition.produced_bytes, partition.log, topic.config.headrace_overload_bytes
        if offset is None:
            return _Measured(None, produced)
        backlog = (await self._threads.run(log.backlog, offset)).size_bytes
        if topic.config.headrace_overload == "drop-oldest" and backlog > bound:
            begin = max(offset, log.start_offset)
            kept = await self._threads.run(first_kept, log, begin, bound)
            await self._threads.run(log.delete_before, kept)
            self._on_deleted()
            self.count_dropped("dropped-oldest", topic.name, index, kept - begin)
        return _Measured(backlog, produced)
