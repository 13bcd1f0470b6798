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
from typing import TYPE_CHECKING, Any

from headrace.broker.events import Subject
from headrace.broker.positions import positions
from headrace.errors import HeadraceError, RequestError
from headrace.records import read_header
from headrace.storage import PartitionLog, Topic
from headrace.wire import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.partition import Partition
    from headrace.broker.server import Broker

__all__ = ["MOST_THROTTLE_MS", "Overload", "Verdict", "first_kept", "verdict"]

CHECK_S = 0.1
LEAST_THROTTLE_MS = 50
MOST_THROTTLE_MS = 1000

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a batch is taken, and how long its producer shall wait before the next one."""

    accept: bool = True
    throttle_ms: int = 0


ACCEPT = Verdict()


def verdict(policy: str, backlog_bytes: int, bound_bytes: int) -> Verdict:
    """What to do with a batch for a partition with this backlog.

    block: from the bound on producers wait, the longer the nearer the backlog is
    to twice the bound; from there on they are told to try again. drop-newest: the
    batch is refused for good. Otherwise it is taken.
    """
    if backlog_bytes <= bound_bytes or policy not in ("block", "drop-newest"):
        return ACCEPT
    if policy == "drop-newest":
        return Verdict(accept=False)
    excess = (backlog_bytes - bound_bytes) / bound_bytes
    if excess >= 1:
        return Verdict(accept=False, throttle_ms=MOST_THROTTLE_MS)
    return Verdict(throttle_ms=max(LEAST_THROTTLE_MS, int(excess * MOST_THROTTLE_MS)))


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
    """Measures backlogs and applies the topics' choices. Event loop only."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._measured: dict[Partition, _Measured] = {}
        self._concerned: list[Topic] | None = None  # None: topics have changed since it was looked
        broker.topics.on_change.append(self._topic_changed)

    # --- producing ----------------------------------------------------------------------------

    def admit(self, topic: Topic, partition: "Partition", batch: memoryview, answer: dict[str, Any]) -> None:
        """Lets a checked batch pass, or raises RequestError; puts how long to wait into `throttle_ms`."""
        config = topic.config
        if config.headrace_overload == "buffer":
            return
        backlog = self.backlog(partition) or 0
        found = verdict(config.headrace_overload, backlog, config.headrace_overload_bytes)
        answer["throttle_ms"] = found.throttle_ms
        if found.throttle_ms:
            self._broker.metrics.throttled.add(found.throttle_ms / 1000, "overload")
        if found.accept:
            return
        behind = f"consumers of {topic.name}:{answer['index']} are {backlog} bytes behind"
        if config.headrace_overload == "block":
            self._broker.metrics.blocked.add(1, topic.name)
            raise RequestError(
                f"{behind}; try again when they have caught up (headrace.overload=block)",
                code=ErrorCode.not_enough_replicas,  # which every client takes as "not stored, send it again"
            )
        self.count_dropped("dropped-newest", topic.name, answer["index"], read_header(batch).record_count)
        raise RequestError(
            f"{behind}; the batch was dropped (headrace.overload=drop-newest)",
            code=ErrorCode.policy_violation,
        )

    def backlog(self, partition: "Partition") -> int | None:
        """Unread bytes of the slowest active group, as far as known; None where none is active."""
        measured = self._measured.get(partition)
        if measured is None or measured.backlog_bytes is None:
            return None
        return measured.backlog_bytes + partition.produced_bytes - measured.produced_bytes

    def count_dropped(self, kind: str, topic: str, index: int, records: int) -> None:
        """Counts records that an overload cost, for metrics and events."""
        self._broker.metrics.dropped.add(records, topic, kind.removeprefix("dropped-"))
        self._broker.events.note(Subject(kind, topic, index), records=records)

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
                    logger.warning("backlogs cannot be measured, the last ones hold: %s", error)
                failing = True

    async def check(self) -> None:
        """One round over the topics that ask for it."""
        topics = self._topics()
        if not topics:
            self._measured = {}
            return
        slowest = await self._slowest({topic.name for topic in topics})
        measured = {}
        for topic in topics:
            for index in range(len(topic.partitions)):
                partition = self._broker.topics.of(topic, index)
                if partition is None:  # deleted meanwhile
                    continue
                offset = slowest.get((topic.name, index))
                measured[partition] = await self._measure(topic, index, partition, offset)
        self._measured = measured

    def _topic_changed(self, _: str) -> None:
        self._concerned = None

    def _topics(self) -> list[Topic]:
        if self._concerned is None:
            topics = self._broker.topics.all()
            self._concerned = [topic for topic in topics if topic.config.headrace_overload != "buffer"]
        return self._concerned

    async def _slowest(self, topics: set[str]) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for position in await positions(self._broker):
            if position.is_active and position.topic in topics:
                place = position.topic, position.partition
                found[place] = min(position.offset, found.get(place, position.offset))
        return found

    async def _measure(
        self, topic: Topic, index: int, partition: "Partition", offset: int | None
    ) -> _Measured:
        produced, log, bound = partition.produced_bytes, partition.log, topic.config.headrace_overload_bytes
        if offset is None:
            return _Measured(None, produced)
        backlog = (await self._broker.in_thread(log.backlog, offset)).size_bytes
        if topic.config.headrace_overload == "drop-oldest" and backlog > bound:
            begin = max(offset, log.start_offset)
            kept = await self._broker.in_thread(first_kept, log, begin, bound)
            await self._broker.in_thread(log.delete_before, kept)
            self._broker.lag_watch.hurry()
            self.count_dropped("dropped-oldest", topic.name, index, kept - begin)
        return _Measured(backlog, produced)
