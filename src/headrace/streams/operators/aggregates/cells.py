"""What state keeps per key and window: cells, each a few columns that merge.

A cell's `merge` is associative and commutative to the last bit; that is what makes a
result independent of batches, partitions and arrival. Aggregates are finished from
cells (`aggregates`), and aggregates that need the same cell share it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.aggregates import limbs as exact
from headrace.streams.operators.aggregates.float_sums import SQUARES, VALUES, integer_terms, square_terms
from headrace.streams.operators.grouping import Groups, Ints, one_chunk
from headrace.streams.operators.ranges import merge_ranges, range_extremes, range_sums

__all__ = ["Cell", "CountCell", "ExtremeCell", "MomentsCell", "SumCell"]

Columns = list[pa.Array]

_INEXACT = float(1 << 53)  # from here on an integer may not be a double


class Cell(Protocol):
    """A frozen, hashable description; equal cells are computed once."""

    def columns(self, inputs: pa.Schema) -> list[tuple[str, pa.DataType]]:
        """Name and type of each column that is kept."""
        ...

    def partial(self, rows: pa.Table, groups: Groups) -> Columns:
        """The cell of each group of rows."""
        ...

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> Columns:
        """One cell per group of cells."""
        ...

    def over(self, columns: Sequence[pa.Array], begins: Ints, ends: Ints) -> Columns:
        """One cell per range [begin, end) of cells, which are ordered by time; no range is empty."""
        ...


@dataclass(frozen=True, slots=True)
class CountCell:
    """How many rows have a value in the column."""

    column: str

    def columns(self, inputs: pa.Schema) -> list[tuple[str, pa.DataType]]:
        type_of(inputs, self.column)
        return [("n", pa.int64())]

    def partial(self, rows: pa.Table, groups: Groups) -> Columns:
        values = one_chunk(rows[self.column])
        if not values.null_count:
            return [pa.array(groups.sizes)]
        return [pa.array(groups.sum(valid(values).astype(np.int64)))]

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> Columns:
        return [pa.array(groups.sum(columns[0].to_numpy()))]

    def over(self, columns: Sequence[pa.Array], begins: Ints, ends: Ints) -> Columns:
        return [pa.array(range_sums(columns[0].to_numpy(), begins, ends))]


@dataclass(frozen=True, slots=True)
class SumCell:
    """The exact sum of a column of numbers; nulls count as nothing."""

    column: str

    def columns(self, inputs: pa.Schema) -> list[tuple[str, pa.DataType]]:
        kind = type_of(inputs, self.column)
        if pa.types.is_floating(kind):
            return VALUES.columns
        if pa.types.is_integer(kind):
            return [("0", pa.int64()), ("1", pa.int64())]
        if pa.types.is_decimal(kind) and kind.precision <= 38:
            return [("0", pa.int64()), ("1", pa.int64()), ("2", pa.int64())]
        raise RequestError(
            f"column {self.column!r} of type {kind} has no sum; give a column of integers, doubles or "
            "decimals of at most 38 digits"
        )

    def partial(self, rows: pa.Table, groups: Groups) -> Columns:
        column = one_chunk(rows[self.column])
        kind = column.type
        if pa.types.is_floating(kind):
            return VALUES.partial([filled(column.cast(pa.float64()))], groups)
        if pa.types.is_integer(kind):
            return _integer_sums(column, groups)
        return _arrays(exact.add(_decimal_limbs(column), groups))

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> Columns:
        if pa.types.is_binary(columns[-1].type):
            return VALUES.merge(columns, groups)
        return _arrays(exact.add([each.to_numpy() for each in columns], groups))

    def over(self, columns: Sequence[pa.Array], begins: Ints, ends: Ints) -> Columns:
        longest = int((ends - begins).max(initial=0))
        if longest > exact.SAFE_ROWS or (pa.types.is_binary(columns[-1].type) and VALUES.unusual(columns)):
            return merge_ranges(self.merge, columns, begins, ends)
        limbs = [each for each in columns if pa.types.is_int64(each.type)]
        sums = exact.normal([range_sums(each.to_numpy(), begins, ends) for each in limbs])
        return [*_arrays(sums), *(each.slice(0, len(sums[0])) for each in columns[len(limbs) :])]


@dataclass(frozen=True, slots=True)
class MomentsCell:
    """The exact sums of a column's values and of their squares; a decimal counts as the nearest double."""

    column: str

    def columns(self, inputs: pa.Schema) -> list[tuple[str, pa.DataType]]:
        SumCell(self.column).columns(inputs)
        squares = [(f"squares.{name}", kind) for name, kind in SQUARES.columns]
        return [*VALUES.columns, *squares]

    def partial(self, rows: pa.Table, groups: Groups) -> Columns:
        column = one_chunk(rows[self.column])
        if pa.types.is_integer(column.type):
            number = filled(column).astype(np.float64)
            if np.abs(number).max(initial=0.0) >= _INEXACT:
                values, squares = integer_terms(filled(column))
                return [*VALUES.partial(values, groups), *SQUARES.partial(squares, groups)]
        else:
            if pa.types.is_decimal(column.type):
                column = column.cast(pa.string())  # Arrow reads digits to the nearest double; its cast is off
            number = filled(column.cast(pa.float64()))
        terms, wide = square_terms(number, groups)
        return [*VALUES.partial([number], groups), *SQUARES.partial(terms, groups, wide)]

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> Columns:
        border = len(VALUES.columns)
        return [*VALUES.merge(columns[:border], groups), *SQUARES.merge(columns[border:], groups)]

    def over(self, columns: Sequence[pa.Array], begins: Ints, ends: Ints) -> Columns:
        return merge_ranges(self.merge, columns, begins, ends)


@dataclass(frozen=True, slots=True)
class ExtremeCell:
    """The least or the greatest value of a column; nulls are left out.

    As in Spark, NaN is greater than any other number. -0.0 is taken for 0.0.
    """

    column: str
    greatest: bool

    def columns(self, inputs: pa.Schema) -> list[tuple[str, pa.DataType]]:
        kind = plain_type(type_of(inputs, self.column))
        if pa.types.is_nested(kind):
            raise RequestError(
                f"column {self.column!r} of type {kind} has no least value; select a part of it"
            )
        return [("value", kind)]

    def partial(self, rows: pa.Table, groups: Groups) -> Columns:
        return self.merge([plain(one_chunk(rows[self.column]))], groups)

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> Columns:
        (values,) = columns
        stored = _as_numbers(values.type)
        if stored is None:
            return [groups.aggregate(values, "max" if self.greatest else "min")]
        if not values.null_count:
            return [self._numbers(values, groups, stored, None)]
        present = np.flatnonzero(valid(values))
        some = np.zeros(groups.count, np.bool_)
        some[groups.ids[present]] = True
        return [self._numbers(values.take(pa.array(present)), groups.of(present), stored, ~some)]

    def over(self, columns: Sequence[pa.Array], begins: Ints, ends: Ints) -> Columns:
        (values,) = columns
        stored = _as_numbers(values.type)
        if stored is None or values.null_count:
            return merge_ranges(self.merge, columns, begins, ends)
        numbers = values.view(stored).to_numpy(zero_copy_only=False)
        ufunc = np.maximum if self.greatest else np.fmin if pa.types.is_floating(stored) else np.minimum
        return [
            pa.array(range_extremes(ufunc, numbers, begins, ends), stored, from_pandas=False).view(
                values.type
            )
        ]

    def _numbers(
        self, values: pa.Array, groups: Groups, stored: pa.DataType, mask: npt.NDArray[np.bool_] | None
    ) -> pa.Array:
        numbers: npt.NDArray[Any] = values.view(stored).to_numpy(zero_copy_only=False)
        if pa.types.is_floating(stored):
            numbers = numbers + numbers.dtype.type(0.0)
            worst = -np.inf if self.greatest else np.nan
            extreme = groups.maximum(numbers, worst) if self.greatest else groups.fminimum(numbers, worst)
            extreme[np.isnan(extreme)] = np.nan
        else:
            bounds = np.iinfo(numbers.dtype)
            extreme = (
                groups.maximum(numbers, bounds.min) if self.greatest else groups.minimum(numbers, bounds.max)
            )
        return pa.array(extreme, stored, mask=mask, from_pandas=False).view(values.type)


def valid(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Which rows have a value."""
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False))


def filled(column: pa.Array) -> npt.NDArray[Any]:
    """Numbers, with 0 in place of nulls."""
    return np.asarray((column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a value of this one is kept: dictionaries and views become plain."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    return pa.float32() if pa.types.is_float16(kind) else kind


def plain(column: pa.Array) -> pa.Array:
    kind = plain_type(column.type)
    return column if column.type == kind else column.cast(kind)


def type_of(inputs: pa.Schema, column: str) -> pa.DataType:
    if inputs.get_field_index(column) < 0:
        raise RequestError(f"there is no column {column!r}; there are {', '.join(map(repr, inputs.names))}")
    return inputs.field(column).type


def _as_numbers(kind: pa.DataType) -> pa.DataType | None:
    """The numeric type with the same bytes and the same order, if there is one."""
    if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return kind
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return pa.int64() if kind.bit_width == 64 else pa.int32()
    return None


def _integer_sums(column: pa.Array, groups: Groups) -> Columns:
    if pa.types.is_uint64(column.type):
        values = filled(column)
        low, high = values & np.uint64((1 << exact.BITS) - 1), values >> np.uint64(exact.BITS)
        return _arrays(exact.add([low.astype(np.int64), high.astype(np.int64)], groups))
    values = filled(column.cast(pa.int64()))
    largest = max(-int(values.min(initial=0)), int(values.max(initial=0)))
    if largest * groups.largest < 1 << 62:
        return _arrays(exact.from_int64(groups.sum(values), 2))
    return _arrays(exact.add(exact.from_int64(values, 2), groups))


def _decimal_limbs(column: pa.Array) -> list[npt.NDArray[np.int64]]:
    column = column.cast(pa.decimal128(38, column.type.scale)).fill_null(0)
    words = np.frombuffer(column.buffers()[1], np.int64)[
        2 * column.offset : 2 * (column.offset + len(column))
    ]
    low, high = words[::2].astype(np.uint64), words[1::2]
    mask = (1 << exact.BITS) - 1
    first = (low & np.uint64(mask)).astype(np.int64)
    second = (low >> np.uint64(exact.BITS)).astype(np.int64) | ((high & 0xFFFFFFFF) << 16)
    return [first, second, high >> 32]


def _arrays(columns: Sequence[npt.NDArray[np.int64]]) -> Columns:
    return [pa.array(each) for each in columns]
