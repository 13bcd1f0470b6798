"""The aggregates by their definition: each from all values of a window at once.

It is the section "Aggregates" of `docs/explanation/windows.md` in code, with the integers and fractions
of Python: nothing is rounded but where the documentation says so. For `batch`, the judge.
"""

import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.aggregates.aggregates import (
    Aggregate,
    Collect,
    Count,
    CountDistinct,
    Custom,
    Extreme,
    Mean,
    Pick,
    Sum,
    Variance,
)
from headrace.streams.operators.grouping import Groups, one_chunk

__all__ = ["aggregate_column", "comparable", "sums_fit"]


def aggregate_column(
    aggregate: Aggregate, rows: pa.Table, members: list[list[int]], kind: pa.DataType
) -> pa.Array:
    """The aggregate of each of these lists of rows, which are ordered by time, partition and offset."""
    if isinstance(aggregate, Custom):
        return one_chunk(pa.chunked_array([_custom(aggregate, rows, each) for each in members], kind))
    if isinstance(aggregate, Pick):
        return _picked(aggregate, rows, members, kind)
    if isinstance(aggregate, Extreme):
        return _extremes(aggregate, rows, members, kind)
    if isinstance(aggregate, Collect):
        return _collected(aggregate, rows, members, kind)
    if isinstance(aggregate, Count):
        found = _present(_listed(rows, aggregate.column), members) if aggregate.column else members
        return pa.array([len(each) for each in found], kind)
    if isinstance(aggregate, CountDistinct):
        found = _present(comparable(one_chunk(rows[aggregate.column])), members)
        return pa.array([len({_told(value) for value in each}) for each in found], kind)
    if isinstance(aggregate, Sum):
        return _sums(aggregate, rows, members, kind)
    if isinstance(aggregate, Mean):
        return _means(aggregate, rows, members, kind)
    if isinstance(aggregate, Variance):
        return _variances(aggregate, rows, members, kind)
    raise RequestError(f"{type(aggregate).__name__} has no definition in batch; use agg.custom")


def _told(value: Any) -> Any:
    """NaN, which alone is not equal to itself, as one value."""
    return "NaN" if value != value else value


def sums_fit(aggregate: Sum, rows: pa.Table, members: list[list[int]]) -> list[bool]:
    """Of each of these lists of rows, whether the sum fits the type of the result."""
    kind = rows.schema.field(aggregate.column).type
    if pa.types.is_floating(kind):
        return [True] * len(members)  # sums of doubles become infinite instead
    least, greatest = -(2**63), 2**63 - 1
    if pa.types.is_decimal(kind):
        greatest = 10 ** min(38, kind.precision + 10) - 1
        least = -greatest
    found = _present(_unscaled(rows, aggregate.column), members)
    return [least <= sum(each) <= greatest for each in found]


def _listed(rows: pa.Table, column: str) -> list[Any]:
    """The values as Python's; of floats the doubles that they are."""
    values = one_chunk(rows[column])
    return list((values.cast(pa.float64()) if pa.types.is_floating(values.type) else values).to_pylist())


def _unscaled(rows: pa.Table, column: str) -> list[Any]:
    """The values; decimals without their point, as integers."""
    values, kind = _listed(rows, column), rows.schema.field(column).type
    if not pa.types.is_decimal(kind):
        return values
    unit = Fraction(10) ** kind.scale
    return [None if each is None else int(Fraction(each) * unit) for each in values]


def _present(values: list[Any], members: list[list[int]]) -> list[list[Any]]:
    """The values of each list of rows; nulls are left out."""
    return [[values[row] for row in each if values[row] is not None] for each in members]


def _sums(aggregate: Sum, rows: pa.Table, members: list[list[int]], kind: pa.DataType) -> pa.Array:
    found = _present(_unscaled(rows, aggregate.column), members)
    if pa.types.is_floating(kind):
        return pa.array([_sum_of_doubles(each) if each else None for each in found], kind)
    sums: list[Any] = [sum(each) if each else None for each in found]
    if pa.types.is_decimal(kind):
        sums = [None if each is None else Decimal(f"{each}E{-kind.scale}") for each in sums]
    return pa.array(sums, kind)


def _means(aggregate: Mean, rows: pa.Table, members: list[list[int]], kind: pa.DataType) -> pa.Array:
    column = rows.schema.field(aggregate.column).type
    unit = float(10**column.scale) if pa.types.is_decimal(column) else 1.0
    means: list[float | None] = []
    for each in _present(_unscaled(rows, aggregate.column), members):
        total = _sum_of_doubles(each) if pa.types.is_floating(column) else float(sum(each))
        means.append(total / unit / len(each) if each else None)
    return pa.array(means, kind)


def _variances(aggregate: Variance, rows: pa.Table, members: list[list[int]], kind: pa.DataType) -> pa.Array:
    values = _listed(rows, aggregate.column)
    if pa.types.is_decimal(rows.schema.field(aggregate.column).type):
        values = [None if each is None else float(each) for each in values]
    variances = [_variance(each) for each in _present(values, members)]
    if aggregate.root:
        variances = [None if each is None else math.sqrt(each) for each in variances]
    return pa.array(variances, kind)


def _variance(values: list[Any]) -> float | None:
    """That of a sample, exact but for one rounding."""
    if len(values) < 2:
        return None
    if not all(isinstance(each, int) or math.isfinite(each) for each in values):
        return math.nan
    exact = [Fraction(each) for each in values]
    middle = sum(exact, Fraction()) / len(exact)
    squares = sum(((each - middle) ** 2 for each in exact), Fraction())
    return _nearest_double(squares / (len(exact) - 1))


def _sum_of_doubles(values: Sequence[float]) -> float:
    """The double nearest to the exact sum; never -0.0."""
    if any(math.isnan(each) for each in values) or {math.inf, -math.inf} <= set(values):
        return math.nan
    for infinity in (math.inf, -math.inf):
        if infinity in values:
            return infinity
    try:
        return math.fsum(values) + 0.0  # exact, and rounded once
    except OverflowError:  # on the way, or of the sum itself
        return _nearest_double(sum(map(Fraction, values), Fraction()))


def _nearest_double(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _picked(aggregate: Pick, rows: pa.Table, members: list[list[int]], kind: pa.DataType) -> pa.Array:
    column = one_chunk(rows[aggregate.column])
    present = column.is_valid().to_pylist()
    chosen = []
    for each in members:
        found = [row for row in each if present[row] or not aggregate.ignore_nulls]
        chosen.append((found[-1] if aggregate.last else found[0]) if found else None)
    return column.take(pa.array(chosen, pa.int64())).cast(kind)


def _extremes(aggregate: Extreme, rows: pa.Table, members: list[list[int]], kind: pa.DataType) -> pa.Array:
    values = comparable(one_chunk(rows[aggregate.column]).cast(kind))
    best = max if aggregate.greatest else min
    results = []
    for each in members:
        found = [values[row] for row in each if values[row] is not None]
        # NaN, which alone is not equal to itself, is greater than every number.
        results.append(best(found, key=lambda value: (value != value, value)) if found else None)
    if pa.types.is_floating(kind):
        results = [None if each is None else each + 0.0 for each in results]  # -0.0 counts as 0.0
    return pa.array(results, _plain_type(kind), from_pandas=False).view(kind)


def _collected(aggregate: Collect, rows: pa.Table, members: list[list[int]], kind: pa.DataType) -> pa.Array:
    column = one_chunk(rows[aggregate.column]).cast(kind.value_type)
    present = column.is_valid().to_pylist()
    lists = [[row for row in each if present[row]][: aggregate.limit] for each in members]
    ends = np.cumsum([0, *map(len, lists)]).astype(np.int32)
    taken = pa.array([row for each in lists for row in each], pa.int64())
    return pa.ListArray.from_arrays(pa.array(ends), column.take(taken))


def _custom(aggregate: Custom, rows: pa.Table, members: list[int]) -> pa.Array:
    taken = pa.array(members, pa.int64())
    inputs = [one_chunk(rows[name]).take(taken) for name in aggregate.own.columns]
    groups = Groups.adjacent(np.zeros(1, np.int64), len(members))
    return one_chunk(aggregate.own.finish(list(aggregate.own.partial(inputs, groups))))


def comparable(column: pa.Array) -> list[Any]:
    """The values as Python's; times as numbers, since Python's know no nanoseconds and few years."""
    return list(column.view(_plain_type(column.type)).to_pylist())


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if not pa.types.is_temporal(kind):
        return kind
    return pa.int64() if kind.bit_width == 64 else pa.int32()
