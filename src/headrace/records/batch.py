"""Checking and stamping whole record batches, in place."""

import struct

from crc32c import crc32c

from headrace.errors import CorruptionError, RequestError
from headrace.records.batch_header import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    BATCH_OVERHEAD_BYTES,
    HEADER_BYTES,
    BatchHeader,
    read_header,
)

__all__ = ["INVALID_RECORD", "check_batch", "checksum", "seal", "stamp", "stamp_append_time"]

INVALID_RECORD = 87
_FORMATS = (0, 1, 2)
_LEAST_LENGTH = 14  # of the oldest format: with less, Kafka takes the length itself for damaged

_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")

Readable = bytes | bytearray | memoryview
Writable = bytearray | memoryview


def checksum(buffer: bytes | bytearray | memoryview, position: int, size_bytes: int) -> int:
    """CRC-32C of the part of a batch that its CRC covers."""
    return int(crc32c(memoryview(buffer)[position + ATTRIBUTES_AT : position + size_bytes]))


def check_batch(buffer: Readable, position: int = 0, *, produced: bool = True) -> BatchHeader:
    """The header of a batch that is whole and intact; raises CorruptionError otherwise.

    `produced` also demands what a producer's batch must have and a compacted one
    need not: format 2, all its bytes, offsets from 0 on without gaps, and a record
    for each. What Kafka answers with INVALID_RECORD then is a RequestError with that
    code. The records themselves are `check_records`' business.
    """
    if produced and len(buffer) - position < HEADER_BYTES:
        raise _invalid(f"{len(buffer) - position} bytes, which is less than a header")
    header = read_header(buffer, position)
    fault = _fault(header, len(buffer) - position)
    if fault is not None and produced and _is_understood(header):
        raise _invalid(fault)
    if fault is None and checksum(buffer, position, header.size_bytes) != header.crc:
        fault = f"the batch's CRC is {header.crc:#010x}, its bytes give another"
    if fault is None and not produced:
        fault = _negative(header)
    if fault is not None:
        raise CorruptionError(
            fault, start=position, end=min(len(buffer), position + max(header.size_bytes, 0))
        )
    if produced:
        _check_offsets(header)
    return header


def _fault(header: BatchHeader, available: int) -> str | None:
    if header.magic != 2:
        return f"record batch of format {header.magic}; only format 2 is kept, use a client newer than 0.11"
    if header.size_bytes < HEADER_BYTES or header.size_bytes > available:
        return f"the batch claims {header.size_bytes} bytes, {available} are there"
    return None


def _is_understood(header: BatchHeader) -> bool:
    """Whether Kafka takes it for a batch, if one that it does not want, rather than for damage."""
    return header.magic in _FORMATS and header.batch_length >= _LEAST_LENGTH


def _negative(header: BatchHeader) -> str | None:
    if header.last_offset_delta >= 0 and header.record_count >= 0:
        return None
    return f"negative counts: last offset delta {header.last_offset_delta}, {header.record_count} records"


def _check_offsets(header: BatchHeader) -> None:
    if header.record_count != header.last_offset_delta + 1 or header.record_count < 1:
        raise _invalid(f"{header.record_count} records, and the last has offset {header.last_offset_delta}")
    if header.base_offset:
        raise _invalid(f"offsets from {header.base_offset} on; a producer's batch begins at 0")


def _invalid(message: str) -> RequestError:
    return RequestError(f"no valid record batch: {message}", code=INVALID_RECORD)


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
