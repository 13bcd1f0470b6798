"""The sparse index of one segment: from an offset or a time to a place to start walking.

File format, big-endian:

```text
header   "HRIX", version uint16, 0 uint16, base offset int64
entries  offset - base offset uint32, position uint32, largest timestamp before that position int64
footer   "HREN", entries uint32, next offset int64, segment bytes int64, largest timestamp int64, CRC-32C
```

The footer is written when the segment is sealed; its CRC covers the whole file.
An index is never trusted: without a footer that fits the segment it is rebuilt,
and every entry is used only after a batch with its offset was found where it points.
"""

import struct
from bisect import bisect_left, bisect_right

from crc32c import crc32c

__all__ = ["INDEX_VERSION", "SparseIndex"]

INDEX_VERSION = 1
NO_TIMESTAMP = -1
_HEADER = struct.Struct(">4sHHq")
_ENTRY = struct.Struct(">IIq")
_FOOTER = struct.Struct(">4sIqqqI")
_RANGE_MAX = 2**32 - 1
ENTRY_BYTES = _ENTRY.size


class SparseIndex:
    """An entry about every `interval_bytes` of a segment, and the largest timestamp in it.

    One thread adds; others may look up meanwhile, since entries are only ever
    added at the end.
    """

    __slots__ = ("base_offset", "entries", "interval_bytes", "largest_timestamp", "next_at")

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.interval_bytes = interval_bytes
        self.entries = bytearray()
        self.largest_timestamp = NO_TIMESTAMP
        self.next_at = 0  # the first batch at or after this position gets an entry

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
        return self._entry(rank - 1) if rank else (self.base_offset, 0)

    def ceiling(self, position: int) -> int | None:
        """The offset of the first entry at or after `position`; None if there is none."""
        rank = bisect_left(range(len(self)), position, key=self._position)
        return self._entry(rank)[0] if rank < len(self) else None

    def floor_of_position(self, position: int) -> int:
        """The position of the last entry at or before `position`; the segment's start if there is none."""
        rank = bisect_right(range(len(self)), position, key=self._position)
        return self._position(rank - 1) if rank else 0

    def floor_of_time(self, timestamp_ms: int) -> tuple[int, int]:
        """Where to start walking for the first batch that holds `timestamp_ms` or later."""
        rank = bisect_left(range(len(self)), timestamp_ms, key=self._timestamp_before)
        return self._entry(rank - 1) if rank else (self.base_offset, 0)

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
        body = self._header() + bytes(self.entries)
        body += _FOOTER.pack(b"HREN", len(self), next_offset, segment_bytes, self.largest_timestamp, 0)[:-4]
        return body + crc32c(body).to_bytes(4, "big")

    def _header(self) -> bytes:
        return _HEADER.pack(b"HRIX", INDEX_VERSION, 0, self.base_offset)

    def _entry(self, rank: int) -> tuple[int, int]:
        relative, position, _ = _ENTRY.unpack_from(self.entries, rank * ENTRY_BYTES)
        return self.base_offset + relative, position

    def _relative_offset(self, rank: int) -> int:
        return int.from_bytes(self.entries[rank * ENTRY_BYTES : rank * ENTRY_BYTES + 4], "big")

    def _position(self, rank: int) -> int:
        return int.from_bytes(self.entries[rank * ENTRY_BYTES + 4 : rank * ENTRY_BYTES + 8], "big")

    def _timestamp_before(self, rank: int) -> int:
        return int(_ENTRY.unpack_from(self.entries, rank * ENTRY_BYTES)[2])


def position_in_file(count: int) -> int:
    """Where the entry after the first `count` goes; the header comes with the first."""
    return _HEADER.size + count * ENTRY_BYTES if count else 0


def load_sealed(
    data: bytes, *, base_offset: int, segment_bytes: int, interval_bytes: int
) -> SparseIndex | None:
    """The index of a sealed segment, or None if the file does not fit it byte for byte."""
    body = len(data) - _FOOTER.size
    if body < _HEADER.size or data[: _HEADER.size] != _HEADER.pack(b"HRIX", INDEX_VERSION, 0, base_offset):
        return None
    magic, count, _, size, largest, crc = _FOOTER.unpack_from(data, body)
    if magic != b"HREN" or size != segment_bytes or crc32c(data[:-4]) != crc:
        return None
    if body != _HEADER.size + count * ENTRY_BYTES:
        return None
    index = SparseIndex(base_offset, interval_bytes)
    index.entries = bytearray(data[_HEADER.size : body])
    index.largest_timestamp = largest
    return index


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
