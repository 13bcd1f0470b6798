"""Checking records of one size without a step for each.

Producers often send records that are all of one size. Their bytes then form a
table: each field of the layout is a column that a slice with a step takes out, and
the fields that must be alike, or count up, are compared column by column, which
costs a few nanoseconds a record. A batch falls into few such runs, since the
lengths of the offset and the time change now and then. Whatever does not fit is
left to a reader that looks at every record.
"""

from functools import cache
from typing import NamedTuple

__all__ = ["is_uniform"]

_LEAST_RUN = 16
_LIMITS = (0, 64, 8192, 131_072)  # offsets below take so many bytes; of three only the first part is known
_CONTINUES = bytes(byte >> 7 for byte in range(256))


@cache
def _offset_columns(wide: int) -> tuple[bytes, ...]:
    """The bytes that offsets have as varints of this width, a column each, from offset 0 on."""
    deltas = range(_LIMITS[wide])
    return tuple(
        bytes((2 * delta >> 7 * at) & 127 | (128 if at < wide - 1 else 0) for delta in deltas)
        for at in range(wide)
    )


class _Shape(NamedTuple):
    """Where the fields of a record lie, relative to its start."""

    size: int
    time_at: int
    offset_at: int
    key_at: int
    key_bytes_at: int
    value_at: int
    value_bytes_at: int
    keyed: bool


def is_uniform(data: bytes, position: int, count: int, *, keyed: bool) -> bool:
    """Whether `data` holds exactly `count` records from `position` on, in runs of one size.

    True is a full check: lengths, offsets from 0 on, with `keyed` a key in each, and
    nothing behind the last. False says nothing: look at every record.
    """
    delta = runs = short = 0
    while delta < count:
        shape = _shape(data, position)
        if shape is None or (keyed and not shape.keyed):
            return False
        run = _run(data, position, shape, delta, count - delta)
        runs += 1
        short += run < _LEAST_RUN
        if not run or 2 * short > runs + 1:
            return False
        delta += run
        position += run * shape.size
    return position == len(data)


def _shape(data: bytes, start: int) -> _Shape | None:
    """The layout of the record at `start`; None if it has headers or does not fit its length."""
    try:
        length, at = _varint(data, start)
        end = at + length
        _, offset_at = _varint(data, at + 1)
        _, key_at = _varint(data, offset_at)
        key_length, key_bytes_at = _varint(data, key_at)
        value_at = key_bytes_at + max(key_length, 0)
        value_length, value_bytes_at = _varint(data, value_at)
        headers_at = value_bytes_at + max(value_length, 0)
        if key_length < -1 or value_length < -1 or headers_at + 1 != end or data[headers_at]:
            return None
        if data[at] > 127:  # attributes
            return None
    except IndexError:
        return None
    return _Shape(
        size=end - start,
        time_at=at + 1 - start,
        offset_at=offset_at - start,
        key_at=key_at - start,
        key_bytes_at=key_bytes_at - start,
        value_at=value_at - start,
        value_bytes_at=value_bytes_at - start,
        keyed=key_length >= 0,
    )


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[position]) > 127 and shift < 63:
        value |= (byte & 127) << shift
        shift += 7
        position += 1
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), position + 1


def _run(data: bytes, start: int, shape: _Shape, delta: int, left: int) -> int:
    """How many records from `start` on have this shape and the offsets from `delta` on; 0 if one is wrong."""
    size, wide = shape.size, shape.key_at - shape.offset_at
    if wide >= len(_LIMITS):
        return 0
    count = min(left, (len(data) - start) // size, _LIMITS[wide] - delta)
    end = start + max(count, 0) * size
    enough = min(left, _LEAST_RUN)
    for place in _alike(shape):
        if count < 1:
            return 0
        column = data[start + place : end : size]
        if shape.time_at <= place < shape.offset_at:
            column = column.translate(_CONTINUES)
        count = min(count, len(column) - len(column.lstrip(column[:1])))
        if delta == 0 and count < enough:  # most likely records of many sizes
            return 0
    return count if _counts_up(data, start + shape.offset_at, size, wide, delta, count) else 0


def _alike(shape: _Shape) -> tuple[int, ...]:
    """The bytes that are alike in every record of a shape; of the time, which of them go on."""
    return (
        *range(shape.offset_at),
        *range(shape.key_at, shape.key_bytes_at),
        *range(shape.value_at, shape.value_bytes_at),
        shape.size - 1,
    )


def _counts_up(data: bytes, start: int, size: int, wide: int, delta: int, count: int) -> bool:
    end = start + count * size
    return all(
        data[start + at : end + at : size] == column[delta : delta + count]
        for at, column in enumerate(_offset_columns(wide))
    )
