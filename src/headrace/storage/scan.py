"""Walking over the batches of a segment file, and finding the next one behind damage."""

import struct
from collections.abc import Callable
from typing import NamedTuple

from crc32c import crc32c

from headrace.records import BATCH_OVERHEAD_BYTES, HEADER_BYTES
from headrace.storage.disk import Disk
from headrace.storage.index import SparseIndex
from headrace.storage.producer_facts import FACT, Fact, RawFact
from headrace.storage.sweep import Swept, sweep

__all__ = ["ScanEnd", "find_next_batch", "scan"]

CHUNK_BYTES = 1024 * 1024
_MIN_LENGTH = HEADER_BYTES - BATCH_OVERHEAD_BYTES
_ATTRIBUTES_AT = 21
_FIELDS = struct.Struct(">qiibIhiqq")
_SIGNATURE = b"\x00\x00\x00\x00\x02"  # leader epoch 0 and magic 2, twelve bytes into a batch
_SIGNATURE_AT = 12


class ScanEnd(NamedTuple):
    """Where a scan stopped: at the end asked for, or before a batch that fails its check."""

    position: int
    next_offset: int
    whole: bool


def scan(
    disk: Disk,
    fd: int,
    *,
    position: int,
    end: int,
    next_offset: int,
    index: SparseIndex | None = None,
    gaps: bool = False,
    note: Callable[[RawFact, int], None] | None = None,
) -> ScanEnd:
    """Checks every batch from `position` to `end`, adding them to `index`; stops before the first bad one.

    `note` is called with each that has a producer id, and its position; of batches
    outside of transactions perhaps only with the last few of each producer.
    """
    index = SparseIndex(next_offset, CHUNK_BYTES) if index is None else index
    while position < end:
        chunk = disk.pread(fd, min(CHUNK_BYTES, end - position), position)
        swept = sweep(chunk, next_offset, gaps=gaps)
        if swept is not None:
            _take_in(swept, chunk, position, index, note)
            position, next_offset = position + swept.size_bytes, swept.next_offset
            continue
        size, next_offset, whole = _scan_chunk(chunk, position, next_offset, index, gaps, note)
        if size == 0 and whole:  # not one batch fits into the chunk
            large = _check_large(disk, fd, position, end)
            if large is None:
                return ScanEnd(position, next_offset, False)
            fact = large
            size = fact.size_bytes
            index.add(fact.base_offset, position, fact.max_timestamp)
            next_offset = fact.base_offset + fact.last_offset_delta + 1
            if note is not None and fact.producer_id >= 0:
                note(fact, position)
        position += size
        if not whole:
            return ScanEnd(position, next_offset, False)
    return ScanEnd(position, next_offset, True)


def _take_in(
    swept: Swept, chunk: bytes, position: int, index: SparseIndex, note: Callable[[RawFact, int], None] | None
) -> None:
    swept.add_to(index, position)
    if note is not None:
        for start in swept.of_producers():
            note(FACT.unpack_from(chunk, start), position + start)


def _scan_chunk(
    chunk: bytes,
    position: int,
    expected: int,
    index: SparseIndex,
    gaps: bool,
    note: Callable[[RawFact, int], None] | None,
) -> tuple[int, int, bool]:
    """Bytes of whole valid batches, the offset after them, and whether what follows may be valid too.

    It tells exactly which one fails; where batches are many and small, `sweep` is what is fast.
    """
    unpack, crc_of, view = FACT.unpack_from, crc32c, memoryview(chunk)
    start, last = 0, len(chunk) - HEADER_BYTES
    size, largest, index_at = len(chunk), index.largest_timestamp, index.next_at - position
    while start <= last:
        fact = unpack(chunk, start)
        base, length, signature, crc, _, delta, timestamp, producer_id, _, _ = fact
        if base != expected and (not gaps or base < expected):
            break
        if signature != _SIGNATURE or length < _MIN_LENGTH or delta < 0:
            break
        stop = start + length + BATCH_OVERHEAD_BYTES
        if stop > size:
            index.largest_timestamp = largest
            return start, expected, True
        if crc_of(view[start + _ATTRIBUTES_AT : stop]) != crc:
            break
        if start >= index_at:
            index.largest_timestamp = largest
            index.add(base, position + start, timestamp)
            index_at = index.next_at - position
        if timestamp > largest:
            largest = timestamp
        if producer_id >= 0 and note is not None:
            note(fact, position + start)
        expected = base + delta + 1
        start = stop
    index.largest_timestamp = largest
    return start, expected, start > last


def _check_large(disk: Disk, fd: int, position: int, end: int) -> Fact | None:
    """The header of a batch that no chunk holds whole; None if it fails its check."""
    head = disk.pread(fd, HEADER_BYTES, position)
    if len(head) < HEADER_BYTES:
        return None
    fact = Fact._make(FACT.unpack_from(head))
    stop = position + fact.size_bytes
    if stop > end or _crc_of_file(disk, fd, position + _ATTRIBUTES_AT, stop) != fact.crc:
        return None
    return fact


def _crc_of_file(disk: Disk, fd: int, start: int, end: int) -> int:
    value = 0
    while start < end:
        chunk = disk.pread(fd, min(CHUNK_BYTES, end - start), start)
        if not chunk:
            return -1
        value = crc32c(chunk, value)
        start += len(chunk)
    return value


def find_next_batch(
    disk: Disk, fd: int, *, position: int, end: int, min_offset: int, max_offset: int
) -> tuple[int, int] | None:
    """Position and base offset of the first valid batch behind the bad one at `position`.

    The bad batch's own length is tried first, since most damage spares it. Then
    every byte is tried; a batch that is followed by its successor, or by the end,
    is preferred to one that stands alone and may be part of a record's value.
    """
    bounds = (end, min_offset, max_offset)
    claimed = _claimed_end(disk, fd, position)
    if claimed is not None and (base := _valid_batch(disk, fd, claimed, bounds)) is not None:
        return claimed, base
    alone = None
    start = position + 1
    while start + HEADER_BYTES <= end:
        chunk = disk.pread(fd, min(CHUNK_BYTES, end - start), start)
        found = chunk.find(_SIGNATURE, _SIGNATURE_AT)
        while found >= 0:
            candidate = start + found - _SIGNATURE_AT
            base = _valid_batch(disk, fd, candidate, bounds)
            if base is not None and _has_successor(disk, fd, candidate, end):
                return candidate, base
            if base is not None and alone is None:
                alone = candidate, base
            found = chunk.find(_SIGNATURE, found + 1)
        if len(chunk) < CHUNK_BYTES:
            break
        start += len(chunk) - HEADER_BYTES
    return alone


def _claimed_end(disk: Disk, fd: int, position: int) -> int | None:
    head = disk.pread(fd, HEADER_BYTES, position)
    if len(head) < HEADER_BYTES:
        return None
    length = int.from_bytes(head[8:12], "big", signed=True)
    return position + length + BATCH_OVERHEAD_BYTES if length >= _MIN_LENGTH else None


def _valid_batch(disk: Disk, fd: int, position: int, bounds: tuple[int, int, int]) -> int | None:
    """The base offset of a batch that passes every check, None if there is none here."""
    end, min_offset, max_offset = bounds
    if position + HEADER_BYTES > end:
        return None
    base, length, epoch, magic, _, _, delta, _, _ = _FIELDS.unpack_from(
        disk.pread(fd, HEADER_BYTES, position)
    )
    if magic != 2 or epoch != 0 or length < _MIN_LENGTH or delta < 0:
        return None
    if not min_offset <= base < max_offset or base + delta >= max_offset:
        return None
    return base if _check_large(disk, fd, position, end) is not None else None


def _has_successor(disk: Disk, fd: int, position: int, end: int) -> bool:
    base, length, _, _, _, _, delta, _, _ = _FIELDS.unpack_from(disk.pread(fd, HEADER_BYTES, position))
    after = position + length + BATCH_OVERHEAD_BYTES
    if after >= end - HEADER_BYTES:
        return bool(after == end)
    following, _, epoch, magic, *_ = _FIELDS.unpack_from(disk.pread(fd, HEADER_BYTES, after))
    return bool(magic == 2 and epoch == 0 and following >= base + delta + 1)
