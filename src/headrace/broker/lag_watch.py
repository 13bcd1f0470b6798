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
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.broker.events import Subject
from headrace.broker.positions import Position, positions
from headrace.errors import HeadraceError
from headrace.groups.events import OffsetCommitted
from headrace.storage import PartitionLog, TopicConfig

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["CAUGHT_UP", "FELL_OFF", "NEAR_RETENTION", "Lag", "LagWatch", "is_alarming", "share_of_retention"]

NEAR_RETENTION, FELL_OFF, CAUGHT_UP = "near-retention", "fell-off", "caught-up"
SHORTEST_PAUSE_S = 0.2
MEASURED_AT_ONCE = 200  # positions on one trip to a worker thread
_OPPOSITE = {NEAR_RETENTION: CAUGHT_UP, CAUGHT_UP: NEAR_RETENTION}

logger = logging.getLogger(__name__)

Place = tuple[str, str, int]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
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


def _measured(position: Position, log: PartitionLog, now_ms: int) -> Lag:
    """Reads the disk; worker thread."""
    records = max(0, log.high_watermark - position.offset)
    backlog = log.backlog(position.offset)
    age_ms = max(0, now_ms - backlog.oldest_ms) if backlog.oldest_ms >= 0 else None
    share = share_of_retention(backlog.size_bytes, age_ms, log.config)
    known = 0.0 if not records else None if age_ms is None else age_ms / 1000
    return Lag(
        place=(position.group, position.topic, position.partition),
        records=records,
        seconds=known,
        share=share,
        is_alarming=is_alarming(share, log.config),
    )


def _all_measured(logs: Iterable[tuple[Position, PartitionLog]], now_ms: int) -> list[Lag]:
    """Those that can be measured: trouble with one partition hides no other. Worker thread."""
    lags = []
    for position, log in logs:
        try:
            lags.append(_measured(position, log, now_ms))
        except HeadraceError as error:
            logger.warning("the lag of %s in %s is not known: %s", position.group, position.topic, error)
    return lags


class LagWatch:
    """Looks after all groups. Event loop only, but `lags` may be read by any thread."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._hurry = asyncio.Event()
        self._alarming: set[Place] = set()
        self._fallen: dict[Place, tuple[int, int]] = {}  # committed offset, records lost so far
        self.lags: tuple[Lag, ...] = ()

    def hurry(self) -> None:
        """Records were deleted: look now, not at the next round."""
        self._hurry.set()

    async def run(self) -> None:
        """Looks until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._broker.settings.lag_check_interval_ms / 1000):
                    await self._hurry.wait()
            except TimeoutError:
                pass
            self._hurry.clear()
            try:
                await self.check()
            except HeadraceError as error:
                logger.warning("groups were not looked at for their lag: %s", error)
            await asyncio.sleep(SHORTEST_PAUSE_S)

    async def check(self) -> None:
        """One round: first who fell, which needs no disk, then how far everybody is."""
        found = await positions(self._broker)
        self._note_fallen(found)
        lags: list[Lag] = []
        for start in range(0, len(found), MEASURED_AT_ONCE):
            lags += await self._lags(found[start : start + MEASURED_AT_ONCE])
        self.lags = tuple(lags)
        self._note_alarming(lags)

    def before_commit(
        self, offsets: Mapping[tuple[str, int], OffsetCommitted], committed: Iterable[OffsetCommitted]
    ) -> None:
        """A group, whose offsets these are, is about to commit others: counts where it had fallen."""
        for new in committed:
            old = offsets.get((new.topic, new.partition))
            partition = self._broker.partition(new.topic, new.partition)
            if old is None or partition is None or old.offset >= partition.log.start_offset:
                continue
            place, lost = (new.group_id, new.topic, new.partition), partition.log.start_offset - old.offset
            self._count_fall(place, old.offset, lost)
            self._fallen[place] = old.offset, lost

    async def _lags(self, found: Iterable[Position]) -> list[Lag]:
        logs = []
        for position in found:
            partition = self._broker.partition(position.topic, position.partition)
            if partition is not None:  # not deleted meanwhile
                logs.append((position, partition.log))
        return await self._broker.in_thread(_all_measured, logs, self._broker.clock.now_ms())

    def _note_fallen(self, found: Iterable[Position]) -> None:
        fallen = {}
        for position in found:
            partition = self._broker.partition(position.topic, position.partition)
            lost = partition.log.start_offset - position.offset if partition is not None else 0
            if lost > 0:
                place = position.group, position.topic, position.partition
                fallen[place] = position.offset, lost
                self._count_fall(place, position.offset, lost)
        self._fallen = fallen

    def _count_fall(self, place: Place, committed: int, lost: int) -> None:
        """Counts a fall once, and what is lost further while the group lies where it fell."""
        group, topic, _ = place
        before_committed, before_lost = self._fallen.get(place, (-1, 0))
        is_new = before_committed != committed
        more = lost if is_new else lost - before_lost
        if is_new:
            self._broker.metrics.fell_off.add(1, group, topic)
        if more:
            self._broker.metrics.lost.add(more, group, topic)
            self._note(FELL_OFF, place, records=more, committed=committed)

    def _note_alarming(self, lags: Iterable[Lag]) -> None:
        alarming = {lag.place: lag for lag in lags if lag.is_alarming}
        for place in alarming.keys() - self._alarming:
            lag = alarming[place]
            self._note(NEAR_RETENTION, place, records=lag.records, share=round(lag.share, 3))
        for place in self._alarming - alarming.keys():
            self._note(CAUGHT_UP, place)
        self._alarming = set(alarming)

    def _note(self, kind: str, place: Place, *, records: int = 0, **details: float) -> None:
        group, topic, partition = place
        level = logging.INFO if kind == CAUGHT_UP else logging.WARNING
        logger.log(level, "group %s, %s:%d: %s, %d records", group, topic, partition, kind, records)
        events = self._broker.events
        if kind in _OPPOSITE:  # one that still waits to be written must not come after what ended it
            events.withdraw(Subject(_OPPOSITE[kind], topic, partition, group))
        events.note(Subject(kind, topic, partition, group), records=records, **details)
