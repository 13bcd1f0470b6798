"""An application into what runs: a query per stream, with all its views, and one per DataFrame.

View functions are called here, with a Spark at hand, since PySpark's columns need one.
Everything that can be wrong with an application is found here, before anything runs.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headrace.app.application import App, View
from headrace.app.plans import PlannedStream, PlannedView, Results, plan_view, stream_of, topics_used
from headrace.app.stream import Aggregation, Stream
from headrace.errors import ConfigError
from headrace.streams.engine.plan import RESERVED
from headrace.streams.engine.projection import columns_after, projected_fields
from headrace.streams.spec import rows_schema
from headrace.views import ViewSchema

__all__ = ["AppPlan", "PlannedFrame", "PlannedStream", "PlannedView", "plan_app"]


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
    streams = tuple(_plan_stream(app.streams[topic], results, spark) for topic in topics_used(app, results))
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


def _plan_stream(stream: Stream, results: Results, spark: SparkSession) -> PlannedStream:
    # By name: the state of a query is kept view after view, and must outlive a rearranged file.
    in_order = sorted(results.values(), key=lambda each: each[0].name)
    views = [
        plan_view(view, result, _columns(stream_of(result), spark))
        for view, result in in_order
        if not isinstance(result, DataFrame) and stream_of(result).spec.topic == stream.spec.topic
    ]
    return PlannedStream(stream=stream, views=tuple(views))


def _plan_frame(view: View, frame: DataFrame) -> PlannedFrame:
    if not frame.isStreaming:
        raise ConfigError(
            f"view {view.name!r} returns a DataFrame that is not streaming; begin with a stream's .df"
        )
    if not view.key:
        raise ConfigError(f"view {view.name!r} returns a DataFrame and needs a key: @app.view(key=[…])")
    columns = to_arrow_schema(frame.schema, timezone="UTC")
    return PlannedFrame(
        view=view, frame=frame, schema=ViewSchema(view.name, view.key, columns, keep_changes=10_000)
    )


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
