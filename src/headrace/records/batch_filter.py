"""Leaving records out of a batch without decoding those that stay."""

from collections.abc import Iterable, Sequence
from itertools import compress

from headrace.errors import CorruptionError
from headrace.records.batch import Readable
from headrace.records.batch_header import DELETE_HORIZON_BIT, HEADER_BYTES, BatchHeader
from headrace.records.record import assemble, plain_batch, read_records, write_record

__all__ = ["filter_batch"]

_MAX_VARINT_BYTES = 10


def filter_batch(
    header: BatchHeader, batch: Readable, stays: Sequence[int], *, delete_horizon_ms: int | None = None
) -> bytearray:
    """The batch with only those records, at least one, for which `stays` holds.

    Offsets, times, codec, producer and the range of offsets do not change. With
    `delete_horizon_ms` the batch carries, as Kafka's does, the time from which its
    tombstones may be dropped; the records' times then are rewritten, otherwise
    they are copied byte for byte.
    """
    plain = plain_batch(header, batch)
    if delete_horizon_ms is not None:
        return _with_horizon(header, plain, stays, delete_horizon_ms)
    payload, dropped = _cut(plain, stays)
    count = header.record_count - len(dropped)
    largest = header.max_timestamp
    if any(header.base_timestamp + _time_delta(plain, start) >= largest for start in dropped):
        kept = _cut(plain, [not each for each in stays])[1]
        largest = _largest_time(header, plain, kept)
    return _finish(header, payload, count, largest)


def _largest_time(header: BatchHeader, plain: bytes, starts: Iterable[int]) -> int:
    """Of these records; no other of the batch's needs to be looked at once one has the batch's largest."""
    largest = -1
    for start in starts:
        largest = max(largest, header.base_timestamp + _time_delta(plain, start))
        if largest >= header.max_timestamp:
            break
    return largest


def _with_horizon(
    header: BatchHeader, plain: bytes, stays: Iterable[int], delete_horizon_ms: int
) -> bytearray:
    marked = header._replace(
        attributes=header.attributes | DELETE_HORIZON_BIT, base_timestamp=delete_horizon_ms
    )
    payload, count, largest = bytearray(), 0, -1
    for record in compress(read_records(plain, header), stays):
        write_record(payload, record, marked)
        count += 1
        largest = max(largest, record.timestamp_ms)
    return _finish(marked, payload, count, largest)


def _finish(header: BatchHeader, payload: bytearray, count: int, largest: int) -> bytearray:
    kept_time = header.max_timestamp if header.is_append_time else largest
    return assemble(header._replace(max_timestamp=kept_time, record_count=count), bytes(payload))


def _cut(plain: bytes, stays: Iterable[int]) -> tuple[bytearray, list[int]]:
    """The records that stay, back to back, and where those that do not begin.

    The hot loop: lengths of one and two bytes, which is up to 8 kB, are written out.
    """
    payload, dropped = bytearray(), []
    position = copied = HEADER_BYTES
    for keep in stays:
        low, high = plain[position], plain[position + 1]
        if low < 128:
            end = position + 1 + (low >> 1)
        elif high < 128:
            end = position + 2 + ((low & 127 | high << 7) >> 1)
        else:
            length, body = _varint(plain, position)
            end = body + length
        if not keep:
            payload += plain[copied:position]
            dropped.append(position)
            copied = end
        position = end
    payload += plain[copied:position]
    return payload, dropped


def _time_delta(plain: bytes, start: int) -> int:
    _, body = _varint(plain, start)
    return _varint(plain, body + 1)[0]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """The zigzag varint at `position`, and the position behind it."""
    value = shift = 0
    for _ in range(_MAX_VARINT_BYTES):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise CorruptionError("a record holds a varint of more than ten bytes")
