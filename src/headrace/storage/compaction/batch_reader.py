"""Reading segments for compaction: batch after batch, a bounded number of bytes ahead."""

import contextlib
from collections.abc import Iterator

from headrace.errors import CorruptionError
from headrace.records import (
    BATCH_OVERHEAD_BYTES,
    HEADER_BYTES,
    BatchHeader,
    BatchVerifier,
    plain_batch,
    read_header,
    read_rows,
)
from headrace.storage.reading import BatchPlace, PartitionReader
from headrace.storage.segments import Segment

__all__ = [
    "WINDOW_BYTES",
    "WINDOW_RECORDS",
    "RawBatch",
    "RecordRow",
    "last_offset_in",
    "read_batches",
    "rows_of",
]

# So many records, or bytes of them, are decided about at a time.
WINDOW_RECORDS = 8192
WINDOW_BYTES = 4 * 1024 * 1024

RawBatch = tuple[BatchHeader, memoryview]
RecordRow = tuple[int, bytes | None, bool]
_MAX_OFFSET = 2**62


def read_batches(
    reader: PartitionReader, segment: Segment, read_bytes: int, from_offset: int = -1
) -> Iterator[RawBatch]:
    """Every intact batch of a segment that ends at `from_offset` or later, in order.

    Reads `read_bytes` at a time, or one batch if that is larger. Damage is recorded
    and passed over; DiskError where the disk does not read.
    """
    if segment.size_bytes == 0:
        return
    with reader.indexed(segment) as (fd, index):
        expected, position = index.floor(from_offset)
        reader.check_offsets(segment, fd, index, position, segment.size_bytes)
        if any(damage.path == segment.path for damage in reader.damage):
            position = segment.size_bytes
        while position < segment.size_bytes:
            chunk = _read_whole(reader, segment, fd, position, expected, read_bytes)
            if chunk is None:
                break
            for header, batch in _split(chunk):
                expected = header.next_offset
                if header.last_offset >= from_offset:
                    yield header, batch
            position += len(chunk)
        else:
            if position == segment.size_bytes and expected > segment.base_offset:
                return
        yield from _around_damage(reader, segment, max(expected, from_offset))


def _read_whole(
    reader: PartitionReader, segment: Segment, fd: int, position: int, expected: int, read_bytes: int
) -> memoryview | None:
    """Whole, verified batches from `position` on; None if the first is not intact."""
    disk, left = reader.files.disk, segment.size_bytes - position
    size = min(left, max(read_bytes, HEADER_BYTES))
    while True:
        try:
            chunk = disk.pread(fd, size, position)
        except OSError as error:
            raise reader.unreadable.note(segment.path, position, position + size, error) from error
        verifier = BatchVerifier(next_offset=expected, position=position, gaps=segment.compacted)
        with contextlib.suppress(CorruptionError):  # what is intact before it is taken first
            verifier.feed(chunk)
        whole = verifier.position - position
        if whole:
            return memoryview(chunk)[:whole]
        needed = read_header(chunk).size_bytes if len(chunk) >= HEADER_BYTES else 0
        if not size < needed <= left:
            return None
        size = needed


def _split(chunk: memoryview) -> Iterator[RawBatch]:
    position = 0
    while position < len(chunk):
        header = read_header(chunk, position)
        end = position + header.batch_length + BATCH_OVERHEAD_BYTES
        yield header, chunk[position:end]
        position = end


def _around_damage(reader: PartitionReader, segment: Segment, from_offset: int) -> Iterator[RawBatch]:
    """One batch at a time, with the reader's own care."""
    for place in reader.places(segment, -1):
        if place.next_offset <= from_offset:
            continue
        try:
            batch = reader.read_batch(segment, place)
        except CorruptionError:
            continue  # recorded; the segment is then left as it is
        yield read_header(batch), memoryview(batch)


def last_offset_in(reader: PartitionReader, segment: Segment) -> int:
    """The last offset of the segment's last batch; -1 if it has none."""
    if segment.size_bytes == 0:
        return -1
    with reader.indexed(segment) as (fd, index):
        offset, position = index.floor(_MAX_OFFSET)
        reader.check_offsets(segment, fd, index, position, segment.size_bytes)
        walked = reader.walk_noting(segment, fd, offset, position)
        places = [place for place in walked if isinstance(place, BatchPlace)]
        return places[-1].next_offset - 1 if places else -1


def rows_of(header: BatchHeader, batch: memoryview) -> tuple[Iterator[RecordRow], int] | None:
    """The records' offsets, keys and null values, and the size of them all; None if they are unreadable.

    Only what was written before produced batches were looked into can be that.
    """
    try:
        plain = plain_batch(header, batch)
        if header.record_count > WINDOW_RECORDS:
            for _ in read_rows(plain, header):  # so that a failure comes before the first row is used
                pass
            return read_rows(plain, header), len(plain)
        return read_rows(plain, header), len(plain)
    except CorruptionError:
        return None
