"""Verifies batches as their bytes stream past in chunks of any size."""

import struct

from crc32c import crc32c

from headrace.errors import CorruptionError
from headrace.kernels.batches import WRONG_SUM, Walk, walk_batches
from headrace.records.header import ATTRIBUTES_AT, BATCH_OVERHEAD_BYTES, HEADER_BYTES

__all__ = ["BatchVerifier"]

_START = struct.Struct(">qi5xI2xi")  # base offset, length, crc, last offset delta
_NOT_IN_PLACE = "is not a record batch in its place"
_WRONG_CRC = "fails its CRC"


class BatchVerifier:
    """Checks consecutive bytes of a segment, batch by batch, without keeping them.

    Besides the CRC it checks what the CRC does not cover: magic, leader epoch, and
    that each base offset is the one the previous batch leaves (at least that one
    with `gaps`, as compaction leaves them). A batch cut off at the end is not an
    error: its reader discards it.

    `position` is where the batch being checked begins, `next_offset` the offset
    expected there; after a failed check they tell what is damaged.
    """

    __slots__ = ("_crc", "_expected_crc", "_head", "_left", "_next", "_size", "_walk", "position")

    def __init__(self, *, next_offset: int, position: int = 0, gaps: bool = False) -> None:
        self.position = position
        self._walk = Walk(next_offset=next_offset, gaps=gaps)
        self._head = b""  # the start of a header that a chunk cut in two
        self._left = 0  # bytes still missing of the batch that a chunk cut in two
        self._crc = self._expected_crc = self._size = self._next = 0

    @property
    def next_offset(self) -> int:
        return self._walk.next_offset

    def feed(self, chunk: bytes | bytearray | memoryview) -> None:
        """Takes the next bytes; raises CorruptionError at the first batch that fails."""
        start = 0
        if self._left:
            start = self._finish_cut_batch(memoryview(chunk))
        elif self._head:
            chunk, self._head = self._head + bytes(chunk), b""
        stop = walk_batches(chunk, start, self._walk)
        self.position += stop - start
        if self._walk.fault:
            self._fail(_WRONG_CRC if self._walk.fault == WRONG_SUM else _NOT_IN_PLACE)
        if stop < len(chunk):
            self._begin_cut_batch(memoryview(chunk)[stop:])

    def _begin_cut_batch(self, rest: memoryview) -> None:
        if len(rest) < HEADER_BYTES:
            self._head = bytes(rest)
            return
        base, length, self._expected_crc, delta = _START.unpack_from(rest)
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
                self._fail(_WRONG_CRC)
            self.position += self._size
            self._walk.next_offset = self._next
        return taken

    def _fail(self, fault: str) -> None:
        raise CorruptionError(
            f"what should be the batch at offset {self.next_offset} {fault}", start=self.position
        )
