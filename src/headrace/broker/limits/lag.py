"""Groups that fall behind: how far they are, who is about to fall off the log, who fell.

The danger is measured as the share of retention that a group has used up: unread
bytes of `retention.bytes`, or the age of the oldest unread record of
`retention.ms`, whichever is larger. From the topic's `headrace.lag.alert.ratio`
on there is an alert; a committed offset below the log start is a fall. Both come
as events when they begin, and the alert also when it ends.

All groups are looked at every `lag_check_interval_ms`, and at once when records
were deleted; and before a group commits, since the new offset would hide a fall.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TypeAlias

from headrace.broker.events import Events, Subject
from headrace.broker.log import Topics, WorkerThreads
from headrace.broker.metrics import Metrics
from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.groups import OffsetCommitted
from headrace.storage import PartitionLog, TopicConfig

__all__ = [
    "ACTIVE_MS",
    "CAUGHT_UP",
    "FELL_OFF",
    "NEAR_RETENTION",
    "FallenGroups",
    "GroupPosition",
    "GroupPositions",
    "LagWatch",
    "MeasuredLag",
    "is_alarming",
    "share_of_retention",
]

ACTIVE_MS = 60_000
"""A group without members still counts as active for so long after a commit."""

NEAR_RETENTION, FELL_OFF, CAUGHT_UP = "near-retention", "fell-off", "caught-up"
SHORTEST_PAUSE_S = 0.2
MEASURED_AT_ONCE = 200  # positions on one trip to a worker thread
_OPPOSITE = {NEAR_RETENTION: CAUGHT_UP, CAUGHT_UP: NEAR_RETENTION}

logger = logging.getLogger(__name__)

Place = tuple[str, str, int]


@dataclasses.dataclass(frozen=True, slots=True)
class GroupPosition:
    """What one group committed in one partition, and whether it is at work."""

    group: str
    topic: str
    partition: int
    offset: int
    is_active: bool


GroupPositions: TypeAlias = Callable[[], Awaitable[list[GroupPosition]]]
"""Every committed offset, and where each queue begins; RetriableError while groups are unavailable."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLag:
    """How far a group is behind in one partition; `seconds` is None where no timestamp tells."""

    place: Place  # group, topic, partition
    records: int
    seconds: float | None
    share: float  # of what retention keeps: at 1 the next record to be read is about to go
    is_alarming: bool


def share_of_retention(backlog_bytes: int, age_ms: int | None, config: TopicConfig) -> float:
    """Which part of what retention allows a reader has used up; 0 where nothing is ever deleted."""
    shares = [0.0]
    if config.deletes and config.retention_bytes > 0:
        shares.append(backlog_bytes / config.retention_bytes)
    if config.deletes and config.retention_ms > 0 and age_ms is not None:
        shares.append(age_ms / config.retention_ms)
    return max(shares)


def is_alarming(share: float, config: TopicConfig) -> bool:
    """Whether it is time to tell; a ratio of 0 never is."""
    return 0 < config.headrace_lag_alert_ratio <= share


def _measured(position: GroupPosition, log: PartitionLog, now_ms: int) -> MeasuredLag:
    """Reads the disk; worker thread."""
    records = max(0, log.high_watermark - position.offset)
    backlog = log.backlog(position.offset)
    age_ms = max(0, now_ms - backlog.oldest_ms) if backlog.oldest_ms >= 0 else None
    share = share_of_retention(backlog.size_bytes, age_ms, log.config)
    known = 0.0 if not records else None if age_ms is None else age_ms / 1000
    return MeasuredLag(
        place=(position.group, position.topic, position.partition),
        records=records,
        seconds=known,
        share=share,
        is_alarming=is_alarming(share, log.config),
    )


def _all_measured(logs: Iterable[tuple[GroupPosition, PartitionLog]], now_ms: int) -> list[MeasuredLag]:
    """Those that can be measured: trouble with one partition hides no other. Worker thread."""
    lags = []
    for position, log in logs:
        try:
            lags.append(_measured(position, log, now_ms))
        except HeadraceError as error:
            logger.warning("the lag of %s in %s is not known: %s", position.group, position.topic, error)
    return lags


class FallenGroups:
    """Groups whose committed offset lies below the log start: records they never read are gone.

    Counts each fall once, and what is lost further while the group stays where it fell.
    Event loop only.
    """

    def __init__(self, topics: Topics, metrics: Metrics, events: Events) -> None:
        self._topics = topics
        self._metrics = metrics
        self._events = events
        self._fallen: dict[Place, tuple[int, int]] = {}  # committed offset, records lost so far

    def before_commit(
        self, offsets: Mapping[tuple[str, int], OffsetCommitted], committed: Iterable[OffsetCommitted]
    ) -> None:
        """A group, whose offsets these are, is about to commit others: counts where it had fallen."""
        for new in committed:
            old = offsets.get((new.topic, new.partition))
            partition = self._topics.partition(new.topic, new.partition)
            if old is None or partition is None or old.offset >= partition.log.start_offset:
                continue
            place, lost = (new.group_id, new.topic, new.partition), partition.log.start_offset - old.offset
            self._count(place, old.offset, lost)
            self._fallen[place] = old.offset, lost

    def look(self, found: Iterable[GroupPosition]) -> None:
        """Compares all positions with the log starts; needs no disk."""
        fallen = {}
        for position in found:
            partition = self._topics.partition(position.topic, position.partition)
            lost = partition.log.start_offset - position.offset if partition is not None else 0
            if lost > 0:
                place = position.group, position.topic, position.partition
                fallen[place] = position.offset, lost
                self._count(place, position.offset, lost)
        self._fallen = fallen

    def _count(self, place: Place, committed: int, lost: int) -> None:
        group, topic, _ = place
        before_committed, before_lost = self._fallen.get(place, (-1, 0))
        is_new = before_committed != committed
        more = lost if is_new else lost - before_lost
        if is_new:
            self._metrics.fell_off.add(1, group, topic)
        if more:
            self._metrics.lost.add(more, group, topic)
            _note(self._events, FELL_OFF, place, records=more, committed=committed)


class LagWatch:
    """Looks after all groups. Event loop only, but `lags` may be read by any thread."""

    def __init__(
        self,
        positions: GroupPositions,
        topics: Topics,
        fallen: FallenGroups,
        events: Events,
        threads: WorkerThreads,
        clock: Clock,
        *,
        interval_ms: int,
    ) -> None:
        self._positions = positions
        self._topics = topics
        self._fallen = fallen
        self._events = events
        self._threads = threads
        self._clock = clock
        self._interval_ms = interval_ms
        self._hurry = asyncio.Event()
        self._alarming: set[Place] = set()
        self.lags: tuple[MeasuredLag, ...] = ()

    def hurry(self) -> None:
        """Records were deleted: look now, not at the next round."""
        self._hurry.set()

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._interval_ms / 1000):
                    await self._hurry.wait()
            except TimeoutError:
                pass
            self._hurry.clear()
            try:
                await self.check()
            except HeadraceError as error:
                logger.warning("the lag of groups is not known: %s", error)
            await asyncio.sleep(SHORTEST_PAUSE_S)

    async def check(self) -> None:
        """One round: first the groups that fell, which needs no disk, then how far each of them is."""
        found = await self._positions()
        self._fallen.look(found)
        lags: list[MeasuredLag] = []
        for start in range(0, len(found), MEASURED_AT_ONCE):
            lags += await self._lags(found[start : start + MEASURED_AT_ONCE])
        self.lags = tuple(lags)
        self._note_alarming(lags)

    async def _lags(self, found: Iterable[GroupPosition]) -> list[MeasuredLag]:
        logs = []
        for position in found:
            partition = self._topics.partition(position.topic, position.partition)
            if partition is not None:  # not deleted meanwhile
                logs.append((position, partition.log))
        return await self._threads.run(_all_measured, logs, self._clock.now_ms())

    def _note_alarming(self, lags: Iterable[MeasuredLag]) -> None:
        alarming = {lag.place: lag for lag in lags if lag.is_alarming}
        for place in alarming.keys() - self._alarming:
            lag = alarming[place]
            _note(self._events, NEAR_RETENTION, place, records=lag.records, share=round(lag.share, 3))
        for place in self._alarming - alarming.keys():
            _note(self._events, CAUGHT_UP, place)
        self._alarming = set(alarming)


def _note(events: Events, kind: str, place: Place, *, records: int = 0, **details: float) -> None:
    group, topic, partition = place
    level = logging.INFO if kind == CAUGHT_UP else logging.WARNING
    logger.log(level, "group %s, %s:%d: %s, %d records", group, topic, partition, kind, records)
    if kind in _OPPOSITE:  # one that still waits to be written must not come after what ended it
        events.withdraw(Subject(_OPPOSITE[kind], topic, partition, group))
    events.note(Subject(kind, topic, partition, group), records=records, **details)
