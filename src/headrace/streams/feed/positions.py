"""Where a feed stands, in offsets and in time, and what its next micro-batch is; no I/O.

Spark keeps a position as JSON in its offset log, and gives back that of the last
micro-batch to plan the next:

    {"topic": "orders", "id": "…", "run": "…",
     "from": {"0": 1000}, "next": {"0": 1200},       the offsets of the batch that ends here
     "times": {"0": [seen, declared]},               of each partition, as of "from"
     "idle": [1], "silence_us": 0, "now_us": 0,
     "told_us": null}                                the first stage's watermark, of a second stage

Everything a task needs to give the same rows again is in it, so a batch that is run
twice gives the same twice. `run` is drawn when a query begins without a checkpoint: what
was noted down for another run is not taken for this one's.
"""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from headrace.streams.event_time import PartitionTime
from headrace.streams.offsets import TopicPosition

__all__ = [
    "FeedPosition",
    "FeedRange",
    "Heartbeat",
    "Silence",
    "SilenceMeter",
    "feed_ranges",
    "idle_partitions",
    "next_position",
]

Times = Mapping[int, PartitionTime]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedPosition:
    """The end of one micro-batch, and from where and when it began."""

    topic: str
    topic_id: uuid.UUID
    run: str
    start: Mapping[int, int]
    next: Mapping[int, int]
    times: Times
    idle: frozenset[int] = frozenset()
    silence_us: int = 0
    now_us: int = 0
    maker_watermark_us: int | None = None

    @classmethod
    def first(cls, position: TopicPosition, run: str) -> Self:
        """Where a query without checkpoint begins."""
        return cls(
            topic=position.topic,
            topic_id=position.topic_id,
            run=run,
            start=position.next,
            next=position.next,
            times=dict.fromkeys(position.next, PartitionTime()),
        )

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """What `to_json` made, as a checkpoint gives it back."""
        return cls(
            topic=fields["topic"],
            topic_id=uuid.UUID(fields["id"]),
            run=fields["run"],
            start={int(partition): int(offset) for partition, offset in fields["from"].items()},
            next={int(partition): int(offset) for partition, offset in fields["next"].items()},
            times={
                int(partition): PartitionTime.from_json(each) for partition, each in fields["times"].items()
            },
            idle=frozenset(fields["idle"]),
            silence_us=fields["silence_us"],
            now_us=fields["now_us"],
            maker_watermark_us=fields.get("told_us"),
        )

    def to_json(self) -> dict[str, Any]:
        """Plain values, in an order that depends on nothing but the position."""
        return {
            "topic": self.topic,
            "id": str(self.topic_id),
            "run": self.run,
            "from": {str(partition): offset for partition, offset in sorted(self.start.items())},
            "next": {str(partition): offset for partition, offset in sorted(self.next.items())},
            "times": {str(partition): time.to_json() for partition, time in sorted(self.times.items())},
            "idle": sorted(self.idle),
            "silence_us": self.silence_us,
            "now_us": self.now_us,
            "told_us": self.maker_watermark_us,
        }

    @property
    def position(self) -> TopicPosition:
        """Only the offsets."""
        return TopicPosition(topic=self.topic, topic_id=self.topic_id, next=self.next)

    def moved(self) -> list[int]:
        """The partitions of which the batch has a range."""
        return [each for each, end in sorted(self.next.items()) if end > self.start.get(each, 0)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """How often an empty micro-batch runs while input is silent, and until when.

    Once the silence is longer than `until_us`, which is as long as any window can stay
    open, nothing is left to close and the heart stands still.
    """

    interval_us: int
    until_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """For how long nothing came, by a clock that only goes forward: in each partition, and at all."""

    partitions: Mapping[int, int]
    us: int


class SilenceMeter:
    """Measures silence by what the log's ends did each time it was looked at.

    Times come from a clock that only goes forward, so the wall clock may be set as one
    likes. A new meter, after a restart, goes on from the silence in the position.
    """

    def __init__(self) -> None:
        self._ends: dict[int, int] = {}
        self._moved_us: dict[int, int] = {}
        self._before_us = 0

    def observe(self, start: FeedPosition, latest: TopicPosition, now_us: int) -> Silence:
        """The silence at `now_us`, when the log ends at `latest` and was read up to `start`."""
        if not self._ends and latest.next == start.next:
            self._before_us = start.silence_us
        elif self._ends and latest.next != self._ends:
            self._before_us = 0
        for partition, end in latest.next.items():
            if self._ends.get(partition) != end:
                self._moved_us[partition] = now_us
        self._ends = dict(latest.next)
        spans = {partition: now_us - since for partition, since in self._moved_us.items()}
        return Silence(partitions=spans, us=self._before_us + min(spans.values(), default=0))


def next_position(
    start: FeedPosition,
    times: Times,
    latest: TopicPosition,
    silence: Silence,
    *,
    admitted: TopicPosition,
    idle_after_us: int,
    heartbeat: Heartbeat | None,
    now_us: int = 0,
    maker_watermark_us: int | None = None,
) -> FeedPosition:
    """The end of the micro-batch after `start`; `start` itself if there is nothing to do.

    `times` are the partitions' at `start.next`. With new records it reaches to
    `admitted`, which is as far as the limits allow. Without, it is a heartbeat if a
    partition has just become idle, or if all are and event time goes on; or if the first
    stage, whose watermark is `maker_watermark_us` at `admitted`, has come further.
    """
    behind = _behind(start, latest)
    idle = idle_partitions(start, latest, silence, idle_after_us)
    following = replace(
        start,
        start=dict(start.next),
        next=admitted.next,
        times={each: times.get(each, PartitionTime()) for each in latest.next},
        idle=idle,
        silence_us=0,
        now_us=max(now_us, start.now_us),
        maker_watermark_us=maker_watermark_us,
    )
    if behind or maker_watermark_us != start.maker_watermark_us:
        return following
    return _beat(start, following, silence, heartbeat)


def idle_partitions(
    start: FeedPosition, latest: TopicPosition, silence: Silence, idle_after_us: int
) -> frozenset[int]:
    """The partitions that have been silent for so long, or were idle before, and have nothing to read."""
    quiet = {each for each, span in silence.partitions.items() if span >= idle_after_us}
    return frozenset((quiet | start.idle) - _behind(start, latest))


def _behind(start: FeedPosition, latest: TopicPosition) -> set[int]:
    return {each for each, end in latest.next.items() if end > start.next.get(each, 0)}


def _beat(
    start: FeedPosition, following: FeedPosition, silence: Silence, heartbeat: Heartbeat | None
) -> FeedPosition:
    known = {each for each, time in following.times.items() if time.is_known}
    if heartbeat is None or not known:
        return start
    if not known <= following.idle:
        return start if following.idle & known == start.idle & known else following
    silence_us = max(silence.us, start.silence_us)
    if start.silence_us > heartbeat.until_us:
        return start
    if known <= start.idle and silence_us - start.silence_us < heartbeat.interval_us:
        return start
    return replace(following, silence_us=silence_us)


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRange:
    """The work of one Spark task: a partition's offsets, and the times and silence of its batch."""

    topic: str
    topic_id: uuid.UUID
    partition: int
    start: int
    end: int
    times: Times
    idle: frozenset[int]
    silence_us: int
    now_us: int
    run: str = ""
    maker_watermark_us: int | None = None

    @property
    def time(self) -> PartitionTime:
        return self.times.get(self.partition, PartitionTime())


def feed_ranges(end: FeedPosition) -> list[FeedRange]:
    """One range per partition with something to read; a heartbeat has one, which is empty."""
    partitions = end.moved() or sorted(end.next)[:1]
    return [
        FeedRange(
            topic=end.topic,
            topic_id=end.topic_id,
            partition=each,
            start=end.start.get(each, 0),
            end=end.next[each],
            times=end.times,
            idle=end.idle,
            silence_us=end.silence_us,
            now_us=end.now_us,
            run=end.run,
            maker_watermark_us=end.maker_watermark_us,
        )
        for each in partitions
    ]
