"""How much a reader has before it."""

from bisect import bisect_right
from typing import NamedTuple

from headrace.errors import CorruptionError
from headrace.records import HEADER_BYTES, read_header
from headrace.storage.reading.reader import PartitionReader

__all__ = ["Backlog", "measure"]


class Backlog(NamedTuple):
    """Bytes from a reader's batch to the end, and the time of that batch's first record, -1 if unknown."""

    size_bytes: int
    oldest_ms: int


def measure(reader: PartitionReader, offset: int, end: int) -> Backlog:
    """The backlog of a reader at `offset`; inside damage, that of the segments behind it."""
    if offset >= end:
        return Backlog(0, -1)
    segments = reader.segments
    rank = max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)
    following = sum(segment.size_bytes for segment in segments[rank + 1 :])
    segment = segments[rank]
    with reader.noting(segment, offset):
        fd = reader.files.pin(segment.file)
        try:
            place = reader.find(segment, fd, offset)
            if place is None:
                return Backlog(following, -1)
            header = read_header(reader.files.disk.pread(fd, HEADER_BYTES, place.position))
            return Backlog(segment.size_bytes - place.position + following, header.base_timestamp)
        except CorruptionError:
            return Backlog(following, -1)
        finally:
            reader.files.unpin(segment.file)
