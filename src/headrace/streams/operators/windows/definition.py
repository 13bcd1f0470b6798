"""The definition: what a window operator's results are, computed from all rows at once.

It is `docs/explanation/windows.md` in code, to be compared with it sentence by sentence: "Which
events a window contains" and "What is counted as late" here, "Aggregates" in `aggregates.definition`.
Written for itself, row by row and without any of the operator's arithmetic, so that it
can judge the incremental operator (`headrace verify`, the property tests): the two agree
to the last bit. It takes microseconds per row, window and aggregate.
"""

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import date, timedelta
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.operators.aggregates.aggregates import Sum
from headrace.streams.operators.aggregates.definition import aggregate_column, comparable, sums_fit
from headrace.streams.operators.aggregates.layout import INSTANT
from headrace.streams.operators.grouping import one_chunk
from headrace.streams.operators.windows.operator import WindowOperator
from headrace.streams.operators.windows.windows import Session, Sliding, Window

__all__ = ["Fate", "fates", "in_order", "recompute"]

_YEAR_1 = (date(1, 1, 1) - date(1970, 1, 1)) // timedelta(microseconds=1)
_YEAR_10000 = (date(9999, 12, 31) - date(1970, 1, 1) + timedelta(days=1)) // timedelta(microseconds=1)


class _Row(NamedTuple):
    time: int
    partition: int
    offset: int
    watermark: int | None  # that of its partition, just before it
    number: int  # its place in the table


class _Window(NamedTuple):
    start: int
    end: int
    ended: int  # the watermark at which it has ended, and is published


class _Result(NamedTuple):
    window: _Window
    rows: Sequence[_Row]  # those that count in it, ordered by time, partition, offset
    row: _Row  # one of its key; for a sliding window the one whose window it is

    @property
    def numbers(self) -> list[int]:
        return [row.number for row in self.rows]


class Fate(NamedTuple):
    """What became of a row: which counter counts it, and what the late topic says of it if it is dropped."""

    outcome: Literal["on_time", "corrected", "dropped"]
    headers: dict[str, int]  # without `headrace.late.`


def recompute(operator: WindowOperator, rows: pa.Table, watermark_us: int | None = None) -> pa.Table:
    """The results of all rows that count, in order of key and window; without those set aside.

    With a watermark, only those that are there when the operator has reached it.
    """
    schema = operator.result_schema(rows.schema)
    rows = rows.combine_chunks()
    keys = [_key_column(rows[name], schema.field(name).type) for name in operator.keys]
    results = [
        result
        for of_key in _by_key(keys, _listed(rows))
        for result in _results(operator, of_key)
        if _is_within_the_years(result.window)
        and (watermark_us is None or operator.emit == "update" or result.window.ended <= watermark_us)
    ]
    for _, aggregate in operator.aggregates:
        if isinstance(aggregate, Sum):  # one that does not fit sets the whole result aside
            fit = sums_fit(aggregate, rows, [each.numbers for each in results])
            results = [each for each, fits in zip(results, fit, strict=True) if fits]
    chosen = pa.array([each.row.number for each in results], pa.int64())
    columns = [column.take(chosen) for column in keys]
    if isinstance(operator.window, Sliding):
        columns += [one_chunk(rows[name]).take(chosen) for name in ("_partition", "_offset")]
    columns += [pa.array([each.window.start for each in results], pa.int64()).view(INSTANT)]
    columns += [pa.array([each.window.end for each in results], pa.int64()).view(INSTANT)]
    members = [each.numbers for each in results]
    for name, aggregate in operator.aggregates:
        columns.append(aggregate_column(aggregate, rows, members, schema.field(name).type))
    return in_order(pa.table(columns, schema=schema), operator.keys)


def in_order(results: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The results ordered by key, window and event, so that two tables of them can be compared."""
    places = [*keys, "window_start", "window_end", "_partition", "_offset"]
    names = [name for name in places if name in results.column_names]
    ranks = {}
    for name in names:  # ranks of distinct values: any type can be sorted so, NaN and null included
        encoded = one_chunk(results[name]).dictionary_encode(null_encoding="encode")
        values = [
            (each is None, each if isinstance(each, int) else 0, repr(each))
            for each in comparable(encoded.dictionary)
        ]
        rank = np.empty(len(values), np.int64)
        rank[sorted(range(len(values)), key=values.__getitem__)] = np.arange(len(values))
        ranks[name] = rank[encoded.indices.to_numpy()]
    if not results.num_rows:
        return results
    return results.take(pa.array(np.lexsort([ranks[name] for name in reversed(names)]))).combine_chunks()


def fates(operator: WindowOperator, rows: pa.Table) -> list[Fate]:
    """What became of each row, by the log alone: "What is counted as late"."""
    return [_fate(operator, row) for row in _listed(rows)]


# Which events a window has


def _windows_of(window: Window, time: int) -> list[_Window]:
    """The windows that a row at this time is in, the earliest first.

    Of a sliding window its own; of a session the one that it would form alone.
    """
    if isinstance(window, Sliding):
        return [_Window(time - window.size_us, time, time + 1)]
    if isinstance(window, Session):
        return [_Window(time, time + window.gap_us, time + window.gap_us + 1)]
    size, step = window.size_us, window.step_us
    starts = [k * step for k in range((time - size) // step + 1, time // step + 1)]
    return [_Window(start, start + size, start + size) for start in starts]


def _has_ended(window: _Window, row: _Row) -> bool:
    return row.watermark is not None and row.watermark >= window.ended


def _counts(operator: WindowOperator, row: _Row, window: _Window) -> bool:
    return row.watermark is None or row.watermark < window.ended + operator.correct_for_us


def _is_within_the_years(window: _Window) -> bool:
    """Whether both its bounds are times of the years 1 to 9999; other results are left out."""
    return window.start >= _YEAR_1 and window.end < _YEAR_10000


def _results(operator: WindowOperator, rows: list[_Row]) -> Iterator[_Result]:
    """The results of one key, whose rows are in order."""
    if isinstance(operator.window, Sliding):
        return _sliding(operator, rows)
    if isinstance(operator.window, Session):
        return _sessions(operator, operator.window.gap_us, rows)
    return _hopping(operator, rows)


def _hopping(operator: WindowOperator, rows: list[_Row]) -> Iterator[_Result]:
    """Each window in which a row counts; tumbling ones as well."""
    counted: dict[_Window, list[_Row]] = {}
    for row in rows:
        for window in _windows_of(operator.window, row.time):
            if _counts(operator, row, window):
                counted.setdefault(window, []).append(row)
    for window, members in counted.items():
        yield _Result(window, members, members[0])


def _sliding(operator: WindowOperator, rows: list[_Row]) -> Iterator[_Result]:
    """The window of each row that counts in its own, with all rows that count there."""
    times = [row.time for row in rows]
    for row in rows:
        (own,) = _windows_of(operator.window, row.time)
        if _counts(operator, row, own):
            inside = rows[bisect_right(times, own.start) : bisect_right(times, own.end)]  # (start, end]
            yield _Result(own, [each for each in inside if _counts(operator, each, own)], row)


def _sessions(operator: WindowOperator, gap: int, rows: list[_Row]) -> Iterator[_Result]:
    """The rows that count, apart where two that follow each other are more than the gap apart."""
    sessions: list[list[_Row]] = []
    for row in rows:
        (alone,) = _windows_of(operator.window, row.time)
        if not _counts(operator, row, alone):
            continue
        if sessions and row.time <= sessions[-1][-1].time + gap:
            sessions[-1].append(row)
        else:
            sessions.append([row])
    for members in sessions:
        end = members[-1].time + gap
        yield _Result(_Window(members[0].time, end, end + 1), members, members[0])


def _listed(rows: pa.Table) -> list[_Row]:
    names = ("_event_time", "_partition", "_offset", "_watermark")
    columns = [rows[name].to_pylist() for name in names]
    return list(map(_Row, *columns, range(rows.num_rows)))


def _by_key(keys: Sequence[pa.Array], rows: list[_Row]) -> list[list[_Row]]:
    """The rows of each key, ordered by time, partition and offset."""
    columns = [comparable(column) for column in keys]
    members: dict[tuple[Any, ...], list[_Row]] = {}
    for row in rows:
        values = (column[row.number] for column in columns)
        key = tuple("NaN" if value != value else value for value in values)
        members.setdefault(key, []).append(row)
    return [sorted(each, key=lambda row: row[:3]) for each in members.values()]


def _key_column(column: pa.ChunkedArray, kind: pa.DataType) -> pa.Array:
    """All NaNs are one key, and so are 0.0 and -0.0."""
    values = one_chunk(column).cast(kind)
    if not pa.types.is_floating(kind):
        return values
    return pc.if_else(pc.is_nan(values), pa.scalar(math.nan, kind), pc.add(values, pa.scalar(0.0, kind)))


# What is counted as late


def _fate(operator: WindowOperator, row: _Row) -> Fate:
    windows = _windows_of(operator.window, row.time)
    missed = [each for each in windows if not _counts(operator, row, each)]
    if not missed:
        is_late = any(_has_ended(each, row) for each in windows)
        return Fate("corrected" if is_late else "on_time", {})
    headers = {
        "window_start_us": missed[0].start,
        "window_end_us": missed[0].end,
        "missed_windows": len(missed),
    }
    if len(missed) > 1:
        headers["every_us"] = missed[1].start - missed[0].start
    counted_from = _counted_from(operator, row, windows)
    if counted_from is not None:
        headers["counted_from_us"] = counted_from
    return Fate("dropped", headers)


def _counted_from(operator: WindowOperator, row: _Row, windows: list[_Window]) -> int | None:
    """The end of the first window in which a row counts that missed another."""
    if isinstance(operator.window, Sliding):  # the windows of rows at u >= t, while t is in (u - size, u]
        assert row.watermark is not None
        first = row.watermark - operator.correct_for_us  # the least u with w < u + 1 + c
        return first if first < row.time + operator.window.size_us else None
    return min((each.end for each in windows if _counts(operator, row, each)), default=None)
