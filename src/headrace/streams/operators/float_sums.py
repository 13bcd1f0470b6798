"""Exact sums of doubles, hence the same in any order and any batching.

Each sum is an integer in units of 2**-112 in four limbs: every double of magnitude
between 2**-59 (about 2e-18) and 2**70 (about 1e21), and zero, is such an integer. What
is not, the bits below 2**-112 or the whole of a larger value, goes as Python's integers
in units of 2**-1074 into a column of bytes that is null otherwise: as exact, but a
Python step per such value. NaN and the infinities are flags. The result is the double
nearest to the exact sum; a sum beyond the largest double is infinite.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.operators import limbs as exact
from headrace.streams.operators.grouping import Floats, Groups, Ints

__all__ = ["COLUMNS", "finish", "merge", "partial"]

COLUMNS: tuple[tuple[str, pa.DataType], ...] = (
    ("0", pa.int64()),
    ("1", pa.int64()),
    ("2", pa.int64()),
    ("3", pa.int64()),
    ("flags", pa.int8()),
    ("wide", pa.binary()),
)

_LIMBS = 4
_UNIT = -112  # the exponent of the lowest limb's lowest bit
_LARGEST = 2.0**70
_SPILL = 1 << 46  # a highest limb from here on moves to the wide column, before it could wrap
_WIDE_UNIT = -1074
_NAN, _PLUS, _MINUS = 1, 2, 4


def partial(values: Floats, groups: Groups) -> list[pa.Array]:
    """The exact sum of each group; `groups` are over the same rows as `values`."""
    flags = np.zeros(groups.count, np.int8)
    wide: dict[int, int] = {}
    outside = np.flatnonzero(~(np.abs(values) < _LARGEST))
    if len(outside):
        values = values.copy()
        flags = _flags(values[outside], groups.of(outside))
        _widen(wide, groups.ids[outside], values[outside])
        values[outside] = 0.0
    return _columns(_limb_sums(values, groups, wide), flags, wide)


def merge(columns: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
    """The sums of each group's sums."""
    sums = exact.add([each.to_numpy() for each in columns[:_LIMBS]], groups)
    flags = groups.any_bits(columns[_LIMBS].to_numpy())
    wide: dict[int, int] = {}
    for row in _rows_with(columns[_LIMBS + 1]):
        group = int(groups.ids[row])
        wide[group] = wide.get(group, 0) + _integer(columns[_LIMBS + 1][row])
    return _columns(sums, flags, wide)


def finish(columns: Sequence[pa.Array]) -> Floats:
    """The nearest double of each sum."""
    sums = [each.to_numpy() for each in columns[:_LIMBS]]
    result = exact.as_float(sums, _UNIT)
    for row in _rows_with(columns[_LIMBS + 1]):
        (fixed,) = exact.as_python([limb[row : row + 1] for limb in sums])
        result[row] = nearest((fixed << (_UNIT - _WIDE_UNIT)) + _integer(columns[_LIMBS + 1][row]))
    flags = columns[_LIMBS].to_numpy()
    if flags.any():
        result[flags & _PLUS != 0] = np.inf
        result[flags & _MINUS != 0] = -np.inf
        result[(flags & _NAN != 0) | (flags & (_PLUS | _MINUS) == _PLUS | _MINUS)] = np.nan
    return result


def nearest(total: int) -> float:
    """The double nearest to total * 2**-1074."""
    try:
        return total / (1 << -_WIDE_UNIT)
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


def _limb_sums(values: Floats, groups: Groups, wide: dict[int, int]) -> list[Ints]:
    """Splits the values into slices of bits so narrow that doubles add up each without rounding."""
    sums = [np.zeros(groups.count, np.int64) for _ in range(_LIMBS)]
    width = 51 - groups.largest.bit_length()
    if width < 8:
        raise ValueError("too many rows of one group at once")  # 2**43 rows
    place = int(np.frexp(np.abs(values).max(initial=0.0))[1])
    rest = values
    while rest.any():
        place = max(place - width, _UNIT)
        slices = np.rint(np.ldexp(rest, -place))
        _add_at(sums, groups.sum_floats(slices).astype(np.int64), place - _UNIT)
        rest = rest - np.ldexp(slices, place)
        if place == _UNIT:
            rows = np.flatnonzero(rest)
            _widen(wide, groups.ids[rows], rest[rows])
            break
    return exact.normal(sums)


def _add_at(sums: list[Ints], values: Ints, shift: int) -> None:
    """Adds values * 2**shift; |values| < 2**53."""
    limb, bits = divmod(shift, exact.BITS)
    if limb >= _LIMBS - 1:
        sums[-1] += values << (shift - (_LIMBS - 1) * exact.BITS)
        return
    room = exact.BITS - bits
    sums[limb] += (values & ((1 << room) - 1)) << bits
    sums[limb + 1] += values >> room


def _flags(values: Floats, groups: Groups) -> npt.NDArray[np.int8]:
    bits = np.where(np.isnan(values), _NAN, 0) | np.where(values == np.inf, _PLUS, 0)
    return groups.any_bits((bits | np.where(values == -np.inf, _MINUS, 0)).astype(np.int8))


def _widen(wide: dict[int, int], ids: Ints, values: Floats) -> None:
    for group, value in zip(ids.tolist(), values.tolist(), strict=True):
        if value - value == 0.0:  # finite
            numerator, denominator = value.as_integer_ratio()
            wide[group] = wide.get(group, 0) + numerator * ((1 << -_WIDE_UNIT) // denominator)


def _columns(sums: list[Ints], flags: npt.NDArray[np.int8], wide: dict[int, int]) -> list[pa.Array]:
    for row in np.flatnonzero(np.abs(sums[-1]) >= _SPILL).tolist():
        (fixed,) = exact.as_python([limb[row : row + 1] for limb in sums])
        wide[row] = wide.get(row, 0) + (fixed << (_UNIT - _WIDE_UNIT))
        for limb in sums:
            limb[row] = 0
    return [*(pa.array(limb) for limb in sums), pa.array(flags), _wide_column(wide, len(flags))]


def _wide_column(wide: dict[int, int], count: int) -> pa.Array:
    if not wide:
        return pa.nulls(count, pa.binary())
    stored = [wide.get(row) for row in range(count)]
    return pa.array(
        [
            None if each is None else each.to_bytes(each.bit_length() // 8 + 1, "little", signed=True)
            for each in stored
        ],
        pa.binary(),
    )


def _integer(scalar: pa.Scalar) -> int:
    return int.from_bytes(scalar.as_py(), "little", signed=True)


def _rows_with(column: pa.Array) -> list[int]:
    if column.null_count == len(column):
        return []
    return np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False)).tolist()
