"""The user's columns between the stream and its windows, for several views in one pass.

Spark would read a source again for every branch of a query. So there is one branch: a
column per view, holding the view's own columns as a struct, and null where one of its
conditions says no. Each view's steps see the stream's own columns, which are put
back before its turn. An expression is asked only about rows that got so far, so that a
condition guards what follows it; Python functions are the exception, for Spark
calls them with every row.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know

from headrace.errors import ConfigError
from headrace.streams.engine.packers import ASIDE, view_column
from headrace.streams.spec import StreamSpec, rows_schema

__all__ = ["Select", "Step", "Where", "WithColumns", "columns_after", "project", "projected_fields"]

_INPUT, _KEPT = "_input", "_kept"
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
    """One struct column per view, from its steps and the columns it needs; the rest stays."""
    carried = [name for name in rows.columns if name not in fields or name in _PLACE]
    frame = rows.withColumn(_INPUT, F.struct(*fields))
    for number, (steps, needed) in enumerate(views):
        frame = frame.select(
            _INPUT, *[f"{_INPUT}.{name}" for name in fields if name not in _PLACE], *carried
        ).withColumn(_KEPT, F.col(ASIDE).isNull())
        for step in steps:
            frame = _apply(frame, step, [_INPUT, _KEPT, *carried])
        frame = frame.withColumn(view_column(number), F.when(F.col(_KEPT), F.struct(*needed)))
        carried.append(view_column(number))
    return frame.select(*carried)


def columns_after(rows: DataFrame, fields: Sequence[str], steps: Sequence[Step]) -> DataFrame:
    """The view's columns as a plain DataFrame: the steps one after the other, as a user would write them."""
    frame = rows.select(*fields)
    for step in steps:
        frame = _plain(frame, step)
    return frame


def _plain(frame: DataFrame, step: Step) -> DataFrame:
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
    names = frame.select(column).columns
    if len(names) != 1:
        raise ConfigError("select of a stream takes one column at a time: name each instead of `*`")
    return F.when(F.col(_KEPT), column).alias(names[0])


def _column(column: Column | str) -> Column:
    return F.expr(column) if isinstance(column, str) else column
