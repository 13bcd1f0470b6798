"""The definition: what a window operator's results are, computed from all rows at once.

Written for itself, row by row and without a cell, a run or a limb, so that it can judge
the incremental operator (`headrace verify`, the property tests): the two agree to the
last bit. It takes microseconds per row and aggregate.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from decimal import localcontext
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.aggregates import (
    Aggregate,
    Collect,
    Count,
    Custom,
    Extreme,
    Mean,
    Pick,
    Sum,
    Variance,
)
from headrace.streams.operators.grouping import Groups, one_chunk
from headrace.streams.operators.hashing import normal_key
from headrace.streams.operators.layout import INSTANT
from headrace.streams.operators.operator import WindowOperator
from headrace.streams.operators.windows import Hopping, Session, Sliding, Tumbling

__all__ = ["in_order", "recompute"]


class _Result(NamedTuple):
    rows: Sequence[int]  # of the window, ordered by time, partition, offset
    start: int
    end: int
    closes: int  # the watermark at which it is published
    event: int  # a row of the key; for a sliding window the event whose window it is


def recompute(operator: WindowOperator, rows: pa.Table, watermark_us: int | None = None) -> pa.Table:
    """The results of all rows that are not dropped, in order of key and window.

    With a watermark, only those that are published when the operator has reached it.
    """
    schema = operator.result_schema(rows.schema)
    rows = rows.filter(pa.array([not each for each in _dropped(operator, rows)], pa.bool_())).combine_chunks()
    times = rows["_event_time"].to_pylist()
    results = [
        result
        for members in _by_key(operator, rows)
        for result in _windows(operator, members, times)
        if watermark_us is None or operator.emit == "update" or result.closes <= watermark_us
    ]
    events = pa.array([each.event for each in results], pa.int64())
    columns = [normal_key(one_chunk(rows[name]), name).take(events) for name in operator.keys]
    if isinstance(operator.window, Sliding):
        columns += [one_chunk(rows[name]).take(events) for name in ("_partition", "_offset")]
    columns += [pa.array([each.start for each in results], pa.int64()).view(INSTANT)]
    columns += [pa.array([each.end for each in results], pa.int64()).view(INSTANT)]
    members = [each.rows for each in results]
    for name, aggregate in operator.aggregates:
        columns.append(_column(aggregate, rows, members, schema.field(name).type))
    return in_order(pa.table(columns, schema=schema), operator.keys)


def in_order(results: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The results ordered by key, window and event, so that two tables of them can be compared."""
    places = [*keys, *(name for name in ("window_start", "window_end", "_partition", "_offset"))]
    names = [name for name in places if name in results.column_names]
    ranks = {}
    for name in names:  # ranks of distinct values: any type can be sorted so, NaN and null included
        encoded = one_chunk(results[name]).dictionary_encode(null_encoding="encode")
        values: list[tuple[bool, Any]] = [
            (each is None, repr(each)) for each in encoded.dictionary.to_pylist()
        ]
        if pa.types.is_integer(results[name].type) or pa.types.is_timestamp(results[name].type):
            numbers = encoded.dictionary.cast(pa.int64()).to_pylist()
            values = [(each is None, each or 0) for each in numbers]
        rank = np.empty(len(values), np.int64)
        rank[sorted(range(len(values)), key=values.__getitem__)] = np.arange(len(values))
        ranks[name] = rank[encoded.indices.to_numpy()]
    if not results.num_rows:
        return results
    return results.take(pa.array(np.lexsort([ranks[name] for name in reversed(names)]))).combine_chunks()


def _dropped(operator: WindowOperator, rows: pa.Table) -> Iterator[bool]:
    window = operator.window
    times, watermarks = rows["_event_time"].to_pylist(), rows["_watermark"].to_pylist()
    for time, watermark in zip(times, watermarks, strict=True):
        due = time + 1
        if isinstance(window, Tumbling | Hopping):
            due = time - time % window.pane_us + window.pane_us
        yield watermark is not None and due + operator.correct_for_us <= watermark


def _by_key(operator: WindowOperator, rows: pa.Table) -> list[list[int]]:
    """The rows of each key, ordered by time, partition and offset."""
    keys = [normal_key(one_chunk(rows[name]), name).to_pylist() for name in operator.keys]
    order = list(
        zip(*(rows[name].to_pylist() for name in ("_event_time", "_partition", "_offset")), strict=True)
    )
    members: dict[tuple[Any, ...], list[int]] = {}
    for row in range(rows.num_rows):
        key = tuple("NaN" if column[row] != column[row] else (column[row],) for column in keys)
        members.setdefault(key, []).append(row)
    return [sorted(each, key=order.__getitem__) for each in members.values()]


def _windows(operator: WindowOperator, rows: list[int], of_row: list[int]) -> Iterator[_Result]:
    """The windows of one key."""
    window, times = operator.window, [of_row[row] for row in rows]
    if isinstance(window, Sliding):
        for row, time in zip(rows, times, strict=True):
            members = rows[bisect_right(times, time - window.size_us) : bisect_right(times, time)]
            yield _Result(members, time - window.size_us, time, time + 1, row)
    elif isinstance(window, Session):
        begin = 0
        for place in range(1, len(rows) + 1):
            if place == len(rows) or times[place] > times[place - 1] + window.gap_us:
                end = times[place - 1] + window.gap_us
                yield _Result(rows[begin:place], times[begin], end, end + 1, rows[begin])
                begin = place
    else:
        starts = {
            number * window.step_us
            for time in times
            for number in range((time - window.size_us) // window.step_us + 1, time // window.step_us + 1)
        }
        for start in starts:
            members = rows[bisect_left(times, start) : bisect_left(times, start + window.size_us)]
            yield _Result(members, start, start + window.size_us, start + window.size_us, members[0])


def _column(
    aggregate: Aggregate, rows: pa.Table, members: list[Sequence[int]], kind: pa.DataType
) -> pa.Array:
    if isinstance(aggregate, Count):
        present = _values(rows, aggregate.column) if aggregate.column else [0] * rows.num_rows
        return pa.array([sum(present[row] is not None for row in each) for each in members], kind)
    if isinstance(aggregate, Custom):
        parts = [_custom(aggregate, rows, each) for each in members]
        return one_chunk(pa.chunked_array(parts, kind))
    if isinstance(aggregate, Pick):
        return _picked(aggregate, rows, members, kind)
    if isinstance(aggregate, Extreme):
        return _extremes(aggregate, rows, members, kind)
    if isinstance(aggregate, Collect):
        return _collected(aggregate, rows, members, kind)
    define = _DEFINITIONS.get(type(aggregate))
    if define is None:
        raise RequestError(f"{type(aggregate).__name__} has no definition in batch; use agg.custom")
    column = aggregate.columns()[0]
    values, scale = _numbers(rows, column), getattr(rows.schema.field(column).type, "scale", 0)
    found = [[values[row] for row in each if values[row] is not None] for each in members]
    results = [define(aggregate, each, scale) if each else None for each in found]
    try:
        return pa.array(results, kind, from_pandas=False)
    except (OverflowError, pa.ArrowInvalid) as error:
        raise RequestError(f"the sum of column {column!r} does not fit {kind}") from error


def _values(rows: pa.Table, column: str) -> list[Any]:
    return list(rows[column].to_pylist())


def _numbers(rows: pa.Table, column: str) -> list[Any]:
    values = one_chunk(rows[column])
    return list((values.cast(pa.float64()) if pa.types.is_floating(values.type) else values).to_pylist())


def _sum(_: Aggregate, values: list[Any], __: int) -> Any:
    if isinstance(values[0], float):
        return exact_sum(values)
    with localcontext(prec=100):  # decimals have up to 38 digits
        return sum(values)


def _mean(_: Aggregate, values: list[Any], scale: int) -> float:
    if isinstance(values[0], float):
        return exact_sum(values) / len(values)
    if scale:
        with localcontext(prec=100):
            unscaled = sum(int(each.scaleb(scale)) for each in values)
        return float(unscaled) / 10.0**scale / len(values)
    return float(sum(values)) / len(values)


def _variance(aggregate: Aggregate, values: list[Any], _: int) -> float | None:
    if len(values) < 2:
        return None
    numbers = [float(each) for each in values]
    if not all(math.isfinite(each) for each in numbers):
        return math.nan
    exact = [Fraction(each) for each in numbers]
    middle = sum(exact) / len(exact)
    variance = sum((each - middle) ** 2 for each in exact) / (len(exact) - 1)
    try:
        rounded = float(variance)
    except OverflowError:
        rounded = math.inf
    return math.sqrt(rounded) if isinstance(aggregate, Variance) and aggregate.root else rounded


_DEFINITIONS: dict[type, Callable[[Aggregate, list[Any], int], Any]] = {
    Sum: _sum,
    Mean: _mean,
    Variance: _variance,
}


def exact_sum(values: Sequence[float]) -> float:
    """The double nearest to the exact sum; never -0.0."""
    if not all(map(math.isfinite, values)):
        special = {each for each in values if each in (math.inf, -math.inf)}
        return special.pop() if len(special) == 1 and not any(map(math.isnan, values)) else math.nan
    try:
        return math.fsum(values) + 0.0
    except OverflowError:
        try:
            return float(sum(map(Fraction, values)))
        except OverflowError:
            return math.inf if sum(map(Fraction, values)) > 0 else -math.inf


def _picked(aggregate: Pick, rows: pa.Table, members: list[Sequence[int]], kind: pa.DataType) -> pa.Array:
    column = one_chunk(rows[aggregate.column])
    present = column.is_valid().to_pylist()
    chosen = []
    for each in members:
        found = [row for row in each if present[row] or not aggregate.ignore_nulls]
        chosen.append((found[-1] if aggregate.last else found[0]) if found else None)
    return column.take(pa.array(chosen, pa.int64())).cast(kind)


def _extremes(
    aggregate: Extreme, rows: pa.Table, members: list[Sequence[int]], kind: pa.DataType
) -> pa.Array:
    column = one_chunk(rows[aggregate.column]).cast(kind)
    if pa.types.is_temporal(kind):
        column = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
    values = column.to_pylist()
    best = max if aggregate.greatest else min
    results = []
    for each in members:
        found = [values[row] for row in each if values[row] is not None]
        results.append(best(found, key=lambda value: (value != value, value)) if found else None)
    if pa.types.is_floating(kind):
        results = [None if each is None else each + 0.0 for each in results]
    return pa.array(results, column.type, from_pandas=False).view(kind)


def _collected(
    aggregate: Collect, rows: pa.Table, members: list[Sequence[int]], kind: pa.DataType
) -> pa.Array:
    column = one_chunk(rows[aggregate.column]).cast(kind.value_type)
    present = column.is_valid().to_pylist()
    lists = [[row for row in each if present[row]][: aggregate.limit] for each in members]
    ends = np.cumsum([0, *map(len, lists)]).astype(np.int32)
    taken = pa.array([row for each in lists for row in each], pa.int64())
    return pa.ListArray.from_arrays(pa.array(ends), column.take(taken))


def _custom(aggregate: Custom, rows: pa.Table, members: Sequence[int]) -> pa.Array:
    taken = pa.array(members, pa.int64())
    inputs = [one_chunk(rows[name]).take(taken) for name in aggregate.own.columns]
    groups = Groups.adjacent(np.zeros(1, np.int64), len(members))
    return one_chunk(aggregate.own.finish(list(aggregate.own.partial(inputs, groups))))
