"""The aggregates of a window, as users name them: `agg.count()`, `agg.sum("amount")`, ...

An aggregate says which cells it needs and how to finish them. Nulls are left out, as in
Spark; an aggregate of nothing but nulls is null, and a count of them 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators import limbs as exact
from headrace.streams.operators.cells import Cell, CountCell, ExtremeCell, MomentsCell, SumCell, plain_type
from headrace.streams.operators.custom import ArrowAggregate, CustomCell, describe_own
from headrace.streams.operators.float_sums import SQUARES, VALUES, quotient
from headrace.streams.operators.grouping import Floats
from headrace.streams.operators.ordered_cells import CollectCell, PickCell, check_limit

__all__ = ["Aggregate", "Kept", "agg"]


@dataclass(frozen=True, slots=True)
class Kept:
    """What state holds of one aggregate, a row per key and window."""

    cells: list[list[pa.Array]]  # the columns of each of the aggregate's cells
    rows: pa.Array  # how many rows came
    inputs: pa.Schema  # the types of the rows' columns


class Aggregate(Protocol):
    """One result column of a window: a frozen description."""

    def columns(self) -> tuple[str, ...]:
        """The columns of rows that it reads."""
        ...

    def cells(self) -> tuple[Cell, ...]:
        """What is kept for it. None: the number of rows, which is always kept."""
        ...

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        """The type of the result; refuses columns that do not fit."""
        ...

    def finish(self, kept: Kept) -> pa.Array:
        """The result of each key and window."""
        ...


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows, or how many of them have a value in `column`."""

    column: str | None = None

    def columns(self) -> tuple[str, ...]:
        return () if self.column is None else (self.column,)

    def cells(self) -> tuple[Cell, ...]:
        return () if self.column is None else (CountCell(self.column),)

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        for cell in self.cells():
            cell.columns(inputs)
        return pa.int64()

    def finish(self, kept: Kept) -> pa.Array:
        return kept.cells[0][0] if kept.cells else kept.rows


@dataclass(frozen=True, slots=True)
class Sum:
    """The exact sum: int64 for integers, the nearest double for doubles, a decimal for decimals."""

    column: str

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def cells(self) -> tuple[Cell, ...]:
        return (CountCell(self.column), SumCell(self.column))

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        self.cells()[1].columns(inputs)
        kind = inputs.field(self.column).type
        if pa.types.is_floating(kind):
            return pa.float64()
        if pa.types.is_decimal(kind):
            return pa.decimal128(min(38, kind.precision + 10), kind.scale)
        return pa.int64()

    def finish(self, kept: Kept) -> pa.Array:
        (counts,), sums = kept.cells
        kind = self.result_type(kept.inputs)
        mask = counts.to_numpy() == 0
        if pa.types.is_floating(kind):
            return pa.array(VALUES.finish(sums), mask=mask, from_pandas=False)
        limbs = [each.to_numpy() for each in sums]
        if pa.types.is_decimal(kind):
            return _decimals(limbs, kind, self.column, mask)
        values, fits = exact.as_int64(limbs)
        if not fits.all():
            raise _overflow(self.column, kind, "use agg.mean, or sum a double or decimal column instead")
        return pa.array(values, mask=mask)


@dataclass(frozen=True, slots=True)
class Mean:
    """The exact sum, as the nearest double, divided by the number of values."""

    column: str

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def cells(self) -> tuple[Cell, ...]:
        return (CountCell(self.column), SumCell(self.column))

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        self.cells()[1].columns(inputs)
        return pa.float64()

    def finish(self, kept: Kept) -> pa.Array:
        (counts,), sums = kept.cells
        number = counts.to_numpy()
        kind = kept.inputs.field(self.column).type
        return pa.array(
            sums_as_floats(sums, kind) / np.maximum(number, 1), mask=number == 0, from_pandas=False
        )


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least or the greatest value."""

    column: str
    greatest: bool

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def cells(self) -> tuple[Cell, ...]:
        return (ExtremeCell(self.column, self.greatest),)

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        self.cells()[0].columns(inputs)
        return plain_type(inputs.field(self.column).type)

    def finish(self, kept: Kept) -> pa.Array:
        return kept.cells[0][0]


@dataclass(frozen=True, slots=True)
class Variance:
    """The variance of a sample, or its square root: nearest to that of the exact values as doubles."""

    column: str
    root: bool = False

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def cells(self) -> tuple[Cell, ...]:
        return (CountCell(self.column), MomentsCell(self.column))

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        self.cells()[1].columns(inputs)
        return pa.float64()

    def finish(self, kept: Kept) -> pa.Array:
        (counts,), moments = kept.cells
        border = len(VALUES.columns)
        variances = _variances(counts.to_pylist(), moments[:border], moments[border:])
        return pa.array(
            np.sqrt(variances) if self.root else variances, mask=counts.to_numpy() < 2, from_pandas=False
        )


@dataclass(frozen=True, slots=True)
class Pick:
    """The value of the first or the last event."""

    column: str
    last: bool
    ignore_nulls: bool = False

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def cells(self) -> tuple[Cell, ...]:
        return (PickCell(self.column, self.last, self.ignore_nulls),)

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return self.cells()[0].columns(inputs)[0][1]

    def finish(self, kept: Kept) -> pa.Array:
        return kept.cells[0][0]


@dataclass(frozen=True, slots=True)
class Collect:
    """The values of the first events that have one, in order, at most `limit` of them."""

    column: str
    limit: int = 100

    def __post_init__(self) -> None:
        check_limit(self.limit)

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def cells(self) -> tuple[Cell, ...]:
        return (CollectCell(self.column, self.limit),)

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return self.cells()[0].columns(inputs)[0][1]

    def finish(self, kept: Kept) -> pa.Array:
        return kept.cells[0][0]


@dataclass(frozen=True, slots=True)
class Custom:
    """A user's own aggregate."""

    own: ArrowAggregate

    def __repr__(self) -> str:
        """The same in every process, since checkpoints are held against it."""
        return f"Custom(own={describe_own(self.own)})"

    def columns(self) -> tuple[str, ...]:
        return tuple(self.own.columns)

    def cells(self) -> tuple[Cell, ...]:
        return (CustomCell(self.own),)

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        self.cells()[0].columns(inputs)
        return self.own.result_type([inputs.field(name).type for name in self.own.columns])

    def finish(self, kept: Kept) -> pa.Array:
        return self.own.finish(kept.cells[0])


class agg:  # noqa: N801 - a namespace: agg.sum("amount")
    """The aggregates by name."""

    @staticmethod
    def count(column: str | None = None) -> Count:
        """How many rows; with a column, how many have a value there."""
        return Count(column)

    @staticmethod
    def sum(column: str) -> Sum:
        """The exact sum; an integer sum that does not fit 64 bits is an error, never a wrong number."""
        return Sum(column)

    @staticmethod
    def mean(column: str) -> Mean:
        """The exact sum, as the nearest double, divided by the number of values."""
        return Mean(column)

    @staticmethod
    def variance(column: str) -> Variance:
        """The variance of a sample; null for fewer than two values."""
        return Variance(column)

    @staticmethod
    def stddev(column: str) -> Variance:
        """The standard deviation of a sample; null for fewer than two values."""
        return Variance(column, root=True)

    @staticmethod
    def first(column: str, *, ignore_nulls: bool = False) -> Pick:
        """The value of the earliest event, by event time, partition and offset."""
        return Pick(column, last=False, ignore_nulls=ignore_nulls)

    @staticmethod
    def last(column: str, *, ignore_nulls: bool = False) -> Pick:
        """The value of the latest event, by event time, partition and offset."""
        return Pick(column, last=True, ignore_nulls=ignore_nulls)

    @staticmethod
    def collect(column: str, limit: int = 100) -> Collect:
        """The values of the earliest events, in order, at most `limit`; nulls are left out."""
        return Collect(column, limit)

    @staticmethod
    def custom(own: ArrowAggregate) -> Custom:
        """An aggregate of your own: see `ArrowAggregate`."""
        return Custom(own)

    @staticmethod
    def min(column: str) -> Extreme:
        """The least value of any ordered type; NaN only when there is nothing else."""
        return Extreme(column, greatest=False)

    @staticmethod
    def max(column: str) -> Extreme:
        """The greatest value of any ordered type; NaN is greater than every number."""
        return Extreme(column, greatest=True)


def sums_as_floats(sums: Sequence[pa.Array], kind: pa.DataType) -> Floats:
    """The nearest doubles of the exact sums of a column of this type."""
    if pa.types.is_floating(kind):
        return VALUES.finish(sums)
    values = exact.as_float([each.to_numpy() for each in sums], 0)
    return values / 10.0**kind.scale if pa.types.is_decimal(kind) else values


def _variances(counts: list[int], values: Sequence[pa.Array], squares: Sequence[pa.Array]) -> Floats:
    """(n * sum of squares - square of sum) / (n * (n - 1)), without rounding but the last."""
    unit = 1 << -SQUARES.wide_unit
    results = np.full(len(counts), np.nan)
    infinite = (values[-2].to_numpy() != 0) | (squares[-2].to_numpy() != 0)
    totals = zip(counts, VALUES.totals(values), SQUARES.totals(squares), infinite.tolist(), strict=True)
    for row, (count, total, square, undefined) in enumerate(totals):
        if count > 1 and not undefined:
            results[row] = quotient(count * square - total * total, count * (count - 1) * unit)
    return results


def _decimals(limbs: list, kind: pa.DataType, column: str, mask: np.ndarray) -> pa.Array:  # type: ignore[type-arg]
    low = (limbs[0] | (limbs[1] << exact.BITS)).astype(np.int64)
    high = (limbs[1] >> 16) | (limbs[2] << 32)
    if ((limbs[2] < -(1 << 31)) | (limbs[2] >= 1 << 31)).any():
        raise _overflow(column, kind, "sum a narrower decimal, or a double")
    words = np.empty(2 * len(low), np.int64)
    words[::2], words[1::2] = low, high
    try:
        wide = pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(low), [None, pa.py_buffer(words)])
        wide.validate(full=True)
        values = wide.cast(kind)
    except pa.ArrowInvalid as error:
        raise _overflow(column, kind, "sum a narrower decimal, or a double") from error
    return pa.compute.if_else(pa.array(mask), None, values) if mask.any() else values


def _overflow(column: str, kind: pa.DataType, advice: str) -> RequestError:
    return RequestError(f"the sum of column {column!r} does not fit {kind}; {advice}")
