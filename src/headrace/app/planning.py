"""An application into what runs: a query per stream, with all its views, and one per DataFrame.

View functions are called here, with a Spark at hand, since PySpark's columns need one.
Everything that can be wrong with an application is found here, before anything runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headrace.app.application import App, View
from headrace.app.stream import Aggregation, Stream
from headrace.errors import ConfigError
from headrace.streams.engine.plan import RESERVED, StreamPlan, ViewPlan
from headrace.streams.engine.projection import Step, columns_after, projected_fields
from headrace.streams.operators import Sliding
from headrace.streams.spec import rows_schema
from headrace.views import ViewSchema

__all__ = ["AppPlan", "PlannedFrame", "PlannedStream", "PlannedView", "plan_app"]

_KEEP_CLOSED_US = 3_600_000_000
_RECORD_KEY = ("_partition", "_offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedView:
    """One view of a stream: its declaration, the steps before its windows, and how its rows look."""

    view: View
    result: Aggregation | Stream
    plan: ViewPlan
    schema: ViewSchema

    @property
    def steps(self) -> tuple[Step, ...]:
        """What Spark computes before the windows."""
        stream = self.result if isinstance(self.result, Stream) else self.result.stream
        return stream.steps


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStream:
    """One query: a stream and the views on it."""

    stream: Stream
    views: tuple[PlannedView, ...]

    @property
    def name(self) -> str:
        return self.stream.spec.topic

    def plan(self, buckets: int) -> StreamPlan:
        """For the engine."""
        return StreamPlan(
            spec=self.stream.spec, views=tuple(each.plan for each in self.views), buckets=buckets
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFrame:
    """One query: a plain streaming DataFrame of the user's own."""

    view: View
    frame: DataFrame
    schema: ViewSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPlan:
    """All queries of an application."""

    app: App
    streams: tuple[PlannedStream, ...]
    frames: tuple[PlannedFrame, ...]


def plan_app(app: App, spark: SparkSession) -> AppPlan:
    """Calls every view function and checks what it returns; raises ConfigError naming view and column."""
    if not app.views:
        raise ConfigError(f"application {app.name!r} has no views and no topics; declare one with @app.view")
    results = {name: (view, _call(view)) for name, view in app.views.items()}
    streams = tuple(_plan_stream(app.streams[topic], results, spark) for topic in _topics(app, results))
    frames = tuple(
        _plan_frame(view, result) for view, result in results.values() if isinstance(result, DataFrame)
    )
    return AppPlan(app=app, streams=streams, frames=frames)


def _call(view: View) -> Any:
    result = view.function()
    if not isinstance(result, (Aggregation, Stream, DataFrame)):
        raise ConfigError(
            f"view {view.name!r} returns {type(result).__name__}; return a stream, the result of "
            ".window(…).agg(…), or a streaming DataFrame"
        )
    return result


def _topics(app: App, results: dict[str, tuple[View, Any]]) -> Iterator[str]:
    used = {_stream(result).spec.topic for _, result in results.values() if not isinstance(result, DataFrame)}
    return (topic for topic in app.streams if topic in used)


def _stream(result: Aggregation | Stream) -> Stream:
    return result if isinstance(result, Stream) else result.stream


def _plan_stream(stream: Stream, results: dict[str, tuple[View, Any]], spark: SparkSession) -> PlannedStream:
    views = [
        _plan_view(view, result, spark)
        for view, result in results.values()
        if not isinstance(result, DataFrame) and _stream(result).spec.topic == stream.spec.topic
    ]
    return PlannedStream(stream=stream, views=tuple(views))


def _plan_view(view: View, result: Aggregation | Stream, spark: SparkSession) -> PlannedView:
    rows = _columns(_stream(result), spark)
    if isinstance(result, Stream):
        return _plan_rows(view, result, rows)
    operator = result.operator(keep_closed_us=_KEEP_CLOSED_US)
    wanted = dict.fromkeys(
        [*operator.keys, *(name for _, each in operator.aggregates for name in each.columns())]
    )
    for name in wanted:
        if name not in rows.names:
            raise ConfigError(
                f"view {view.name!r}: there is no column {name!r}; there is {', '.join(rows.names)}"
            )
    plan = ViewPlan(name=view.name, columns=tuple(wanted), operator=operator)
    columns = operator.result_schema(rows)
    key = _window_key(result)
    if view.key and set(view.key) - {*key, "window"}:
        raise ConfigError(f"view {view.name!r}: the key of a windowed view is {', '.join(key)}")
    return PlannedView(
        view=view, result=result, plan=plan, schema=ViewSchema(view.name, key, columns, keep_changes=10_000)
    )


def _window_key(result: Aggregation) -> tuple[str, ...]:
    keys = result.windowed.keys
    if isinstance(result.windowed.window, Sliding):
        return (*keys, "window_end", *_RECORD_KEY)
    return (*keys, "window_start", "window_end")


def _plan_rows(view: View, stream: Stream, rows: pa.Schema) -> PlannedView:
    """A view of rows as they are; without a key, every record is a row of its own."""
    for name in view.key:
        if name not in rows.names:
            raise ConfigError(
                f"view {view.name!r}: its key {name!r} is no column; there is {', '.join(rows.names)}"
            )
    own = [field for field in rows if field.name not in RESERVED]
    place = [] if view.key else [pa.field("_partition", pa.int32()), pa.field("_offset", pa.int64())]
    schema = ViewSchema(view.name, view.key or _RECORD_KEY, pa.schema([*own, *place]), keep_changes=10_000)
    plan = ViewPlan(name=view.name, columns=tuple(field.name for field in own))
    return PlannedView(view=view, result=stream, plan=plan, schema=schema)


def _plan_frame(view: View, frame: DataFrame) -> PlannedFrame:
    if not frame.isStreaming:
        raise ConfigError(
            f"view {view.name!r} returns a DataFrame that is not streaming; begin with a stream's .df"
        )
    if not view.key:
        raise ConfigError(f"view {view.name!r} returns a DataFrame and needs a key: @app.view(key=[…])")
    columns = to_arrow_schema(frame.schema, timezone="UTC")
    return PlannedFrame(view=view, frame=frame, schema=ViewSchema(view.name, view.key, columns))


def _columns(stream: Stream, spark: SparkSession) -> pa.Schema:
    """The columns after a stream's steps, as Arrow has them."""
    known = rows_schema(stream.spec)
    if not stream.steps:
        return known
    fields = projected_fields(stream.spec)
    empty = spark.createDataFrame([], from_arrow_schema(pa.schema([known.field(name) for name in fields])))
    after = columns_after(empty, fields, stream.steps)
    found = to_arrow_schema(after.schema, timezone="UTC")
    return pa.schema([*found, *(field for field in known if field.name in RESERVED)])
