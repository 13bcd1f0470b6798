"""Base offsets of a compacted segment, compared with the checksums in its index.

A batch's CRC does not cover its base offset. In other segments it follows from the batch
before; here batches are missing in between, and only the checksum tells a flipped bit. An
index may be lost, so a file beside it has a checksum of all the base offsets (`OffsetsSum`).
"""

import logging
from collections.abc import Iterable

from crc32c import crc32c

from headrace.errors import CorruptionError
from headrace.records import BATCH_OVERHEAD_BYTES, HEADER_BYTES
from headrace.storage.disk import Damage, Disk, read_number, write_number
from headrace.storage.segments import CheckedIndex, Segment, SparseIndex

__all__ = ["OffsetsSum", "wholly_wrong", "with_checks", "wrong_stretches"]

logger = logging.getLogger("headrace.storage")

_WINDOW_BYTES = 32 * 1024
_MIN_LENGTH = HEADER_BYTES - BATCH_OVERHEAD_BYTES


class OffsetsSum:
    """The checksum of all base offsets of a compacted segment, kept where an index that is lost has none."""

    __slots__ = ("_crc",)

    def __init__(self) -> None:
        self._crc = 0

    def add(self, base_offset: int) -> None:
        """Takes the next batch."""
        self._crc = crc32c(base_offset.to_bytes(8, "big"), self._crc)

    def keep(self, disk: Disk, segment: Segment) -> None:
        """Returns when it is on disk."""
        write_number(disk, segment.offsets_path, self._crc)


def wholly_wrong(disk: Disk, fd: int, segment: Segment, offset_after: int) -> list[Damage]:
    """Of a compacted segment without its index: all of it, if its base offsets are not what they were.

    Which of them it is cannot be told. Segments of earlier versions have no such checksum.
    """
    try:
        expected = read_number(disk, segment.offsets_path)
    except CorruptionError as error:
        logger.warning("%s; the base offsets are not compared", error)
        return []
    crc = None if expected is None else _offsets_crc(disk, fd, 0, segment.size_bytes)
    if crc is None or crc == expected:
        return []
    return [Damage(segment.path, 0, segment.size_bytes, segment.base_offset, offset_after)]


def wrong_stretches(
    disk: Disk, fd: int, segment: Segment, index: CheckedIndex, ranks: Iterable[int], offset_after: int
) -> list[Damage]:
    """Compares the stretches of these entries, and notes that; damage where the offsets are not right.

    Which of a stretch it is cannot be told. Where other damage keeps the batches from being
    walked over, that is for the reader to find.
    """
    found = []
    for rank in ranks:
        (offset, start), following = index.entry(rank), rank + 1
        next_offset, end = (
            index.entry(following) if following < len(index) else (offset_after, segment.size_bytes)
        )
        crc = _offsets_crc(disk, fd, start, end)
        if crc is not None and crc != index.checks[rank]:
            found.append(Damage(segment.path, start, end, offset, next_offset))
        index.note_compared(rank)
    return found


def with_checks(disk: Disk, fd: int, index: SparseIndex, segment_bytes: int) -> CheckedIndex:
    """An index that was made anew, with the checksums of the offsets as they are now."""
    starts = [index.entry(rank)[1] for rank in range(len(index))]
    stretches = zip(starts, [*starts[1:], segment_bytes], strict=False)
    return CheckedIndex.of(index, (_offsets_crc(disk, fd, *each) or 0 for each in stretches))


def _offsets_crc(disk: Disk, fd: int, start: int, end: int) -> int | None:
    """Checksum of the base offsets of the batches there; None if they do not lie one behind the other."""
    crc, position, window_at, window = 0, start, start, b""
    while position < end:
        at = position - window_at
        if at + BATCH_OVERHEAD_BYTES > len(window):
            window, window_at, at = disk.pread(fd, min(_WINDOW_BYTES, end - position), position), position, 0
        length = int.from_bytes(window[at + 8 : at + BATCH_OVERHEAD_BYTES], "big", signed=True)
        if len(window) < BATCH_OVERHEAD_BYTES or length < _MIN_LENGTH:
            return None
        crc = crc32c(window[at : at + 8], crc)
        position += length + BATCH_OVERHEAD_BYTES
    return crc if position == end else None
