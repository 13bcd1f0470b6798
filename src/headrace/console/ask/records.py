"""Records of a topic as JSON, from any position on. Blocks: for the console's threads.

Partitions are merged by their records' times, as far as each partition's own order
allows, so that a page is what came first and the next page goes on where it ended.
"""

import base64
import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from headrace.client import EARLIEST, LATEST, OffsetsGone, RawFetcher
from headrace.console.api import format_rfc3339
from headrace.records import Record, iterate_batch, read_header

__all__ = [
    "Gap",
    "PageLimits",
    "RecordPage",
    "bounds",
    "first_time_ms",
    "read_last",
    "read_page",
    "records_to_json",
    "size_of",
]

RecordPredicate = Callable[[Record], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """Most records and bytes of them in a page, and most bytes that are looked at for it."""

    records: int
    bytes: int
    scan_bytes: int


class Gap(NamedTuple):
    """Records of a partition that were removed before they could be read: from `start` up to `end`."""

    partition: int
    start: int
    end: int


class PartitionRecord(NamedTuple):
    """A record and the partition it is in."""

    partition: int
    record: Record


@dataclass(slots=True)
class RecordPage:
    """Records in the order they are shown, and where the next page begins."""

    records: list[PartitionRecord] = field(default_factory=list)
    positions: dict[int, int] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    scanned: int = 0


def bounds(fetcher: RawFetcher, topic: str) -> dict[int, tuple[int, int]]:
    """First and next offset of each partition; raises RequestError if there is no such topic."""
    fetcher.layout(topic)
    first, ends = fetcher.offsets(topic, EARLIEST), fetcher.offsets(topic, LATEST)
    return {partition: (first[partition], max(first[partition], end)) for partition, end in ends.items()}


def read_page(
    fetcher: RawFetcher,
    topic: str,
    positions: Mapping[int, int],
    ends: Mapping[int, int],
    limits: PageLimits,
    keep: RecordPredicate = lambda _: True,
) -> RecordPage:
    """The records from `positions` up to `ends` that are kept, within the limits, but one at least.

    What was removed before it could be read is told in `gaps`, never skipped in silence.
    """
    page = RecordPage(positions=dict(positions))
    sources = [
        _partition(fetcher, topic, partition, start, ends[partition], page)
        for partition, start in sorted(positions.items())
        if start < ends.get(partition, 0)
    ]
    size = 0
    for found in heapq.merge(*sources, key=lambda each: each.record.timestamp_ms):
        weight = size_of(found.record)
        page.scanned += weight
        if keep(found.record):
            if page.records and size + weight > limits.bytes:
                break
            page.records.append(found)
            size += weight
        page.positions[found.partition] = found.record.offset + 1
        if len(page.records) >= limits.records or page.scanned >= limits.scan_bytes:
            break
    else:
        page.positions |= {
            partition: max(page.positions[partition], ends[partition]) for partition in positions
        }
    return page


def read_last(
    fetcher: RawFetcher,
    topic: str,
    partition_bounds: Mapping[int, tuple[int, int]],
    count: int,
    limits: PageLimits,
    keep: RecordPredicate = lambda _: True,
) -> RecordPage:
    """The newest `count` records that are kept, among the last `count` of each partition."""
    start_offsets = {
        partition: max(first, end - count) for partition, (first, end) in partition_bounds.items()
    }
    ends = {partition: end for partition, (_, end) in partition_bounds.items()}
    page = RecordPage(positions=ends)
    sources = [
        _partition(fetcher, topic, partition, start, ends[partition], page)
        for partition, start in sorted(start_offsets.items())
        if start < ends[partition]
    ]
    newest: deque[PartitionRecord] = deque(maxlen=count)
    for found in heapq.merge(*sources, key=lambda each: each.record.timestamp_ms):
        page.scanned += size_of(found.record)
        if keep(found.record):
            newest.append(found)
    page.records = list(newest)[-limits.records :]
    return page


def _partition(
    fetcher: RawFetcher, topic: str, partition: int, start: int, end: int, page: RecordPage
) -> Iterator[PartitionRecord]:
    """The visible records of one partition, read as they are asked for."""
    while start < end:
        try:
            for run in fetcher.fetch(topic, partition, start, end):
                for record in _records(run):
                    if start <= record.offset < end:
                        yield PartitionRecord(partition, record)
                start = max(start, _next_offset(run))
            return
        except OffsetsGone as gone:
            if gone.asked >= gone.first:
                raise
            page.gaps.append(Gap(partition, start, min(gone.first, end)))
            page.positions[partition] = start = gone.first


def _records(run: memoryview) -> Iterator[Record]:
    position = 0
    while position < len(run):
        yield from iterate_batch(run, position)
        position += read_header(run, position).size_bytes


def _next_offset(run: memoryview) -> int:
    position = offset = 0
    while position < len(run):
        header = read_header(run, position)
        offset = header.next_offset
        position += header.size_bytes
    return offset


def first_time_ms(fetcher: RawFetcher, topic: str, partition: int, start: int, end: int) -> int | None:
    """The time of the first record from `start` on; None if there is none before `end`."""
    for run in fetcher.fetch(topic, partition, start, end):
        for record in _records(run):
            if record.offset >= start:
                return record.timestamp_ms
    return None


# --- which of them ---------------------------------------------------------------------------------


def record_filter(search: str | None, key: str | None) -> RecordPredicate:
    """Which records are shown: those with this key, and with this text in any part; case does not matter."""
    wanted = None if search is None else search.casefold()
    wanted_key = None if key is None else key.encode(errors="replace")

    def keep(record: Record) -> bool:
        if wanted_key is not None and record.key != wanted_key:
            return False
        return wanted is None or any(wanted in each for each in _texts(record))

    return keep


def _texts(record: Record) -> list[str]:
    parts = [record.key, record.value, *(part for name, value in record.headers for part in (name, value))]
    return [
        (each if isinstance(each, str) else each.decode(errors="replace")).casefold()
        for each in parts
        if each is not None
    ]


# --- as JSON -------------------------------------------------------------------------------------


def size_of(record: Record) -> int:
    """Bytes of key, value and headers."""
    headers = sum(len(name) + len(value or b"") for name, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers


def records_to_json(records: Iterable[PartitionRecord]) -> list[dict[str, Any]]:
    """For `orjson.dumps`: JSON values as they are on the log, to the digit; other ones as text or base64."""
    return [_record(each.partition, each.record) for each in records]


def _record(partition: int, record: Record) -> dict[str, Any]:
    value, encoding = _value(record.value)
    key, key_encoding = _text(record.key)
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": format_rfc3339(record.timestamp_ms),
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "encoding": encoding,
        "headers": [_header(name, payload) for name, payload in record.headers],
        "size": size_of(record),
    }


def _header(name: str, payload: bytes | None) -> dict[str, Any]:
    value, encoding = _text(payload)
    return {"name": name, "value": value, "encoding": encoding}


def _value(payload: bytes | None) -> tuple[Any, str | None]:
    if payload is None:
        return None, None
    try:
        orjson.loads(payload)
    except orjson.JSONDecodeError:
        return _text(payload)
    return orjson.Fragment(payload), "json"


def _text(payload: bytes | None) -> tuple[str | None, str | None]:
    if payload is None:
        return None, None
    try:
        return payload.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(payload).decode(), "base64"
