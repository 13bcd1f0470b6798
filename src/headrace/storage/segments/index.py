"""The sparse index of one segment: from an offset or a time to a place to start walking.

File format, big-endian:

```text
header   "HRIX", version uint16, 0 uint16, base offset int64
entries  offset - base offset uint32, position uint32, largest timestamp before that position int64
checks   in a compacted segment, for each entry: CRC-32C of the base offsets from it to the next, uint32
footer   "HREN", entries uint32, next offset int64, segment bytes int64, largest timestamp int64, CRC-32C
```

The version is 1, and 2 with checks. The footer is written when the segment is sealed; its CRC
covers the whole file.
An index is never trusted: without a footer that fits the segment it is rebuilt,
and every entry is used only after a batch with its offset was found where it points.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from crc32c import crc32c

__all__ = ["INDEX_VERSION", "CheckedIndex", "SparseIndex"]

INDEX_VERSION, CHECKED_VERSION = 1, 2
NO_TIMESTAMP = -1
_HEADER = struct.Struct(">4sHHq")
_ENTRY = struct.Struct(">IIq")
_FOOTER = struct.Struct(">4sIqqqI")
_RANGE_MAX = 2**32 - 1
_CHECK_BYTES = 4
ENTRY_BYTES = _ENTRY.size


class SparseIndex:
    """An entry about every `interval_bytes` of a segment, and the largest timestamp in it.

    One thread adds; others may look up meanwhile, since entries are only ever
    added at the end.
    """

    __slots__ = ("base_offset", "entries", "interval_bytes", "largest_timestamp", "next_at")
    version = INDEX_VERSION

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.entries = bytearray()
        self.largest_timestamp = NO_TIMESTAMP
        self.next_at = 0  # the first batch at or after this position gets an entry

    @property
    def size_bytes(self) -> int:
        """Memory that it takes, nearly."""
        return len(self.entries)

    def __len__(self) -> int:
        return len(self.entries) // ENTRY_BYTES

    def add(self, offset: int, position: int, max_timestamp: int) -> None:
        """Takes note of the batch at `position`; batches come in order."""
        if position >= self.next_at:
            self.entries += _ENTRY.pack(offset - self.base_offset, position, self.largest_timestamp)
            self.next_at = position + self.interval_bytes
        if max_timestamp > self.largest_timestamp:
            self.largest_timestamp = max_timestamp

    def floor(self, offset: int) -> tuple[int, int]:
        """Offset and position of the last entry at or before `offset`; the segment's start if none."""
        rank = bisect_right(range(len(self)), offset - self.base_offset, key=self._relative_offset)
        return self.entry(rank - 1) if rank else (self.base_offset, 0)

    def ceiling(self, position: int) -> int | None:
        """The offset of the first entry at or after `position`; None if there is none."""
        rank = bisect_left(range(len(self)), position, key=self._position)
        return self.entry(rank)[0] if rank < len(self) else None

    def floor_of_position(self, position: int) -> int:
        """The position of the last entry at or before `position`; the segment's start if there is none."""
        rank = bisect_right(range(len(self)), position, key=self._position)
        return self._position(rank - 1) if rank else 0

    def floor_of_time(self, timestamp_ms: int) -> tuple[int, int]:
        """Where to start walking for the first batch that holds `timestamp_ms` or later."""
        rank = bisect_left(range(len(self)), timestamp_ms, key=self._timestamp_before)
        return self.entry(rank - 1) if rank else (self.base_offset, 0)

    def truncate(self, position: int) -> None:
        """Forgets every entry at or after `position`."""
        rank = bisect_left(range(len(self)), position, key=self._position)
        del self.entries[rank * ENTRY_BYTES :]
        self.next_at = self._position(rank - 1) + self.interval_bytes if rank else 0

    def checksum(self, count: int, *, start: int = 0, value: int = 0) -> int:
        """CRC-32C of the entries from `start` to `count`, continuing from `value`."""
        return int(crc32c(self.entries[start * ENTRY_BYTES : count * ENTRY_BYTES], value))

    def open_bytes(self, start: int) -> bytes:
        """What to append to the file of an active segment that already holds `start` entries."""
        head = b"" if start else self._header()
        return head + bytes(self.entries[start * ENTRY_BYTES :])

    def sealed_bytes(self, *, next_offset: int, segment_bytes: int) -> bytes:
        """The whole file of a sealed segment."""
        body = self._header() + bytes(self.entries) + self._checks()
        body += _FOOTER.pack(b"HREN", len(self), next_offset, segment_bytes, self.largest_timestamp, 0)[:-4]
        return body + crc32c(body).to_bytes(4, "big")

    def _checks(self) -> bytes:
        return b""

    def _header(self) -> bytes:
        return _HEADER.pack(b"HRIX", self.version, 0, self.base_offset)

    def entry(self, rank: int) -> tuple[int, int]:
        """Offset and position of an entry."""
        relative, position, _ = _ENTRY.unpack_from(self.entries, rank * ENTRY_BYTES)
        return self.base_offset + relative, position

    def _relative_offset(self, rank: int) -> int:
        return int.from_bytes(self.entries[rank * ENTRY_BYTES : rank * ENTRY_BYTES + 4], "big")

    def _position(self, rank: int) -> int:
        return int.from_bytes(self.entries[rank * ENTRY_BYTES + 4 : rank * ENTRY_BYTES + 8], "big")

    def _timestamp_before(self, rank: int) -> int:
        return int(_ENTRY.unpack_from(self.entries, rank * ENTRY_BYTES)[2])


class CheckedIndex(SparseIndex):
    """The index of a compacted segment, with a checksum of the base offsets from each entry to the next.

    A batch's own CRC does not cover its base offset. Elsewhere it follows from the batch before;
    here there are gaps, and only this tells it from another. Which stretches were compared is
    kept as long as the index is in memory.
    """

    __slots__ = ("_compared", "checks")
    version = CHECKED_VERSION

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        super().__init__(base_offset, interval_bytes)
        self.checks = array("I")
        self._compared = bytearray()

    @classmethod
    def of(cls, index: SparseIndex, checks: Iterable[int]) -> "CheckedIndex":
        """An index with the checksums of its entries; nothing was compared yet."""
        checked = cls(index.base_offset, index.interval_bytes)
        checked.entries, checked.largest_timestamp = index.entries, index.largest_timestamp
        checked.checks = array("I", checks)
        checked._compared = bytearray(len(checked.checks))
        return checked

    def add(self, offset: int, position: int, max_timestamp: int) -> None:
        super().add(offset, position, max_timestamp)
        if len(self) > len(self.checks):
            self.checks.append(0)
            self._compared.append(1)  # whoever adds has just written it
        self.checks[-1] = crc32c(offset.to_bytes(8, "big"), self.checks[-1])

    def not_compared(self, start: int, end: int) -> list[int]:
        """Entries not compared so far whose stretches hold bytes from `start` to `end`, and the one after."""
        first = max(bisect_right(range(len(self)), start, key=self._position) - 1, 0)
        last = bisect_left(range(len(self)), end, key=self._position) + 1
        if 0 not in self._compared[first:last]:
            return []
        return [rank for rank in range(first, min(last, len(self))) if not self._compared[rank]]

    @property
    def size_bytes(self) -> int:
        return len(self.entries) + len(self.checks) * (_CHECK_BYTES + 1)

    def note_compared(self, rank: int) -> None:
        self._compared[rank] = 1

    def _checks(self) -> bytes:
        return struct.pack(f">{len(self.checks)}I", *self.checks)


def position_in_file(count: int) -> int:
    """Where the entry after the first `count` goes; the header comes with the first."""
    return _HEADER.size + count * ENTRY_BYTES if count else 0


def load_sealed(
    data: bytes, *, base_offset: int, segment_bytes: int, interval_bytes: int, compacted: bool
) -> SparseIndex | None:
    """The index of a sealed segment, or None if the file does not fit it byte for byte.

    That of a compacted one has checksums of offsets, which it did not in earlier versions.
    """
    footer = _read_footer(data, base_offset)
    if footer is None or footer.segment_bytes != segment_bytes or footer.has_checks != compacted:
        return None
    index = SparseIndex(base_offset, interval_bytes)
    end = _HEADER.size + footer.entries * ENTRY_BYTES
    index.entries = bytearray(data[_HEADER.size : end])
    index.largest_timestamp = footer.largest_timestamp
    return (
        CheckedIndex.of(index, struct.unpack_from(f">{footer.entries}I", data, end)) if compacted else index
    )


def recorded_sealed_bytes(data: bytes, *, base_offset: int) -> int | None:
    """How long the index of a sealed segment says that the segment is; None if it cannot be believed."""
    footer = _read_footer(data, base_offset)
    return None if footer is None else footer.segment_bytes


class _Footer(NamedTuple):
    entries: int
    segment_bytes: int
    largest_timestamp: int
    has_checks: bool


def _read_footer(data: bytes, base_offset: int) -> _Footer | None:
    """What the end of the file tells, if the whole of it is what was written."""
    body = len(data) - _FOOTER.size
    if body < _HEADER.size:
        return None
    start, version, _, base = _HEADER.unpack_from(data)
    magic, count, _, size, largest, crc = _FOOTER.unpack_from(data, body)
    each = {INDEX_VERSION: ENTRY_BYTES, CHECKED_VERSION: ENTRY_BYTES + _CHECK_BYTES}.get(version)
    if (start, base, magic) != (b"HRIX", base_offset, b"HREN") or crc32c(data[:-4]) != crc or each is None:
        return None
    if body != _HEADER.size + count * each:
        return None
    return _Footer(count, size, largest, version == CHECKED_VERSION)


def load_open(
    data: bytes, *, base_offset: int, count: int, crc: int, largest_timestamp: int, interval_bytes: int
) -> SparseIndex | None:
    """The first `count` entries of an active segment's index; None if their checksum differs."""
    end = position_in_file(count)
    if len(data) < end or (
        count and data[: _HEADER.size] != _HEADER.pack(b"HRIX", INDEX_VERSION, 0, base_offset)
    ):
        return None
    index = SparseIndex(base_offset, interval_bytes)
    index.entries = bytearray(data[_HEADER.size : end]) if count else bytearray()
    if index.checksum(count) != crc:
        return None
    index.largest_timestamp = largest_timestamp
    index.next_at = index._position(count - 1) + interval_bytes if count else 0
    return index
