"""The exact number of records between two offsets.

Offsets do not count records: transaction markers take them, and so do aborted records and
those that compaction removed. Which offsets hold no committed record can only be seen in the
headers of the record batches. So they are read once, and the result is kept: a counter that
is used again continues from there.
"""

import contextlib
import logging
import threading
import uuid
from bisect import bisect_left
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.client.batches import batch_spans
from headrace.client.fetcher import RawFetcher, TopicLayout
from headrace.client.topics.log import PartitionKey
from headrace.client.topics.positions import Bounds
from headrace.errors import HeadraceError, RetriableError

__all__ = ["CountLimits", "Gaps", "RecordCount", "RecordCounter"]

logger = logging.getLogger(__name__)

Place = tuple[uuid.UUID, int]


@dataclass(slots=True)
class Gaps:
    """Ranges of offsets without a record, in order, from `first` up to `to`; the rest is unknown."""

    first: int
    to: int
    ranges: list[tuple[int, int]] = field(default_factory=list)

    def found(self, base: int, following: int, records: int) -> None:
        """Takes the next batch with records: its base and next offset, and the number of records."""
        self._add(self.to, base)
        self._add(max(self.to, following - max(0, following - base - records)), following)
        self.to = max(self.to, following)

    def ended(self, end: int) -> None:
        """No further batch with records before this offset."""
        self._add(self.to, end)
        self.to = max(self.to, end)

    def count(self, start: int, end: int) -> int:
        """Records from `start` up to `end`; in the unknown part every offset counts as one."""
        if end <= start:
            return 0
        at = max(0, bisect_left(self.ranges, (start, start)) - 1)
        missing = 0
        for begin, stop in self.ranges[at:]:
            if begin >= end:
                break
            missing += max(0, min(stop, end) - max(begin, start))
        return end - start - missing

    def _add(self, start: int, end: int) -> None:
        if end > start:
            self.ranges.append((start, end))


class Known(NamedTuple):
    """Gaps, and of what version of the partition; another version has others."""

    version: object
    gaps: Gaps


class RecordCount(NamedTuple):
    """Records of a partition for readers of committed records: exactly so many, or at most."""

    records: int
    exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CountLimits:
    """How many bytes of the log, and of how many partitions, are read for counts in one call."""

    bytes: int
    partitions: int


class RecordCounter:
    """Knows which offsets of topics hold no record, as far as it has read. Any thread.

    A partition that cannot be read, or not by this user, keeps no other from being counted.
    What was used least recently is forgotten when more than `most_ranges` are kept.
    """

    def __init__(self, most_bytes: int, *, most_ranges: int = 500_000) -> None:
        """`most_bytes` is how much of each partition one call of `learn` reads."""
        self._most_bytes = most_bytes
        self._most_ranges = most_ranges
        self._known: dict[Place, Known] = {}
        self._lock = threading.Lock()

    def learn(self, fetcher: RawFetcher, topic: str, bounds: Mapping[int, Bounds]) -> dict[int, Gaps]:
        """What is known of each partition after reading some more of it; exact if `to` is its end."""
        layout = fetcher.layout(topic)
        found, may_read = {}, True
        with self._lock:
            for partition, limits in bounds.items():
                gaps = self._gaps((layout.id, partition), limits.start)
                if may_read:
                    may_read = self._reads(fetcher, (topic, partition), gaps, limits.end, self._most_bytes)[1]
                found[partition] = gaps
            self._forget_surplus()
        return found

    def count(
        self,
        fetcher: RawFetcher,
        bounds: Mapping[PartitionKey, Bounds],
        stable_ends: Mapping[PartitionKey, int],
        sizes: Mapping[PartitionKey, int],
        limits: CountLimits,
        *,
        compacted: Container[str] = (),
    ) -> dict[PartitionKey, RecordCount]:
        """How many records each partition holds; exact where that takes no more reading than `limits`.

        The smallest are read first. Records of a transaction that is still open are not decided:
        with one, at most so many. Of `compacted` topics, nothing is known any longer once their
        size has changed.
        """
        with self._lock:
            gaps = self._gaps_of(fetcher, bounds, sizes, compacted)
            ends = {each: min(stable_ends.get(each, 0), bounds[each].end) for each in gaps}
            unread = {
                each: _bytes_left(sizes.get(each), bounds[each], known.to)
                for each, known in gaps.items()
                if known.to < ends[each]
            }
            self._read_cheapest(fetcher, gaps, ends, unread, limits)
            found = {each: _counted(gaps.get(each), within) for each, within in bounds.items()}
            self._forget_surplus()
        return found

    def _gaps_of(
        self,
        fetcher: RawFetcher,
        bounds: Mapping[PartitionKey, Bounds],
        sizes: Mapping[PartitionKey, int],
        compacted: Container[str],
    ) -> dict[PartitionKey, Gaps]:
        """What is known of the partitions that hold anything, of topics that this user may see."""
        held = [each for each, within in bounds.items() if within.end > within.start]
        layouts: dict[str, TopicLayout] = {}
        with contextlib.suppress(RetriableError):
            layouts = fetcher.layouts(topic for topic, _ in held)
        found = {}
        for topic, partition in held:
            if topic in layouts:
                within = bounds[topic, partition]
                version = (sizes.get((topic, partition)), within.end) if topic in compacted else None
                found[topic, partition] = self._gaps((layouts[topic].id, partition), within.start, version)
        return found

    def _gaps(self, place: Place, start: int, version: object = None) -> Gaps:
        """Those that are known of the partition as it is now; it is the one used last from now on."""
        known = self._known.pop(place, None)
        if known is None or known.version != version or known.gaps.to < start:
            known = Known(version, Gaps(start, start))
        self._known[place] = known
        return known.gaps

    def _read_cheapest(
        self,
        fetcher: RawFetcher,
        gaps: Mapping[PartitionKey, Gaps],
        ends: Mapping[PartitionKey, int],
        unread: Mapping[PartitionKey, int],
        limits: CountLimits,
    ) -> None:
        left = limits.bytes
        for each in sorted(unread, key=unread.__getitem__)[: limits.partitions]:
            if unread[each] > left:
                return
            size, may_go_on = self._reads(fetcher, each, gaps[each], ends[each], left)
            left -= size
            if not may_go_on:
                return

    def _reads(
        self, fetcher: RawFetcher, partition: PartitionKey, gaps: Gaps, end: int, most_bytes: int
    ) -> tuple[int, bool]:
        """How many bytes were read, and whether others can be read: not while the broker is not ready."""
        size = 0
        try:
            for run in fetcher.fetch(*partition, gaps.to, end):
                for base, following, records in batch_spans(run):
                    gaps.found(base, following, records)
                size += len(run)
                if size >= most_bytes:
                    return size, True
            gaps.ended(end)
        except HeadraceError as error:
            logger.info("the records of %s-%d cannot be counted: %s", *partition, error)
            return size, not isinstance(error, RetriableError)
        return size, True

    def _forget_surplus(self) -> None:
        held = sum(len(known.gaps.ranges) for known in self._known.values())
        for place in list(self._known):
            if held <= self._most_ranges and len(self._known) <= self._most_ranges:
                return
            held -= len(self._known.pop(place).gaps.ranges)


def _bytes_left(size: int | None, within: Bounds, known_to: int) -> int:
    """About how much is to be read; 0 if no broker tells the size."""
    share = (within.end - max(known_to, within.start)) / (within.end - within.start)
    return int((size or 0) * share)


def _counted(gaps: Gaps | None, within: Bounds) -> RecordCount:
    if within.end <= within.start:
        return RecordCount(0, exact=True)
    if gaps is None:
        return RecordCount(within.end - within.start, exact=False)
    return RecordCount(gaps.count(within.start, within.end), exact=gaps.to >= within.end)
