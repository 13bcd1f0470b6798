"""Exact sums of doubles and of their squares, hence the same in any order and any batching.

Each sum is an integer in units of a small power of two, in limbs: for plain sums units
of 2**-112 in four limbs, so that every double of magnitude between 2**-59 (about 2e-18)
and 2**70 (about 1e21), and zero, is such an integer. What is not, the bits below the unit
or the whole of a larger value, goes as Python's integers into a column of bytes that is
null otherwise: as exact, but a Python step per such value. NaN and the infinities are
flags. The result is the double nearest to the exact sum; beyond the largest it is infinite.

Measured at 10,000 groups, per row: 39 ns so; 49 ns with int64 limbs summed by Arrow;
24 + 17 ns for a cast to decimal128 and its sum by Arrow, of which the cast rounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.streams.operators.aggregates import limbs as exact
from headrace.streams.operators.grouping import Floats, Groups, Ints

__all__ = ["SQUARES", "VALUES", "FloatSums", "integer_terms", "negated_wide", "quotient", "square_terms"]

_NAN, _PLUS, _MINUS = 1, 2, 4
_SPILL = 1 << 46  # a highest limb from here on moves to the wide column, before it could wrap
_HEADROOM = 38  # bits of a value in the highest limb, which leaves room to add 2**24 of them
_SPLITTER = float((1 << 27) + 1)


@dataclass(frozen=True, slots=True)
class FloatSums:
    """A kind of exact sum: how many limbs, and the exponents of its units."""

    limbs: int
    unit: int
    wide_unit: int

    @property
    def columns(self) -> list[tuple[str, pa.DataType]]:
        names = [(str(number), pa.int64()) for number in range(self.limbs)]
        return [*names, ("flags", pa.int8()), ("wide", pa.binary())]

    @property
    def largest(self) -> float:
        """Values from here on are wide."""
        return 2.0 ** (self.unit + exact.BITS * (self.limbs - 1) + _HEADROOM)

    def partial(
        self, terms: Sequence[Floats], groups: Groups, wide: dict[int, int] | None = None
    ) -> list[pa.Array]:
        """The exact sum of each group over all terms, each a column of the groups' rows.

        `wide` are sums to begin with, in wide units, by group.
        """
        wide = {} if wide is None else wide
        flags = np.zeros(groups.count, np.int8)
        sums = [np.zeros(groups.count, np.int64) for _ in range(self.limbs)]
        for values in terms:
            outside = np.flatnonzero(~(np.abs(values) < self.largest))
            if len(outside):
                flags |= _flags(values[outside], groups.of(outside))
                self._widen(wide, groups.ids[outside], values[outside])
                values = values.copy()
                values[outside] = 0.0
            self._add_slices(sums, values, groups, wide)
        return self._columns(exact.normal(sums), flags, wide)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> list[pa.Array]:
        """The sums of each group's sums."""
        sums = exact.add([each.to_numpy() for each in columns[: self.limbs]], groups)
        flags = groups.any_bits(columns[-2].to_numpy())
        wide: dict[int, int] = {}
        for row in _rows_with(columns[-1]):
            group = int(groups.ids[row])
            wide[group] = wide.get(group, 0) + _integer(columns[-1][row])
        return self._columns(sums, flags, wide)

    def finish(self, columns: Sequence[pa.Array]) -> Floats:
        """The nearest double of each sum."""
        result = exact.as_float([each.to_numpy() for each in columns[: self.limbs]], self.unit)
        for row in _rows_with(columns[-1]):
            (total,) = self.totals([each.slice(row, 1) for each in columns])
            result[row] = quotient(total, 1 << -self.wide_unit)
        flags = columns[-2].to_numpy()
        if flags.any():
            result[flags & _PLUS != 0] = np.inf
            result[flags & _MINUS != 0] = -np.inf
            result[(flags & _NAN != 0) | (flags & (_PLUS | _MINUS) == _PLUS | _MINUS)] = np.nan
        return result

    def totals(self, columns: Sequence[pa.Array]) -> list[int]:
        """The exact sums of what is finite, in wide units, a Python step each."""
        fixed = exact.as_python([each.to_numpy() for each in columns[: self.limbs]])
        totals = [each << (self.unit - self.wide_unit) for each in fixed]
        for row in _rows_with(columns[-1]):
            totals[row] += _integer(columns[-1][row])
        return totals

    def unusual(self, columns: Sequence[pa.Array]) -> bool:
        """Whether any sum has flags or does not fit its limbs."""
        return bool(columns[-2].to_numpy().any()) or columns[-1].null_count < len(columns[-1])

    def _add_slices(self, sums: list[Ints], values: Floats, groups: Groups, wide: dict[int, int]) -> None:
        """Cuts the values into slices of bits so narrow that doubles add up each without rounding."""
        width = 51 - groups.largest.bit_length()
        place = int(np.frexp(np.abs(values).max(initial=0.0))[1])
        while values.any():
            place = max(place - width, self.unit)
            slices = np.rint(values * 2.0**-place)
            self._add_at(sums, groups.sum_floats(slices).astype(np.int64), place - self.unit)
            values = values - slices * 2.0**place
            if place == self.unit:
                rows = np.flatnonzero(values)
                self._widen(wide, groups.ids[rows], values[rows])
                break

    def _add_at(self, sums: list[Ints], values: Ints, shift: int) -> None:
        """Adds values * 2**shift, where |values| < 2**53."""
        limb, bits = divmod(shift, exact.BITS)
        if limb >= self.limbs - 1:
            sums[-1] += values << (shift - (self.limbs - 1) * exact.BITS)
            return
        room = exact.BITS - bits
        sums[limb] += (values & ((1 << room) - 1)) << bits
        sums[limb + 1] += values >> room

    def _widen(self, wide: dict[int, int], ids: Ints, values: Floats) -> None:
        for group, value in zip(ids.tolist(), values.tolist(), strict=True):
            if value - value == 0.0:  # finite
                numerator, denominator = value.as_integer_ratio()
                wide[group] = wide.get(group, 0) + numerator * ((1 << -self.wide_unit) // denominator)

    def _columns(self, sums: list[Ints], flags: npt.NDArray[np.int8], wide: dict[int, int]) -> list[pa.Array]:
        for row in np.flatnonzero(np.abs(sums[-1]) >= _SPILL).tolist():
            (fixed,) = exact.as_python([limb[row : row + 1] for limb in sums])
            wide[row] = wide.get(row, 0) + (fixed << (self.unit - self.wide_unit))
            for limb in sums:
                limb[row] = 0
        return [*(pa.array(limb) for limb in sums), pa.array(flags), _wide_column(wide, len(flags))]


VALUES = FloatSums(limbs=4, unit=-112, wide_unit=-1074)
SQUARES = FloatSums(limbs=6, unit=-192, wide_unit=-2148)


def square_terms(values: Floats, groups: Groups) -> tuple[list[Floats], dict[int, int]]:
    """Terms for `SQUARES` that add up to the squares without rounding; and the rest, in wide units."""
    size = np.abs(values)
    usual = ((size > 2.0**-400) & (size < 2.0**400)) | (size == 0.0)
    wide: dict[int, int] = {}
    if not usual.all():
        rows = np.flatnonzero(~usual)
        for group, value in zip(groups.ids[rows].tolist(), values[rows].tolist(), strict=True):
            if value - value == 0.0:
                numerator, denominator = value.as_integer_ratio()
                units = numerator * numerator * ((1 << -SQUARES.wide_unit) // (denominator * denominator))
                wide[group] = wide.get(group, 0) + units
        infinite = np.where(np.isfinite(values), 0.0, size)
        values = np.where(usual, values, 0.0)
    scaled = values * _SPLITTER
    high = scaled - (scaled - values)
    low = values - high
    terms = [high * high, 2.0 * high * low, low * low]
    return (terms if usual.all() else [*terms, infinite]), wide


def integer_terms(values: npt.NDArray[np.int64 | np.uint64]) -> tuple[list[Floats], list[Floats]]:
    """Terms that add up to 64-bit integers, and terms that add up to their squares, none of them rounded.

    value = a * 2**32 + b, and the parts of a product are cut until each fits 53 bits.
    """
    a, b = (values >> 32).astype(np.float64), (values & 0xFFFFFFFF).astype(np.float64)
    squares = [*_squared(a, 2.0**64), *_squared(b, 1.0)]
    high = np.floor(a / 65536.0)
    low = a - high * 65536.0
    return [a * 2.0**32, b], [*squares, high * b * 2.0**49, low * b * 2.0**33]


def _squared(values: Floats, unit: float) -> list[Floats]:
    """Terms that add up to the squares of integers of at most 32 bits, times a power of two."""
    high = np.floor(values / 65536.0)
    low = values - high * 65536.0
    return [high * high * (unit * 2.0**32), high * low * (unit * 2.0**17), low * low * unit]


def quotient(numerator: int, denominator: int) -> float:
    """The nearest double, infinite beyond the largest."""
    try:
        return numerator / denominator
    except OverflowError:
        return float("inf") if numerator > 0 else float("-inf")


def _flags(values: Floats, groups: Groups) -> npt.NDArray[np.int8]:
    bits = np.where(np.isnan(values), _NAN, 0) | np.where(values == np.inf, _PLUS, 0)
    return groups.any_bits((bits | np.where(values == -np.inf, _MINUS, 0)).astype(np.int8))


def _wide_column(wide: dict[int, int], count: int) -> pa.Array:
    if not wide:
        return pa.nulls(count, pa.binary())
    return pa.array([_stored(wide.get(row)) for row in range(count)], pa.binary())


def _stored(total: int | None) -> bytes | None:
    return None if total is None else total.to_bytes(total.bit_length() // 8 + 1, "little", signed=True)


def _integer(scalar: pa.Scalar) -> int:
    return int.from_bytes(scalar.as_py(), "little", signed=True)


def negated_wide(column: pa.Array) -> pa.Array:
    """The column of wide values with the opposite sign."""
    totals = {row: -_integer(column[row]) for row in _rows_with(column)}
    return pa.array([_stored(totals.get(row)) for row in range(len(column))], pa.binary())


def _rows_with(column: pa.Array) -> list[int]:
    if column.null_count == len(column):
        return []
    return [int(row) for row in np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))]
