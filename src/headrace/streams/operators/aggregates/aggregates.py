"""The aggregates of a window, as users name them: `agg.count()`, `agg.sum("amount")`, ...

An aggregate says which cells it needs and how to finish them. Nulls are left out, as in
Spark; an aggregate of nothing but nulls is null, and a count of them 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.nearest import no_such
from headrace.streams.operators.aggregates import limbs as exact
from headrace.streams.operators.aggregates.cells import (
    Cell,
    CountCell,
    ExtremeCell,
    MomentsCell,
    SumCell,
    plain_type,
)
from headrace.streams.operators.aggregates.custom import (
    ArrowAggregate,
    CustomCell,
    describe_own,
    own_in_words,
)
from headrace.streams.operators.aggregates.distinct_cells import DistinctCell
from headrace.streams.operators.aggregates.float_sums import SQUARES, VALUES, quotient
from headrace.streams.operators.aggregates.ordered_cells import CollectCell, PickCell, check_limit
from headrace.streams.operators.grouping import Floats, Ints

__all__ = ["Aggregate", "Kept", "Sum", "agg"]

_CLOSE = 1e-9  # much more than a double is off


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

    def describe(self) -> dict[str, Any]:
        """Plain values that say what it computes; those with equal ones take up each other's state."""
        ...


@dataclass(frozen=True, slots=True)
class Count:
    """How many rows, or how many of them have a value in `column`."""

    column: str | None = None

    def describe(self) -> dict[str, Any]:
        return {"aggregate": "count", "column": self.column}

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

    def describe(self) -> dict[str, Any]:
        return {"aggregate": "sum", "column": self.column}

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
        mask |= ~_fits(limbs, kind)
        if pa.types.is_decimal(kind):
            return _decimals(limbs, kind, mask)
        return pa.array(exact.as_int64(limbs)[0], mask=mask)

    def unfit(self, kept: Kept) -> dict[int, str]:
        """The exact sums that do not fit the result's type, by row; such a result is set aside."""
        (_, sums), kind = kept.cells, self.result_type(kept.inputs)
        if pa.types.is_floating(kind):
            return {}
        limbs = [each.to_numpy() for each in sums]
        rows = np.flatnonzero(~_fits(limbs, kind))
        totals = exact.as_python([limb[rows] for limb in limbs])
        scale = kind.scale if pa.types.is_decimal(kind) else 0
        return dict(zip(rows.tolist(), (_written(total, scale) for total in totals), strict=True))


@dataclass(frozen=True, slots=True)
class Mean:
    """The exact sum, as the nearest double, divided by the number of values."""

    column: str

    def describe(self) -> dict[str, Any]:
        return {"aggregate": "mean", "column": self.column}

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

    def describe(self) -> dict[str, Any]:
        return {"aggregate": "max" if self.greatest else "min", "column": self.column}

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

    def describe(self) -> dict[str, Any]:
        return {"aggregate": "stddev" if self.root else "variance", "column": self.column}

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

    def describe(self) -> dict[str, Any]:
        name = "last" if self.last else "first"
        return {"aggregate": name, "column": self.column, "ignore_nulls": self.ignore_nulls}

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

    def describe(self) -> dict[str, Any]:
        return {"aggregate": "collect", "column": self.column, "limit": self.limit}

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def cells(self) -> tuple[Cell, ...]:
        return (CollectCell(self.column, self.limit),)

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        return self.cells()[0].columns(inputs)[0][1]

    def finish(self, kept: Kept) -> pa.Array:
        return kept.cells[0][0]


@dataclass(frozen=True, slots=True)
class CountDistinct:
    """How many different values rows have in a column."""

    column: str

    def describe(self) -> dict[str, Any]:
        return {"aggregate": "count distinct", "column": self.column}

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def cells(self) -> tuple[Cell, ...]:
        return (DistinctCell(self.column),)

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        self.cells()[0].columns(inputs)
        return pa.int64()

    def finish(self, kept: Kept) -> pa.Array:
        return kept.cells[0][0].value_lengths().cast(pa.int64())


@dataclass(frozen=True, slots=True)
class Custom:
    """A user's own aggregate."""

    own: ArrowAggregate

    def __repr__(self) -> str:
        """The same in every process: earlier versions held checkpoints against it."""
        return f"Custom(own={own_in_words(self.own)})"

    def describe(self) -> dict[str, Any]:
        return {"aggregate": "custom", **describe_own(self.own)}

    def columns(self) -> tuple[str, ...]:
        return tuple(self.own.columns)

    def cells(self) -> tuple[Cell, ...]:
        return (CustomCell(self.own),)

    def result_type(self, inputs: pa.Schema) -> pa.DataType:
        self.cells()[0].columns(inputs)
        return self.own.result_type([inputs.field(name).type for name in self.own.columns])

    def finish(self, kept: Kept) -> pa.Array:
        return self.own.finish(kept.cells[0])


_MEANT = {
    "average": "mean",
    "avg": "mean",
    "collect_list": "collect",
    "countDistinct": "count_distinct",
    "std": "stddev",
    "stddev_samp": "stddev",
    "var": "variance",
    "var_samp": "variance",
}


class _Names(type):
    """Says which aggregates there are to who asks for another."""

    if not TYPE_CHECKING:  # a checker shall go on to refuse what is not there

        def __getattr__(cls, name: str) -> NoReturn:
            known = [each for each in vars(cls) if not each.startswith("_")]
            meant = _MEANT.get(name)
            told = no_such("aggregate", name, known)
            if meant is not None:
                told = f"there is no aggregate {name!r}; use {meant!r}. There is {', '.join(known)}"
            raise AttributeError(told, name=name, obj=cls)


class agg(metaclass=_Names):  # noqa: N801 - a namespace: agg.sum("amount")
    """The aggregates by name."""

    @staticmethod
    def count(column: str | None = None) -> Count:
        """How many rows; with a column, how many have a value there."""
        return Count(column)

    @staticmethod
    def count_distinct(column: str) -> CountDistinct:
        """How many different values, exactly; each is kept."""
        return CountDistinct(column)

    @staticmethod
    def sum(column: str) -> Sum:
        """The exact sum; a result with one that does not fit its type is set aside, never a wrong number."""
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
    return values / float(10**kind.scale) if pa.types.is_decimal(kind) else values


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


def _fits(limbs: Sequence[Ints], kind: pa.DataType) -> npt.NDArray[np.bool_]:
    """Which sums fit the type, an int64 or a decimal."""
    if not pa.types.is_decimal(kind):
        return exact.as_int64(limbs)[1]
    bound = 10**kind.precision
    size = np.abs(exact.as_float(limbs, 0))
    fits: npt.NDArray[np.bool_] = size < bound
    close = np.flatnonzero(np.abs(size / bound - 1.0) < _CLOSE)  # a double does not tell these
    for row, total in zip(close, exact.as_python([limb[close] for limb in limbs]), strict=True):
        fits[row] = abs(total) < bound
    return fits


def _decimals(limbs: Sequence[Ints], kind: pa.DataType, mask: npt.NDArray[np.bool_]) -> pa.Array:
    """The sums as decimals of this type, which they fit where they are not masked."""
    low, middle, high = (np.where(mask, 0, limb) for limb in limbs)
    words = np.empty(2 * len(low), np.int64)
    words[::2], words[1::2] = low | (middle << exact.BITS), (middle >> 16) | (high << 32)
    wide = pa.Array.from_buffers(pa.decimal128(38, kind.scale), len(low), [None, pa.py_buffer(words)])
    values = wide.cast(kind)
    return pa.compute.if_else(pa.array(mask), None, values) if mask.any() else values


def _written(total: int, scale: int) -> str:
    """A decimal with this many digits behind the point."""
    digits = f"{abs(total):0{scale + 1}}"
    whole, part = digits[: len(digits) - scale], digits[len(digits) - scale :]
    return ("-" if total < 0 else "") + (f"{whole}.{part}" if scale else whole)
