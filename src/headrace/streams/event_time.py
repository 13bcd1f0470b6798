"""Event time: what each partition has seen, what each row may still expect; no I/O, no Spark.

All times are int64 microseconds since the epoch, UTC. A partition's event-time
watermark is

    max(highest event time seen - lateness, highest watermark its producers declared)

and each row carries the watermark of its own partition *before* it. That depends on
the log alone: not on where micro-batches are cut, on other partitions or on clocks.

The watermark of an operator, which says when a result is published, is the minimum
over the partitions that are not idle.

A topic that a query made (a derived topic) mixes the rows of several partitions of its
source, in an order that depends on how that query's batches were cut. So what stands before
a row in its partition says nothing there, and there are two other ways:

- A second stage of the same application that goes on with the event time of the first takes
  the watermark that each row had there, which the record carries. When results are
  published the first stage *tells* it, in the notes of its own progress.
- A stage that takes another event time, or reads another application's topic, goes by what stands
  before a row of those that came from the same partition of the source.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

__all__ = [
    "NO_WATERMARK",
    "Mark",
    "PartitionTime",
    "SourceTime",
    "operator_watermark",
    "row_watermarks",
    "source_watermarks",
]

Ints = npt.NDArray[np.int64]

NO_WATERMARK: Final = -(2**63)  # before everything: nothing is late to it


@dataclass(frozen=True, slots=True)
class SourceTime:
    """The highest event time of the rows that came from one partition of a derived topic's source.

    `written_us` is the timestamp of the last record that did.
    """

    source: str
    seen: int
    written_us: int


@dataclass(frozen=True, slots=True)
class PartitionTime:
    """The highest event time a partition has seen, and the highest watermark declared in it.

    Both are of records that no query made; `sources` are the times of those that one did, in
    order, where rows are judged by them.
    """

    seen: int | None = None
    declared: int | None = None
    sources: tuple[SourceTime, ...] = ()

    @property
    def is_known(self) -> bool:
        return self != PartitionTime()

    @property
    def highest(self) -> int | None:
        """The highest event time of any row."""
        seen = [each.seen for each in self.sources]
        return max(seen if self.seen is None else [*seen, self.seen], default=None)

    def watermark(self, lateness_us: int) -> int:
        """What a row that no query made is judged by; NO_WATERMARK before the first record."""
        by_rows = NO_WATERMARK if self.seen is None else self.seen - lateness_us
        return by_rows if self.declared is None else max(by_rows, self.declared)

    def progress(self, lateness_us: int, idle_after_us: int) -> int:
        """What results are published by: the least of the sources, where rows have some.

        A source that nothing came from for `idle_after_us`, while others had rows, holds nobody up.
        """
        if not self.sources:
            return self.watermark(lateness_us)
        since_us = max(each.written_us for each in self.sources) - idle_after_us
        return min(each.seen for each in self.sources if each.written_us >= since_us) - lateness_us

    def raised(self, *, seen: int | None = None, declared: int | None = None) -> "PartitionTime":
        """The same after these were met too; nothing ever goes back."""
        return replace(self, seen=_highest(self.seen, seen), declared=_highest(self.declared, declared))

    def with_rows_of(self, sources: Iterable[SourceTime]) -> "PartitionTime":
        """The same after rows of these sources."""
        times = {each.source: each for each in self.sources}
        for each in sources:
            before = times.get(each.source, each)
            times[each.source] = replace(each, seen=max(each.seen, before.seen))
        return replace(self, sources=tuple(times[source] for source in sorted(times)))

    @classmethod
    def from_json(cls, fields: Sequence[Any]) -> Self:
        """What `to_json` made."""
        seen, declared, *rest = fields
        return cls(seen, declared, tuple(SourceTime(*each) for each in rest))

    def to_json(self) -> list[Any]:
        """Plain values."""
        sources = [[each.source, each.seen, each.written_us] for each in self.sources]
        return [self.seen, self.declared, *sources]


def _highest(one: int | None, other: int | None) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)


def row_watermarks(
    event_times: Ints,
    start: PartitionTime,
    lateness_us: int,
    declared: Iterable[tuple[int, int]] = (),
) -> tuple[Ints, PartitionTime]:
    """The partition's watermark before each row, and its time after all of them.

    `declared` are watermarks that producers sent: the number of rows before it, and the
    watermark.
    """
    count = len(event_times)
    before = np.empty(count + 1, np.int64)
    before[0] = start.watermark(lateness_us)
    np.subtract(event_times, lateness_us, out=before[1:])
    after = start
    for row, watermark in declared:
        before[row] = max(int(before[row]), watermark)
        after = after.raised(declared=watermark)
    if count:
        after = after.raised(seen=int(event_times.max()))
    return np.maximum.accumulate(before)[:count], after


def source_watermarks(
    event_times: Ints,
    sources: npt.NDArray[Any],
    written: Ints,
    start: PartitionTime,
    lateness_us: int,
) -> tuple[Ints, PartitionTime]:
    """The watermark before each row among those of its own source, and the partition's time after all.

    `sources` names the source of each row, `written` has the timestamps of their records.
    """
    watermarks = np.empty(len(event_times), np.int64)
    before = {each.source: each.seen for each in start.sources}
    met = []
    for source in np.unique(sources).tolist():
        rows = np.flatnonzero(sources == source)
        of_source = PartitionTime(before.get(source))
        watermarks[rows], after = row_watermarks(event_times[rows], of_source, lateness_us)
        assert after.seen is not None
        met.append(SourceTime(source, after.seen, int(written[rows[-1]])))
    return watermarks, start.with_rows_of(met)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What the task of one partition tells every operator at the end of its part of a micro-batch.

    `time` is the partition's after the batch; `times` are those of all partitions
    before it, so that the marks of the partitions that had records give the whole
    picture, and a single mark does when none had. Counts are of this partition and
    batch: `records` all that were read, of which `rows` became rows, `dead` went aside,
    `repeated` were sent again although they count already, and the rest `declared`
    watermarks; `skipped` are offsets that retention took. `run` is the run of the query,
    under which its progress is noted. `follows_maker` says that the first stage tells the watermark,
    which is `maker_watermark_us` as far as it did.
    """

    partition: int
    next: int
    time: PartitionTime
    times: Mapping[int, PartitionTime]
    lateness_us: int
    idle: frozenset[int] = frozenset()
    silence_us: int = 0
    records: int = 0
    rows: int = 0
    dead: int = 0
    skipped: int = 0
    repeated: int = 0
    topic: str = ""
    run: str = ""
    idle_after_us: int = 0
    follows_maker: bool = False
    maker_watermark_us: int | None = None

    @property
    def declared(self) -> int:
        """Records that declared a watermark."""
        return self.records - self.rows - self.dead - self.repeated

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """What `to_json` made."""
        changed = {
            "time": PartitionTime.from_json(fields["time"]),
            "times": {int(each): PartitionTime.from_json(time) for each, time in fields["times"].items()},
            "idle": frozenset(fields["idle"]),
        }
        return cls(**{**fields, **changed})

    def to_json(self) -> dict[str, Any]:
        """Plain values, in an order that depends on nothing but the mark."""
        return {
            "topic": self.topic,
            "run": self.run,
            "partition": self.partition,
            "next": self.next,
            "time": self.time.to_json(),
            "times": {str(partition): time.to_json() for partition, time in sorted(self.times.items())},
            "lateness_us": self.lateness_us,
            "idle": sorted(self.idle),
            "silence_us": self.silence_us,
            "records": self.records,
            "rows": self.rows,
            "dead": self.dead,
            "skipped": self.skipped,
            "repeated": self.repeated,
            "idle_after_us": self.idle_after_us,
            "follows_maker": self.follows_maker,
            "maker_watermark_us": self.maker_watermark_us,
        }


def operator_watermark(marks: Sequence[Mark]) -> int | None:
    """The watermark of an operator that got these marks of one stream and batch; None: none yet.

    The minimum over the partitions that are not idle; one that has never seen a record
    counts as idle. When all are, event time goes on with the silence since the last
    record. Where the first stage tells it, it is that: idle partitions and silence are the
    first stage's to judge. The caller keeps the highest it was ever given: this alone may go
    back when an idle partition wakes.
    """
    if not marks:
        return None
    first = marks[0]
    if first.follows_maker:
        return first.maker_watermark_us
    times = dict(first.times) | {mark.partition: mark.time for mark in marks}
    known = {partition: time for partition, time in times.items() if time.is_known}
    awake = [time for partition, time in known.items() if partition not in first.idle]
    if awake:
        return min(time.progress(first.lateness_us, first.idle_after_us) for time in awake)
    if not known:
        return None
    return max(_gone_on(time, first.lateness_us, first.silence_us) for time in known.values())


def _gone_on(time: PartitionTime, lateness_us: int, silence_us: int) -> int:
    """A partition's watermark had event time gone on since its last record; what is declared stands."""
    if time.highest is None:
        return time.watermark(lateness_us)
    return max(time.watermark(lateness_us), time.highest + silence_us - lateness_us)
