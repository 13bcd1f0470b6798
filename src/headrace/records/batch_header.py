"""The 61 bytes that open every record batch.

```text
 0 base offset      int64   stamped by the log
 8 batch length     int32   bytes that follow this field
12 leader epoch     int32   stamped by the log
16 magic            int8    2
17 crc              uint32  CRC-32C of everything from byte 21 to the end
21 attributes       int16   0-2 codec, 3 append time, 4 transactional, 5 control, 6 delete horizon
23 last offset delta int32
27 base timestamp   int64   or the delete horizon, see attribute 6
35 max timestamp    int64
43 producer id      int64
51 producer epoch   int16
53 base sequence    int32
57 record count     int32
61 records, compressed as one block when a codec is set
```
"""

import struct
from typing import NamedTuple

from headrace.errors import CorruptionError

__all__ = [
    "ATTRIBUTES_AT",
    "BATCH_OVERHEAD_BYTES",
    "HEADER",
    "HEADER_BYTES",
    "BatchHeader",
    "read_header",
]

HEADER = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES = HEADER.size
BATCH_OVERHEAD_BYTES = 12
"""Bytes before and including the length field, which the length does not count."""
ATTRIBUTES_AT = 21
"""Where the CRC's cover begins."""

CODEC_BITS = 0x07
APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40


class BatchHeader(NamedTuple):
    """The fields of one batch header, as read: nothing is checked yet."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + BATCH_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_BITS

    @property
    def is_append_time(self) -> bool:
        return bool(self.attributes & APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When the tombstones of a compacted batch may go; None if not yet decided."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None


def read_header(buffer: bytes | bytearray | memoryview, position: int = 0) -> BatchHeader:
    """The header at `position`; raises CorruptionError if fewer than 61 bytes are there."""
    try:
        return BatchHeader._make(HEADER.unpack_from(buffer, position))
    except struct.error:
        raise CorruptionError(
            f"a record batch needs {HEADER_BYTES} bytes of header, {len(buffer) - position} are left",
            start=position,
            end=len(buffer),
        ) from None
