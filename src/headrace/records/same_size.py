"""Checking records of one size without a step for each.

Producers often send records that are all of one size. Their bytes then form a
table, and the columns that must be alike, or count up, are compared by numpy, which
costs a few nanoseconds a record. A batch falls into few such runs, since the
lengths of the offset and the time change now and then. Whatever does not fit is
left to a reader that looks at every record. numpy is imported by the first batch
that is large enough.
"""

from functools import cache
from typing import Any, NamedTuple

from headrace.records.batch import Readable

__all__ = ["is_uniform"]

_LEAST_RUN = 16
_LIMITS = (0, 64, 8192, 131_072)  # offsets below take so many bytes; of three only the first part is known


@cache
def _offset_columns(wide: int) -> Any:
    """The bytes that offsets have as varints of this width, a row each, from offset 0 on."""
    import numpy as np

    zigzag = 2 * np.arange(_LIMITS[wide])
    places = np.arange(wide)
    goes_on = np.where(places < wide - 1, 128, 0)
    return ((zigzag[:, None] >> 7 * places) & 127 | goes_on).astype(np.uint8)


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


def is_uniform(data: Readable, position: int, count: int, *, keyed: bool) -> bool:
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


def _shape(data: Readable, start: int) -> _Shape | None:
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


def _varint(data: Readable, position: int) -> tuple[int, int]:
    value = shift = 0
    while (byte := data[position]) > 127 and shift < 63:
        value |= (byte & 127) << shift
        shift += 7
        position += 1
    value |= byte << shift
    return (value >> 1) ^ -(value & 1), position + 1


def _run(data: Readable, start: int, shape: _Shape, delta: int, left: int) -> int:
    """How many records from `start` on have this shape and the offsets from `delta` on; 0 if one is wrong."""
    import numpy as np

    size, wide = shape.size, shape.key_at - shape.offset_at
    if wide >= len(_LIMITS):
        return 0
    count = min(left, (len(data) - start) // size, _LIMITS[wide] - delta)
    if count < 1:
        return 0
    table = np.frombuffer(data, np.uint8, count * size, start).reshape(count, size)
    count = _leading(table[:, 0] == table[0, 0])
    if delta == 0 and count < min(left, _LEAST_RUN):  # most likely records of many sizes
        return 0
    table = table[:count]
    alike = [*range(shape.time_at), *range(shape.key_at, shape.key_bytes_at)]
    alike += [*range(shape.value_at, shape.value_bytes_at), size - 1]
    for place in alike[1:]:
        count = min(count, _leading(table[:, place] == table[0, place]))
    for place in range(shape.time_at, shape.offset_at):  # times differ, but not in their length
        count = min(count, _leading((table[:, place] > 127) == (table[0, place] > 127)))
    offsets = table[:count, shape.offset_at : shape.key_at]
    expected = _offset_columns(wide)[delta : delta + count]
    return count if bool((offsets == expected).all()) else 0


def _leading(flags: Any) -> int:
    """How many are true before the first that is not."""
    first = int(flags.argmin())
    return len(flags) if flags[first] else first
