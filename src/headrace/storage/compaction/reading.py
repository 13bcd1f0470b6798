"""Reading segments for compaction: batch after batch, a bounded number of bytes ahead."""

import contextlib
from collections.abc import Iterator

from headrace.errors import CorruptionError
from headrace.records import BATCH_OVERHEAD_BYTES, HEADER_BYTES, BatchHeader, BatchVerifier, read_header
from headrace.storage.reader import BatchPlace, LogReader
from headrace.storage.segment import Segment

__all__ = ["Batch", "last_offset_in", "read_batches"]

Batch = tuple[BatchHeader, memoryview]
_MAX_OFFSET = 2**62


def read_batches(
    reader: LogReader, segment: Segment, read_bytes: int, from_offset: int = -1
) -> Iterator[Batch]:
    """Every intact batch of a segment that ends at `from_offset` or later, in order.

    Reads `read_bytes` at a time, or one batch if that is larger. Damage is recorded
    and passed over.
    """
    if segment.size_bytes == 0:
        return
    fd = reader.files.pin(segment.file)
    try:
        expected, position = reader.index(segment, fd).floor(from_offset)
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
    finally:
        reader.files.unpin(segment.file)


def _read_whole(
    reader: LogReader, segment: Segment, fd: int, position: int, expected: int, read_bytes: int
) -> memoryview | None:
    """Whole, verified batches from `position` on; None if the first is not intact."""
    disk, left = reader.files.disk, segment.size_bytes - position
    size = min(left, max(read_bytes, HEADER_BYTES))
    while True:
        chunk = disk.pread(fd, size, position)
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


def _split(chunk: memoryview) -> Iterator[Batch]:
    position = 0
    while position < len(chunk):
        header = read_header(chunk, position)
        end = position + header.batch_length + BATCH_OVERHEAD_BYTES
        yield header, chunk[position:end]
        position = end


def _around_damage(reader: LogReader, segment: Segment, from_offset: int) -> Iterator[Batch]:
    """One batch at a time, with the reader's own care."""
    for place in reader.places(segment, -1):
        if place.next_offset <= from_offset:
            continue
        try:
            batch = reader.read_batch(segment, place)
        except CorruptionError:
            continue  # recorded; the segment is then left as it is
        yield read_header(batch), memoryview(batch)


def last_offset_in(reader: LogReader, segment: Segment) -> int:
    """The last offset of the segment's last batch; -1 if it has none."""
    if segment.size_bytes == 0:
        return -1
    fd = reader.files.pin(segment.file)
    try:
        offset, position = reader.index(segment, fd).floor(_MAX_OFFSET)
        places = [p for p in reader.walk(segment, fd, offset, position) if isinstance(p, BatchPlace)]
        return places[-1].next_offset - 1 if places else -1
    finally:
        reader.files.unpin(segment.file)
