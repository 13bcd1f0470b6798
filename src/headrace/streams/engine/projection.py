"""The user's columns between the stream and its windows, for several views in one pass.

Spark would read a source again for every branch of a query. So there is one branch: a
column per view, holding the view's own columns as a struct, and null where one of its
conditions says no. Each view's steps see the stream's own columns, which are put
back before its turn. An expression is asked only about rows that got so far, so that a
condition guards what follows it; Python functions are the exception, for Spark
calls them with every row.

An expression that raises for a row (a division by zero, a cast, an index, an overflow) does
not fail the batch: the row is left out of the view, and one more column says which steps of
which views raised, and what the row was. What a Python function raises does fail it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know

from headrace.errors import ConfigError
from headrace.streams.engine.packers import ASIDE, FAILURES, view_column
from headrace.streams.engine.raising import may_raise
from headrace.streams.spec import RESERVED, StreamSpec, rows_schema

__all__ = [
    "Select",
    "Step",
    "Where",
    "WithColumns",
    "columns_after",
    "plain_step",
    "project",
    "project_producers",
    "projected_fields",
]

_INPUT, _KEPT, _TRIED, _FAILED = "_input", "_kept", "_tried", "_failed"
_ALL_FIELDS = {"ignoreNullFields": "false"}
_PLACE = ("_partition", "_offset")


@dataclass(frozen=True, slots=True)
class Where:
    """Keeps the rows for which the condition is true."""

    condition: Column | str


@dataclass(frozen=True, slots=True)
class WithColumns:
    """Adds columns, or puts others in their place; all see the columns before the step."""

    columns: Mapping[str, Column | str]


@dataclass(frozen=True, slots=True)
class Select:
    """These columns and no others."""

    columns: tuple[Column | str, ...]


Step = Where | WithColumns | Select


def projected_fields(spec: StreamSpec) -> list[str]:
    """The columns of a stream that a user's expressions may name."""
    return [name for name in rows_schema(spec).names if name not in ("_event_time", "_watermark")]


def project(
    rows: DataFrame, fields: Sequence[str], views: Sequence[tuple[Sequence[Step], Sequence[str]]]
) -> DataFrame:
    """One struct column per view, from its steps and the columns it needs; the rest stays.

    Where a step may raise there is the column FAILURES, too: for rows for which one did, a line
    of JSON with the number of the step by the number of the view, and a line with the row.
    """
    carried = [name for name in rows.columns if name not in fields or name in _PLACE]
    frame = rows.withColumn(_INPUT, F.struct(*fields))
    failed: list[Column] = []
    for number, (steps, needed) in enumerate(views):
        frame = frame.select(
            _INPUT, *[f"{_INPUT}.{name}" for name in fields if name not in _PLACE], *carried
        ).withColumn(_KEPT, F.col(ASIDE).isNull())
        mark = f"{_FAILED}{number}"
        for place, step in enumerate(steps):
            frame = _attempt(frame, step, place, mark, [_INPUT, *carried])
        frame = frame.withColumn(view_column(number), F.when(F.col(_KEPT), F.struct(*needed)))
        carried.append(view_column(number))
        if mark in frame.columns:
            carried.append(mark)
            failed.append(F.col(mark).alias(str(number)))
    if not failed:
        return frame.select(*carried)
    shown = [name for name in carried if not name.startswith(_FAILED)]
    own = F.struct(*[f"{_INPUT}.{name}" for name in fields if name not in RESERVED.names])
    return frame.select(*shown, _failures(failed, F.to_json(own, _ALL_FIELDS)))


def _failures(failed: Sequence[Column], row: Column) -> Column:
    lines = F.concat(F.to_json(F.struct(*failed)), F.lit("\n"), F.coalesce(_tried(row), F.lit("")))
    return F.when(F.coalesce(*failed).isNotNull(), lines).alias(FAILURES)


def _attempt(frame: DataFrame, step: Step, place: int, mark: str, hidden: Sequence[str]) -> DataFrame:
    """The step for the rows that got so far.

    Those for which it raises get no further, and have its number in the column `mark`.
    """
    hidden = [*hidden, *([mark] if mark in frame.columns else [])]
    columns = [_column(each) for each in _expressions(step)]
    if not may_raise(frame, columns):
        return _apply(frame, step, [_KEPT, *hidden])
    if mark not in hidden:
        frame, hidden = frame.withColumn(mark, F.lit(None).cast("int")), [*hidden, mark]
    attempt = F.struct(*[each.alias(f"r{number}") for number, each in enumerate(columns)])
    tried = frame.withColumn(_TRIED, F.when(F.col(_KEPT), _tried(attempt)))
    results = [F.col(f"{_TRIED}.r{number}") for number in range(len(columns))]
    succeeded = F.col(_TRIED).isNotNull()
    flags = {
        _KEPT: F.coalesce(results[0], F.lit(False)) if isinstance(step, Where) else succeeded,
        mark: F.when(F.col(_KEPT) & ~succeeded, F.lit(place)).otherwise(F.col(mark)),
    }
    if isinstance(step, Select):
        own = [result.alias(_name(frame, each)) for result, each in zip(results, columns, strict=True)]
        carried = [name for name in hidden if name != mark]
        return tried.select(*carried, *[flag.alias(name) for name, flag in flags.items()], *own)
    new = dict(zip(step.columns, results, strict=True)) if isinstance(step, WithColumns) else {}
    return tried.withColumns({**new, **flags}).drop(_TRIED)


def _expressions(step: Step) -> Sequence[Column | str]:
    if isinstance(step, Where):
        return [step.condition]
    return list(step.columns.values()) if isinstance(step, WithColumns) else step.columns


def _tried(column: Column) -> Column:
    """The column, and null where it raises; Spark has that for its own `try_` functions only."""
    jvm: Any = SparkContext._jvm
    columns = jvm.org.apache.spark.sql.classic.ExpressionUtils
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(columns.expression(column._jc))
    return Column(columns.column(tried))


def project_producers(
    rows: DataFrame, edges: Mapping[str, tuple[str, Sequence[str], Sequence[Step], Sequence[str]]]
) -> DataFrame:
    """One struct column per edge, under its name, from the struct column of its producer.

    An edge is: the producer's column, its fields, the steps, and the columns behind them. FAILURES
    is as in `project`, with the names of edges.
    """
    carried, frame = list(rows.columns), rows
    failed: list[Column] = []
    for number, (name, (producer, fields, steps, needed)) in enumerate(edges.items()):
        frame = frame.select(*carried, *[F.col(f"{producer}.`{each}`").alias(each) for each in fields])
        frame = frame.withColumn(_KEPT, F.col(producer).isNotNull())
        mark = f"{_FAILED}{number}"
        for place, step in enumerate(steps):
            frame = _attempt(frame, step, place, mark, carried)
        frame = frame.withColumn(name, F.when(F.col(_KEPT), F.struct(*[f"`{each}`" for each in needed])))
        carried.append(name)
        if mark in frame.columns:
            carried.append(mark)
            failed.append(F.col(mark).alias(name))
        frame = frame.select(*carried)
    if not failed:
        return frame
    producers = dict.fromkeys(producer for producer, *_ in edges.values())
    row = F.coalesce(*[F.to_json(F.col(each), _ALL_FIELDS) for each in producers])
    shown = [name for name in carried if not name.startswith(_FAILED)]
    return frame.select(*shown, _failures(failed, row))


def columns_after(rows: DataFrame, fields: Sequence[str], steps: Sequence[Step]) -> DataFrame:
    """The view's columns as a plain DataFrame: the steps one after the other, as a user would write them."""
    frame = rows.select(*fields)
    for step in steps:
        frame = plain_step(frame, step)
    return frame


def plain_step(frame: DataFrame, step: Step) -> DataFrame:
    """One step as a user would write it."""
    if isinstance(step, Where):
        return frame.where(step.condition)
    if isinstance(step, Select):
        return frame.select(*[_column(column) for column in step.columns])
    return frame.withColumns({name: _column(column) for name, column in step.columns.items()})


def _apply(frame: DataFrame, step: Step, hidden: Sequence[str]) -> DataFrame:
    kept = F.col(_KEPT)
    if isinstance(step, Where):
        condition = F.expr(step.condition) if isinstance(step.condition, str) else step.condition
        return frame.withColumn(_KEPT, F.coalesce(F.when(kept, condition), F.lit(False)))
    if isinstance(step, WithColumns):
        return frame.withColumns(
            {name: F.when(kept, _column(column)) for name, column in step.columns.items()}
        )
    return frame.select(*hidden, *[_guarded(frame, _column(column)) for column in step.columns])


def _guarded(frame: DataFrame, column: Column) -> Column:
    """The column, under the name it has in a plain select, for the rows that got so far."""
    return F.when(F.col(_KEPT), column).alias(_name(frame, column))


def _name(frame: DataFrame, column: Column) -> str:
    names = frame.select(column).columns
    if len(names) != 1:
        raise ConfigError("select of a stream takes one column at a time: name each instead of `*`")
    return names[0]


def _column(column: Column | str) -> Column:
    return F.expr(column) if isinstance(column, str) else column
