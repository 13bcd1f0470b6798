"""Checking and stamping whole record batches, in place."""

import struct

from crc32c import crc32c

from headrace.errors import CorruptionError
from headrace.records.header import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    HEADER_BYTES,
    BatchHeader,
    read_header,
)

__all__ = ["check_batch", "checksum", "seal", "stamp", "stamp_append_time"]

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")

Writable = bytearray | memoryview


def checksum(buffer: bytes | bytearray | memoryview, position: int, size_bytes: int) -> int:
    """CRC-32C of the part of a batch that its CRC covers."""
    return int(crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : position + size_bytes]))


def check_batch(
    buffer: bytes | bytearray | memoryview, position: int = 0, *, produced: bool = True
) -> BatchHeader:
    """The header of a batch that is whole and intact; raises CorruptionError otherwise.

    `produced` also demands what a producer's batch must have and a compacted one
    need not: at least one record, and offsets without gaps.
    """
    header = read_header(buffer, position)
    fault = _fault(header, len(buffer) - position, produced)
    if fault is None and checksum(buffer, position, header.size_bytes) != header.crc:
        fault = f"the batch's CRC is {header.crc:#010x}, its bytes give another"
    if fault is not None:
        raise CorruptionError(
            fault, start=position, end=min(len(buffer), position + max(header.size_bytes, 0))
        )
    return header


def _fault(header: BatchHeader, available: int, produced: bool) -> str | None:
    if header.magic != 2:
        return f"record batch of format {header.magic}; only format 2 is kept, use a client newer than 0.11"
    if header.size_bytes < HEADER_BYTES or header.size_bytes > available:
        return f"the batch claims {header.size_bytes} bytes, {available} are there"
    if header.last_offset_delta < 0 or header.record_count < 0:
        return f"negative counts: last offset delta {header.last_offset_delta}, {header.record_count} records"
    if produced and header.record_count != header.last_offset_delta + 1:
        return f"{header.record_count} records do not fill {header.last_offset_delta + 1} offsets"
    return None


def stamp(buffer: Writable, position: int, base_offset: int, leader_epoch: int) -> None:
    """Writes what the log assigns. The CRC does not cover either field, so it stays right."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + 12, leader_epoch)


def stamp_append_time(buffer: Writable, position: int, timestamp_ms: int) -> None:
    """Marks every record of the batch as appended at `timestamp_ms`; recomputes the CRC."""
    (attributes,) = _ATTRIBUTES.unpack_from(buffer, position + 21)
    _ATTRIBUTES.pack_into(buffer, position + 21, attributes | APPEND_TIME_BIT)
    _MAX_TIMESTAMP.pack_into(buffer, position + 35, timestamp_ms)
    seal(buffer, position)


def seal(buffer: Writable, position: int) -> None:
    """Recomputes the CRC after a change to what it covers."""
    (length,) = _LEADER_EPOCH.unpack_from(buffer, position + 8)
    _CRC.pack_into(buffer, position + 17, checksum(buffer, position, length + BATCH_OVERHEAD_BYTES))
