"""A stable hash of the rows of columns: the same values have the same hash in every process and version.

It spreads and orders keys, and tells that a stored row is not what was written; it never decides that
two values are equal. Of two rows that differ in one column, the hashes always differ. It is part of
the formats of stored state and of stored views: to change it is to change the versions there.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["Hashes", "hash_columns"]

Hashes = npt.NDArray[np.uint64]

_ODD = np.uint64(0xD6E8FEB86659FD93)
_STEP = np.uint64(0x9E3779B97F4A7C15)
_HALF = np.uint64(32)
_NULL = np.uint64(0xA0761D6478BD642F)


def hash_columns(columns: Sequence[pa.Array], rows: int) -> Hashes:
    """The hash of each row. Text and bytes have offsets of 32 bits; there is nothing nested.

    No columns: all rows are alike. Floats differ where their bits do.
    """
    if not columns:
        return np.zeros(rows, np.uint64)
    hashes = _hash_column(columns[0])
    for column in columns[1:]:
        hashes = _mix(hashes * _STEP + _hash_column(column))
    return hashes


def _hash_column(column: pa.Array) -> Hashes:
    hashes = _hash_values(column)
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _hash_values(column: pa.Array) -> Hashes:
    """The hashes of the values; what stands in place of a null does not matter."""
    kind = column.type
    if pa.types.is_boolean(kind):
        return _mix(column.fill_null(False).cast(pa.uint8()).to_numpy().astype(np.uint64))
    if pa.types.is_floating(kind):
        return _mix(column.fill_null(0).cast(pa.float64()).to_numpy().view(np.uint64).copy())
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _hash_bytes(column)
    if pa.types.is_fixed_size_binary(kind) or pa.types.is_decimal(kind):
        return _hash_words(_fixed_bytes(column))
    letter = "u" if pa.types.is_unsigned_integer(kind) else "i"
    stored = np.frombuffer(column.buffers()[1], f"{letter}{kind.bit_width // 8}")
    stored = stored[column.offset : column.offset + len(column)]
    return _mix(stored.astype(f"{letter}8").view(np.uint64))


def _fixed_bytes(column: pa.Array) -> npt.NDArray[np.uint8]:
    """One row per value, padded to whole words."""
    width = column.type.bit_width // 8
    stored = np.frombuffer(column.buffers()[1], np.uint8)
    stored = stored[column.offset * width : (column.offset + len(column)) * width].reshape(-1, width)
    return np.pad(stored, ((0, 0), (0, -width % 8)))


def _hash_words(padded: npt.NDArray[np.uint8]) -> Hashes:
    words = np.ascontiguousarray(padded).view(np.uint64)
    hashes = np.full(len(padded), words.shape[1], np.uint64)
    for each in range(words.shape[1]):
        hashes = _mix(hashes * _STEP + words[:, each])
    return hashes


def _hash_bytes(column: pa.Array) -> Hashes:
    """Text and bytes, a word of eight bytes at a time, each over all rows that are that long."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    begins, sizes = offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    stored = np.zeros(last - first + 8, np.uint8)
    if last > first:
        stored[:-8] = np.frombuffer(column.buffers()[2], np.uint8)[first:last]
    words = np.lib.stride_tricks.as_strided(stored[:8].view(np.uint64), (len(stored) - 7,), (1,))
    hashes = _mix(sizes.view(np.uint64))
    rows: npt.NDArray[np.int64] | slice = slice(None)
    begins -= first
    while len(begins):
        left = np.minimum(sizes, 8)
        word = words[begins] & _MASKS[left]
        hashes[rows] = _mix(hashes[rows] * _STEP + word)
        more = np.flatnonzero(sizes > 8)
        begins, sizes = begins[more] + 8, sizes[more] - 8
        rows = more if isinstance(rows, slice) else rows[more]
    return hashes


_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)


def _mix(values: Hashes) -> Hashes:
    """A bijection of 64 bits in which every bit depends on every other."""
    values = (values ^ (values >> _HALF)) * _ODD
    values ^= values >> _HALF
    values *= _ODD
    return values ^ (values >> _HALF)
