"""The feed's half beside the driver: asks the log where it ends and decides the next micro-batch.

Runs in one process for the life of a query and keeps its connections. What it
remembers is a convenience: after a restart it finds everything in the position that
Spark kept, in the group's committed offsets, or on the log.
"""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace

from headrace.client import LATEST, GroupOffsets, RawFetcher
from headrace.clock import Clock, SystemClock
from headrace.streams.event_time import PartitionTime
from headrace.streams.feed.first_positions import admitted, first_position
from headrace.streams.feed.options import FeedOptions
from headrace.streams.feed.positions import (
    FeedPosition,
    FeedRange,
    SilenceMeter,
    feed_ranges,
    idle_partitions,
    next_position,
)
from headrace.streams.feed.progress import GroupProgress, stage_watermark
from headrace.streams.offsets import TopicPosition
from headrace.streams.spec import PROCESSING_TIME, StreamSpec

__all__ = ["FeedPlanner"]

_LAYOUT_AGE_MS = 1000  # how soon a new partition, or a topic that was created again, is noticed
_log = logging.getLogger(__name__)


class FeedPlanner:
    """Plans one query's micro-batches on one topic; for one thread."""

    def __init__(
        self,
        spec: StreamSpec,
        options: FeedOptions,
        clock: Clock | None = None,
    ) -> None:
        self._spec = spec
        self._options = options
        self._clock = clock or SystemClock()
        self._fetcher = RawFetcher(options.connection, max_bytes=options.max_fetch_bytes)
        self._meter = SilenceMeter()
        self._progress: GroupProgress | None = None
        self._layout_at_ms: int | None = None
        self._quiet: frozenset[int] = frozenset()
        self._topic_id = uuid.UUID(int=0)
        self._maker: GroupOffsets | None = None
        self._awaited: tuple[int, Mapping[int, int]] | None = None
        self._times: tuple[Mapping[int, int], dict[int, PartitionTime]] | None = None

    @property
    def transactions(self) -> str:
        """The transaction topic by whose cuts this one is read; empty where there is none."""
        return self._spec.transactions

    def first(self) -> FeedPosition:
        """Where a query without checkpoint begins, as a run of its own."""
        return FeedPosition.first(first_position(self._fetcher, self._spec), uuid.uuid4().hex)

    def latest(self) -> TopicPosition:
        """The end of what is committed in every partition the topic has."""
        now_ms = self._clock.monotonic_ms()
        if self._layout_at_ms is None or now_ms - self._layout_at_ms >= _LAYOUT_AGE_MS:
            self._topic_id = self._fetcher.layout(self._spec.topic).id
            self._layout_at_ms = now_ms
        ends = self._fetcher.offsets(self._spec.topic, LATEST)
        return TopicPosition(topic=self._spec.topic, topic_id=self._topic_id, next=ends)

    def following(
        self,
        start: FeedPosition,
        latest: TopicPosition,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        beating: bool = True,
        holding: bool = False,
    ) -> FeedPosition:
        """The end of the micro-batch after `start`; `start` itself if there is nothing to do.

        `holding` reads nothing now, although there may be something to read.
        """
        silence = self._meter.observe(start, latest, self._clock.monotonic_ms() * 1000)
        self._quiet = idle_partitions(start, latest, silence, self._spec.idle_after_us)
        by_clock = self._spec.event_time == PROCESSING_TIME
        end = start.position if holding else self.admitted(start.position, latest, max_records, max_bytes)
        return next_position(
            start,
            self.times_after(start),
            latest,
            silence,
            admitted=end,
            idle_after_us=self._spec.idle_after_us,
            heartbeat=self._options.heartbeat if beating else None,
            now_us=self._clock.now_ms() * 1000 if by_clock else 0,
            maker_watermark_us=self._maker_watermark(start, end),
        )

    def admitted(
        self, start: TopicPosition, latest: TopicPosition, max_records: int | None, max_bytes: int | None
    ) -> TopicPosition:
        """How far a micro-batch from `start` may go within both limits; None means none."""
        return admitted(self._fetcher, start, latest, max_records, max_bytes)

    def standing(self, start: FeedPosition) -> FeedPosition:
        """An empty micro-batch behind `start`, for a feed of which only other topics go on."""
        return replace(start, start=dict(start.next), times=self.times_after(start), idle=self._quiet)

    def times_after(self, position: FeedPosition) -> dict[int, PartitionTime]:
        """The time of every partition at the end of a micro-batch that was carried out.

        As the group's offsets note it; where they do not, from the log once more.
        """
        if self._times is not None and self._times[0] == position.next:
            return self._times[1]
        moved = position.moved()
        noted = self._noted(position, moved)
        unknown = set(moved) - noted.keys()
        again = {
            span.partition: self._read_time(span)
            for span in feed_ranges(position)
            if span.partition in unknown
        }
        times = dict(position.times) | noted | again
        self._times = position.next, times
        return times

    def close(self) -> None:
        """Closes the connections."""
        self._fetcher.close()
        if self._maker is not None:
            self._maker.close()
        if self._progress is not None:
            self._progress.close()

    def _maker_watermark(self, start: FeedPosition, end: TopicPosition) -> int | None:
        """The first stage's watermark that holds behind `end`: all it had written by then is read."""
        if not self._spec.follows_maker:
            return None
        if self._awaited is None:
            self._awaited = self._ask_maker(start.maker_watermark_us)
        if self._awaited is None:
            return start.maker_watermark_us
        watermark_us, ends = self._awaited
        if any(end.next.get(partition, 0) < last for partition, last in ends.items()):
            return start.maker_watermark_us
        self._awaited = None
        return watermark_us

    def _ask_maker(self, known_us: int | None) -> tuple[int, Mapping[int, int]] | None:
        """A watermark beyond the known one, and the end of what was written before it was noted."""
        group, topic, query_id = self._spec.maker
        if self._maker is None:
            self._maker = GroupOffsets(self._options.connection, group)
        noted = stage_watermark(self._maker, self._fetcher, topic, query_id)
        found = None if noted is None else self._spec.from_maker(noted)
        if found is None or (known_us is not None and found <= known_us):
            return None
        # Asked for after the watermark, and of all records: what ends their transaction may be behind.
        return found, self._fetcher.offsets(self._spec.topic, LATEST, committed=False)

    def _noted(self, position: FeedPosition, moved: list[int]) -> dict[int, PartitionTime]:
        if not self._spec.group or not moved:
            return {}
        if self._progress is None:
            self._progress = GroupProgress(
                self._options.connection, self._spec.group, self._spec.topic, position.run
            )
        return self._progress.fetch({each: position.next[each] for each in moved})

    def _read_time(self, span: FeedRange) -> PartitionTime:
        """The time behind a range that was carried out; what is left of it must do if retention took some."""
        from headrace.streams.feed.reader import RangeReading  # hardly ever needed in this process

        reading = RangeReading(self._fetcher, replace(self._spec, on_gap="skip"), span)
        for _ in reading:
            pass
        mark = reading.mark()
        if mark.skipped:
            _log.warning(
                "%s-%d: event time at offset %d is computed without %d offsets that retention removed",
                span.topic,
                span.partition,
                span.end,
                mark.skipped,
            )
        return mark.time
