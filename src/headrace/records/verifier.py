"""Verifies batches as their bytes stream past in chunks of any size."""

import struct

from crc32c import crc32c

from headrace.errors import CorruptionError
from headrace.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, HEADER_BYTES

__all__ = ["BatchVerifier"]

_START = struct.Struct(">qi5sI2xi")  # base offset, length, epoch and magic, crc, last offset delta
_EPOCH_AND_MAGIC = b"\x00\x00\x00\x00\x02"
_MIN_LENGTH = HEADER_BYTES - BATCH_OVERHEAD_BYTES


class BatchVerifier:
    """Checks consecutive bytes of a segment, batch by batch, without keeping them.

    Besides the CRC it checks what the CRC does not cover: magic, leader epoch, and
    that each base offset is the one the previous batch leaves (at least that one
    with `gaps`, as compaction leaves them). A batch cut off at the end is not an
    error: its reader discards it.

    `position` is where the batch being checked begins, `next_offset` the offset
    expected there; after a failed check they tell what is damaged.
    """

    __slots__ = (
        "_crc",
        "_expected_crc",
        "_gaps",
        "_head",
        "_left",
        "_next",
        "_size",
        "next_offset",
        "position",
    )

    def __init__(self, *, next_offset: int, position: int = 0, gaps: bool = False) -> None:
        self.next_offset = next_offset
        self.position = position
        self._gaps = gaps
        self._head = b""  # the start of a header that a chunk cut in two
        self._left = 0  # bytes still missing of the batch that a chunk cut in two
        self._crc = self._expected_crc = self._size = self._next = 0

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Takes the next bytes; raises CorruptionError at the first batch that fails."""
        view = memoryview(chunk)
        start = self._finish_cut_batch(view) if self._left else 0
        if self._head:
            joined = self._head + view[start:]
            self._head = b""
            view, start = memoryview(joined), 0
        start = self._whole_batches(view, start)
        if start < len(view):
            self._begin_cut_batch(view[start:])

    def _whole_batches(self, view: memoryview, start: int) -> int:
        unpack, crc_of, gaps = _START.unpack_from, crc32c, self._gaps
        size, expected = len(view), self.next_offset
        origin = self.position - start
        while size - start >= HEADER_BYTES:
            base, length, signature, crc, delta = unpack(view, start)
            stop = start + length + BATCH_OVERHEAD_BYTES
            if (
                (base != expected and (not gaps or base < expected))
                or signature != _EPOCH_AND_MAGIC
                or length < _MIN_LENGTH
                or delta < 0
            ):
                self._fail(origin + start, expected, "is not a record batch in its place")
            if stop > size:
                break
            if crc_of(view[start + ATTRIBUTES_AT : stop]) != crc:
                self._fail(origin + start, expected, "fails its CRC")
            expected = base + delta + 1
            start = stop
        self.position, self.next_offset = origin + start, expected
        return start

    def _begin_cut_batch(self, rest: memoryview) -> None:
        if len(rest) < HEADER_BYTES:
            self._head = bytes(rest)
            return
        base, length, _, self._expected_crc, delta = _START.unpack_from(rest)
        self._size = length + BATCH_OVERHEAD_BYTES
        self._left = self._size - len(rest)
        self._next = base + delta + 1
        self._crc = crc32c(rest[ATTRIBUTES_AT:])

    def _finish_cut_batch(self, view: memoryview) -> int:
        taken = min(self._left, len(view))
        self._crc = crc32c(view[:taken], self._crc)
        self._left -= taken
        if self._left == 0:
            if self._crc != self._expected_crc:
                self._fail(self.position, self.next_offset, "fails its CRC")
            self.position += self._size
            self.next_offset = self._next
        return taken

    def _fail(self, position: int, expected: int, fault: str) -> None:
        self.position, self.next_offset = position, expected
        raise CorruptionError(f"what should be the batch at offset {expected} {fault}", start=position)
