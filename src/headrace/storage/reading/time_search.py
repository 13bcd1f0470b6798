"""Finding records by time."""

from collections.abc import Iterator
from typing import NamedTuple

from headrace.errors import CorruptionError
from headrace.records import Record, iterate_batch
from headrace.storage.reading.reader import BatchPlace, PartitionReader
from headrace.storage.segments import Segment

__all__ = ["TimedOffset", "find_largest_timestamp", "find_time"]


class TimedOffset(NamedTuple):
    """A record found by time."""

    offset: int
    timestamp_ms: int


def find_time(reader: PartitionReader, timestamp_ms: int, start_offset: int) -> TimedOffset | None:
    """The first record at or after `start_offset` with this timestamp or a later one."""
    for segment in reader.segments:
        if reader.largest_timestamp(segment) < timestamp_ms:
            continue
        for record in _records_from(reader, segment, timestamp_ms):
            if record.offset >= start_offset and record.timestamp_ms >= timestamp_ms:
                return TimedOffset(record.offset, record.timestamp_ms)
    return None


def _records_from(reader: PartitionReader, segment: Segment, timestamp_ms: int) -> Iterator[Record]:
    """Records of the batches that reach `timestamp_ms`, in order; damage is passed over."""
    for place in reader.places(segment, timestamp_ms):
        if place.max_timestamp >= timestamp_ms:
            try:
                yield from iterate_batch(reader.read_batch(segment, place))
            except CorruptionError:
                continue


def find_largest_timestamp(reader: PartitionReader, start_offset: int) -> TimedOffset | None:
    """The first record at or after `start_offset` that bears the largest timestamp."""
    largest = -1
    for segment in reader.segments:
        if segment.base_offset >= start_offset:
            largest = max(largest, reader.largest_timestamp(segment))
        else:
            largest = max(largest, _largest_from(reader, segment, start_offset))
    return find_time(reader, largest, start_offset) if largest >= 0 else None


def _largest_from(reader: PartitionReader, segment: Segment, start_offset: int) -> int:
    """The largest timestamp in the part of a segment that the log start left."""
    largest = -1
    for place in reader.places(segment, -1):
        if place.next_offset > start_offset:
            largest = max(largest, _largest_in(reader, segment, place, start_offset))
    return largest


def _largest_in(reader: PartitionReader, segment: Segment, place: BatchPlace, start_offset: int) -> int:
    if place.base_offset >= start_offset:
        return place.max_timestamp
    try:
        records = iterate_batch(reader.read_batch(segment, place))
        return max((r.timestamp_ms for r in records if r.offset >= start_offset), default=-1)
    except CorruptionError:
        return -1
