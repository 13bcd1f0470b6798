"""Walking over the batches of a segment file, and finding the next one behind damage."""

import struct
from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

from crc32c import crc32c

from headrace.kernels import ENTRY_FIELDS, PRODUCER_FIELDS, Walk, walk_batches
from headrace.records import BATCH_OVERHEAD_BYTES, HEADER_BYTES
from headrace.storage.disk import Disk
from headrace.storage.producers import PRODUCER_HEADER, REMEMBERED_BATCHES, ProducerHeader, RawProducerHeader
from headrace.storage.segments.index import SparseIndex

__all__ = ["ScanEnd", "find_next_batch", "scan"]

CHUNK_BYTES = 1024 * 1024
MANY_OF_PRODUCERS = 256  # batches in a chunk; of fewer, each is noted
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
    note: Callable[[RawProducerHeader, int], None] | None = None,
) -> ScanEnd:
    """Checks every batch from `position` to `end`, adding them to `index`; stops before the first bad one.

    `note` is called with each that has a producer id, and its position; of batches
    outside of transactions perhaps only with the last few of each producer.
    """
    index = SparseIndex(next_offset, CHUNK_BYTES) if index is None else index
    walked = _Walked(index, next_offset, gaps=gaps, most_bytes=min(CHUNK_BYTES, end - position), note=note)
    while position < end:
        chunk = disk.pread(fd, min(CHUNK_BYTES, end - position), position)
        size = walked.over(chunk, position)
        if size == 0 and not walked.fault and len(chunk) >= HEADER_BYTES:  # not one batch fits into the chunk
            header = _check_large(disk, fd, position, end)
            if header is not None:
                size = header.size_bytes
                walked.over_large(header, position)
        position += size
        if not size or walked.fault:
            return ScanEnd(position, walked.next_offset, False)
    return ScanEnd(position, walked.next_offset, True)


class _Walked:
    """A walk over the chunks of a file, with what the index and the producers' facts take of it."""

    def __init__(
        self,
        index: SparseIndex,
        next_offset: int,
        *,
        gaps: bool,
        most_bytes: int,
        note: Callable[[RawProducerHeader, int], None] | None,
    ) -> None:
        most = most_bytes // HEADER_BYTES + 1
        self._index = index
        self._note = note
        self._walk = Walk(
            next_offset=next_offset,
            gaps=gaps,
            largest_timestamp=index.largest_timestamp,
            index_interval=index.interval_bytes,
        )
        self._entries = array("q", bytes(8 * ENTRY_FIELDS * most))
        self._producers = None if note is None else array("q", bytes(8 * PRODUCER_FIELDS * most))

    @property
    def next_offset(self) -> int:
        return self._walk.next_offset

    @property
    def fault(self) -> bool:
        """Whether the last chunk had a batch that is wrong, rather than cut."""
        return self._walk.fault != 0

    def over(self, chunk: bytes, position: int) -> int:
        """Takes in the whole batches of a chunk that stands at `position`, up to a bad one; their bytes."""
        walk, index = self._walk, self._index
        walk.index_at = index.next_at - position
        size = walk_batches(chunk, 0, walk, self._entries, self._producers)
        scanned = self._entries[: ENTRY_FIELDS * walk.entry_count]
        for start, base, before in zip(scanned[0::3], scanned[1::3], scanned[2::3], strict=True):
            index.largest_timestamp = before
            index.add(base, position + start, before)
        index.largest_timestamp = walk.largest_timestamp
        if self._note is not None:
            for start in self._starts():
                self._note(PRODUCER_HEADER.unpack_from(chunk, start), position + start)
        return size

    def over_large(self, header: ProducerHeader, position: int) -> None:
        """Takes in a batch that no chunk holds."""
        index = self._index
        index.add(header.base_offset, position, header.max_timestamp)
        self._walk.largest_timestamp = index.largest_timestamp
        self._walk.next_offset = header.base_offset + header.last_offset_delta + 1
        if self._note is not None and header.producer_id >= 0:
            self._note(header, position)

    def _starts(self) -> Iterable[int]:
        """Where those stand that count for what is known of producers, in order.

        In transactions every one does, outside of them the last few of each producer.
        """
        assert self._producers is not None
        scanned = self._producers[: PRODUCER_FIELDS * self._walk.producer_count]
        if self._walk.producer_count < MANY_OF_PRODUCERS or self._walk.transactional:
            return scanned[0::2]
        import numpy as np  # which a broker that starts on fewer does not need

        ids = np.frombuffer(scanned, np.int64)[1::2]
        ranks = np.argsort(ids, kind="stable")
        behind = REMEMBERED_BATCHES
        last_few = np.ones(len(ids), bool)
        last_few[:-behind] = ids[ranks[:-behind]] != ids[ranks[behind:]]
        return [scanned[PRODUCER_FIELDS * rank] for rank in np.sort(ranks[last_few]).tolist()]


def _check_large(disk: Disk, fd: int, position: int, end: int) -> ProducerHeader | None:
    """The header of a batch that no chunk holds whole; None if it fails its check."""
    head = disk.pread(fd, HEADER_BYTES, position)
    if len(head) < HEADER_BYTES:
        return None
    header = ProducerHeader._make(PRODUCER_HEADER.unpack_from(head))
    stop = position + header.size_bytes
    if stop > end or _crc_of_file(disk, fd, position + _ATTRIBUTES_AT, stop) != header.crc:
        return None
    return header


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
