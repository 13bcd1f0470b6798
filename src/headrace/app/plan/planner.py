"""An application into what runs: a query per stream, with all its views, and one per DataFrame.

View functions are called here, with a Spark at hand, since PySpark's columns need one.
Everything that can be wrong with an application is found here, before anything runs: each
expression is put to Spark in the very form in which its query will have it.
"""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from headrace.app.application import App, View
from headrace.app.diagnostics.mistakes import placed
from headrace.app.diagnostics.places import place_of
from headrace.app.plan.dataflow import PlannedGraph, is_dataflow, plan_graph
from headrace.app.plan.plan import PlannedStream, PlannedView, Results, plan_view, stream_of, topics_used
from headrace.app.plan.topology import with_stages
from headrace.app.relation import Relation, Table
from headrace.app.stream import Aggregation, Stream
from headrace.errors import ConfigError
from headrace.streams import StreamSpec, is_log_source, rows_schema
from headrace.streams.engine import ASIDE, ROW_STAMPS, plain_step, project, projected_fields
from headrace.views import ViewSchema, require_store_url

__all__ = ["AppPlan", "PlannedFrame", "PlannedStream", "PlannedView", "plan_app"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFrame:
    """One query: a plain streaming DataFrame of the user's own, and the topics that it reads."""

    view: View
    frame: DataFrame
    schema: ViewSchema
    topics: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class AppPlan:
    """All queries of an application."""

    app: App
    streams: tuple[PlannedStream, ...]
    frames: tuple[PlannedFrame, ...]
    graphs: tuple[PlannedGraph, ...] = ()


def plan_app(app: App, spark: SparkSession) -> AppPlan:
    """Calls every view function and checks what it returns.

    Raises ConfigError that names the place in the user's file, the view and the column.
    """
    if not app.views:
        raise ConfigError(f"application {app.name!r} has no views and no topics; declare one with @app.view")
    if app.store is not None:
        require_store_url(app.store)
    results = {name: (view, _call(view)) for name, view in app.views.items()}
    streams = tuple(_plan_stream(app.streams[topic], results, spark) for topic in topics_used(app, results))
    frames = tuple(
        _plan_frame(view, result) for view, result in results.values() if isinstance(result, DataFrame)
    )
    graphs = tuple(
        plan_graph(app.name, view, result, spark) for view, result in results.values() if is_dataflow(result)
    )
    reading = [
        *((each.view, each.topics) for each in frames),
        *((each.view, {source.spec.topic for source in each.graph.sources}) for each in graphs),
    ]
    return AppPlan(app=app, streams=with_stages(app, streams, reading), frames=frames, graphs=graphs)


def _call(view: View) -> Any:
    with placed(place_of(view.function), view.name):
        if view.store is not None:
            require_store_url(view.store)
        result = view.function()
        if not isinstance(result, (Aggregation, Stream, Table, Relation, DataFrame)):
            raise ConfigError(
                f"view {view.name!r} returns {type(result).__name__}; return a stream, a table, a join, the "
                "result of .agg(…), or a streaming DataFrame"
            )
        return result


def _plan_stream(stream: Stream, results: Results, spark: SparkSession) -> PlannedStream:
    # By name: the state of a query is kept view after view, and must outlive a rearranged file.
    in_order = sorted(results.values(), key=lambda each: each[0].name)
    views = [
        _plan_view(view, result, spark)
        for view, result in in_order
        if _is_of_one_stream(result) and stream_of(result).spec.topic == stream.spec.topic
    ]
    return PlannedStream(stream=stream, views=tuple(views))


def _is_of_one_stream(result: Any) -> bool:
    return isinstance(result, Aggregation | Stream) and not is_dataflow(result)


def _plan_frame(view: View, frame: DataFrame) -> PlannedFrame:
    with placed(place_of(view.function), view.name):
        if view.last is not None:
            raise ConfigError(
                "last= is for views of a stream; a view of a DataFrame shows the rows of each batch"
            )
        if not frame.isStreaming:
            raise ConfigError("it returns a DataFrame that is not streaming; begin with a stream's .df")
        if not view.key:
            raise ConfigError("it returns a DataFrame and needs a key: @app.view(key=[…])")
        _require_streamable(frame, "Update")
        columns = to_arrow_schema(frame.schema, timezone="UTC")
        schema = ViewSchema(view.name, view.key, columns, keep_changes=10_000)
    return PlannedFrame(view=view, frame=frame, schema=schema, topics=_topics_read(frame))


def _topics_read(frame: DataFrame) -> frozenset[str]:
    """The topics that a streaming DataFrame reads by way of `.df`, wherever in the file it was asked for."""
    plan: Any = frame._jdf.queryExecution().analyzed()
    leaves = plan.collectLeaves()
    found = [leaves.apply(number) for number in range(leaves.size())]
    relations = [each for each in found if each.getClass().getSimpleName() == "StreamingRelationV2"]
    topics = [each.extraOptions().get("topic") for each in relations if is_log_source(each.sourceName())]
    return frozenset(topic for topic in topics if topic is not None)


def _plan_view(view: View, result: Aggregation | Stream, spark: SparkSession) -> PlannedView:
    stream = stream_of(result)
    if not stream.steps:
        return plan_view(view, result, rows_schema(stream.spec))
    rows = _no_rows(stream.spec, spark)
    fields = projected_fields(stream.spec)
    planned = plan_view(view, result, _columns(view, stream, rows))
    with placed(stream.places[-1], view.name):
        project(rows, fields, [(stream.steps, planned.plan.columns)])
    return planned


def _no_rows(spec: StreamSpec, spark: SparkSession) -> DataFrame:
    """A streaming DataFrame with the columns that a stream's steps may name; it is never started."""
    known = rows_schema(spec)
    types = from_arrow_schema(pa.schema([known.field(name) for name in projected_fields(spec)]))
    columns = [F.lit(None).cast(each.dataType).alias(each.name) for each in types]
    return spark.readStream.format("rate").load().select(*columns, F.lit(None).cast("binary").alias(ASIDE))


def _columns(view: View, stream: Stream, rows: DataFrame) -> pa.Schema:
    """The columns after a stream's steps, as Arrow has them; each step is checked as it will be run."""
    fields = projected_fields(stream.spec)
    plain = rows.select(*fields)
    for number, (step, place) in enumerate(zip(stream.steps, stream.places, strict=True), 1):
        with placed(place or place_of(view.function), view.name, plain.columns):
            plain = plain_step(plain, step)
            _require_streamable(project(rows, fields, [(stream.steps[:number], ())]), "Append")
    found = to_arrow_schema(plain.schema, timezone="UTC")
    known = rows_schema(stream.spec)
    return pa.schema([*found, *(field for field in known if field.name in ROW_STAMPS)])


def _require_streamable(frame: DataFrame, output_mode: str) -> None:
    """Raises what Spark would raise when a query of this DataFrame is started."""
    jvm: Any = frame.sparkSession._jvm
    mode = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, output_mode)()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    checker.checkForStreaming(frame._jdf.queryExecution().analyzed(), mode)
