"""Why a row of a view is as it is: the records behind it; and which rows a record has touched.

Both recompute the view from the log by its batch definition, as `headrace verify` does, with the records
that each row is made of. So the answer is that of the definition, for windows, groups and joins alike, over
the records that the served view reflects.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know

from headrace.app.application import App
from headrace.app.options import RunOptions
from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.plan.planner import AppPlan, PlannedStream, PlannedView
from headrace.app.projected import projection_stores
from headrace.app.query.checkpoint import BUCKETS, Manifest
from headrace.app.query.places import graph_folder
from headrace.app.query.sinks import ignore
from headrace.app.query.stores import store_url
from headrace.app.verify.command import log_of, planned_app
from headrace.app.verify.recompute import graph_as_read, require_whole_log, stream_as_read
from headrace.client import Connection, RawFetcher
from headrace.errors import RequestError
from headrace.nearest import no_such
from headrace.records import EVENT_PREFIX, Record, iterate_batch, read_header, read_headers
from headrace.sourcing import Topics
from headrace.sourcing.projections import traced_projection
from headrace.streams import NO_WATERMARK
from headrace.streams.dataflow import RECORDS, record_column, traced_view, traced_windows, why_not_replayed
from headrace.streams.engine import replayed_rows
from headrace.streams.operators import recompute_latest
from headrace.views import (
    Selection,
    Snapshot,
    ViewSchema,
    dumps,
    open_store,
    parse_condition,
    rows_to_json,
    select,
)

__all__ = ["Affected", "Reason", "RecordBehind", "RecordPlace", "affected_rows", "reason_of", "shown_value"]


class RecordPlace(NamedTuple):
    """Where a record is on the log."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def parse(cls, text: str) -> "RecordPlace":
        topic, partition, offset = text.rsplit(":", 2)
        return cls(topic, int(partition), int(offset))

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True, slots=True)
class RecordBehind:
    """A record that a row is made of; None for `record` if the log no longer has it.

    `event` has what an entity's event tells of its command: type, version, command, by, cause.
    """

    place: RecordPlace
    record: Record | None
    event: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reason:
    """A row as it is served, and the records behind it: how many, and the first of them by place."""

    view: str
    row: Mapping[str, Any]
    count: int
    records: Sequence[RecordBehind]


@dataclass(frozen=True, slots=True)
class Affected:
    """A row that a record is behind."""

    view: str
    key: Mapping[str, Any]


def reason_of(app: App, options: RunOptions, view: str, key: Sequence[tuple[str, str]], limit: int) -> Reason:
    """The records behind the one row whose columns have these values.

    Raises RequestError if no row or several have them, or the view cannot be recomputed.
    """
    if view in app.projections:
        with log_of(options) as (connection, options):
            return _reason(_projected(app, view, options, connection), connection, key, limit)
    with planned_app(app, options) as (spark, plan, connection, options):
        found = {each.name: each for each in _views(spark, plan, options, connection)}
        if view not in found:
            raise RequestError(f"{app.name}: {no_such('view', view, [*found, *app.projections])}")
        return _reason(found[view], connection, key, limit)


def _reason(
    traced: "_TracedView", connection: Connection, key: Sequence[tuple[str, str]], limit: int
) -> Reason:
    served = traced.served()
    row = _one_row(traced.name, traced.schema, served, key)
    wanted = dumps([row[name] for name in traced.schema.key])
    places: set[str] = set()
    for each in _traced_rows(traced, served):
        if dumps([each[name] for name in traced.schema.key]) == wanted:
            places.update((each[RECORDS] or "").split("\n"))
    if not places:
        raise RequestError(
            f"{traced.name}: the log does not give the row that is served; see `headrace verify`"
        )
    behind = sorted(map(RecordPlace.parse, places - {""}))
    with RawFetcher(connection) as fetcher:
        records = [_behind(fetcher, place) for place in behind[:limit]]
    return Reason(traced.name, row, len(behind), records)


def affected_rows(
    app: App, options: RunOptions, place: RecordPlace, *, on_message: Callable[[str], None] = ignore
) -> Iterator[Affected]:
    """The rows of all views that a record is behind; what cannot be recomputed is told of."""
    has_reader = False
    if app.projections:
        with log_of(options) as (connection, read):
            for name in app.projections:
                projected = _projected(app, name, read, connection)
                if place.topic in projected.topics:
                    has_reader = True
                    yield from _affected(projected, place, on_message)
    if app.views:
        with planned_app(app, options) as (spark, plan, connection, options):
            for view in _views(spark, plan, options, connection):
                if place.topic in view.topics:
                    has_reader = True
                    yield from _affected(view, place, on_message)
    if not has_reader:
        raise RequestError(f"{app.name}: no view reads topic {place.topic!r}")


def _affected(
    view: "_TracedView", place: RecordPlace, on_message: Callable[[str], None]
) -> Iterator[Affected]:
    wanted = str(place)
    try:
        served = view.served()
        if served.reflected.offsets.get(place.topic, {}).get(place.partition, 0) <= place.offset:
            on_message(f"{view.name}: does not reflect {wanted} yet, or there is no such record")
            return
        for row in _traced_rows(view, served):
            if wanted in (row[RECORDS] or "").split("\n"):
                yield Affected(view.name, {name: row[name] for name in view.schema.key})
    except RequestError as error:
        on_message(f"{view.name}: {error}")


# --- views ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TracedView:
    """A view that can be read as it is served, and recomputed with the records behind its rows."""

    name: str
    schema: ViewSchema
    topics: frozenset[str]
    served: Callable[[], Snapshot]
    trace: Callable[[Snapshot], pa.Table]


def _projected(app: App, name: str, options: RunOptions, connection: Connection) -> _TracedView:
    """A projection, whose rows are made of events without Spark."""
    projection, url = app.projections[name], projection_stores(app, options.data)[name]
    topic = Topics.of(app.name, projection.kind.name).events

    def trace(served: Snapshot) -> pa.Table:
        ends = served.reflected.offsets.get(topic, {})
        rows, places = traced_projection(projection, app.name, connection, ends)
        return rows.append_column(RECORDS, pa.array(["\n".join(each) for each in places], pa.string()))

    return _TracedView(
        name, projection.schema, frozenset({topic}), partial(_served, url, name, connection), trace
    )


def _served(url: str, name: str, connection: Connection) -> Snapshot:
    with contextlib.closing(open_store(url, connection=connection)) as store:
        return store.snapshot(name)


def _views(
    spark: SparkSession, plan: AppPlan, options: RunOptions, connection: Connection
) -> Iterator[_TracedView]:
    def reader(planned: PlannedView | PlannedGraph) -> Callable[[], Snapshot]:
        url = store_url(plan, planned, options.data)
        assert url is not None
        return partial(_served, url, planned.view.name, connection)

    for flow in plan.graphs:
        topics = frozenset(each.spec.topic for each in flow.graph.sources)
        trace = _graph_tracer(spark, flow, options, connection)
        yield _TracedView(flow.view.name, flow.schema, topics, reader(flow), trace)
    for planned in plan.streams:
        for number, view in enumerate(planned.views):
            if store_url(plan, view, options.data) is not None:
                tracer = _stream_tracer(spark, planned, number, options, connection)
                topic = planned.stream.spec.topic
                yield _TracedView(view.view.name, view.schema, frozenset({topic}), reader(view), tracer)


def _graph_tracer(
    spark: SparkSession, planned: PlannedGraph, options: RunOptions, connection: Connection
) -> Callable[[Snapshot], pa.Table]:
    def trace(served: Snapshot) -> pa.Table:
        unknown = why_not_replayed(planned.graph)
        if unknown is not None:
            raise RequestError(f"{planned.view.name} cannot be recomputed: {unknown}")
        manifest = Manifest.read(graph_folder(options.data, planned.view.name))
        graph = graph_as_read(planned, served.reflected, connection, manifest)
        reflected = served.reflected
        frame = traced_view(
            spark,
            graph,
            planned.steps,
            connection=connection,
            ends=reflected.offsets,
            watermarks=reflected.watermarks,
        )
        return frame.toArrow()

    return trace


def _stream_tracer(
    spark: SparkSession, planned: PlannedStream, number: int, options: RunOptions, connection: Connection
) -> Callable[[Snapshot], pa.Table]:
    view = planned.views[number]

    def trace(served: Snapshot) -> pa.Table:
        manifest = Manifest.read(options.query_folder(planned.name))
        spec = stream_as_read(planned, view, served.reflected, manifest)
        end = served.reflected.offsets.get(planned.name, {})
        require_whole_log(spec, end, connection)
        plan = planned.plan(BUCKETS, spec)
        rows = replayed_rows(spark, plan, number, view.steps, connection=connection, end=end)
        rows = rows.withColumn(RECORDS, record_column(spec.topic))
        if view.plan.operator is not None:
            reached = served.reflected.watermark_us
            return traced_windows(
                view.plan.operator, rows, NO_WATERMARK if reached is None else reached
            ).toArrow()
        if view.plan.latest is not None:
            latest = view.plan.latest
            return recompute_latest(replace(latest, columns=(*latest.columns, RECORDS)), rows.toArrow())
        return rows.orderBy(F.asc("_partition"), F.asc("_offset")).toArrow()

    return trace


def _traced_rows(view: _TracedView, served: Snapshot) -> list[dict[str, Any]]:
    """The rows by the definition, in the view's types; of several with one key, the one that is shown."""
    traced = view.trace(served)
    schema, key_names = view.schema.columns, view.schema.key
    columns = {each.name: traced[each.name].cast(each.type) for each in schema}
    rows = rows_to_json(pa.table({**columns, RECORDS: traced[RECORDS]}))
    shown = {
        dumps([row[name] for name in key_names]): row
        for row in rows_to_json(served.rows.select(schema.names))
    }
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        key = dumps([row[name] for name in key_names])
        own = {name: row[name] for name in schema.names}
        if key in shown and (own == shown[key] or key not in found):
            found[key] = row
    return list(found.values())


def _one_row(
    view: str, schema: ViewSchema, served: Snapshot, key: Sequence[tuple[str, str]]
) -> Mapping[str, Any]:
    columns = list(schema.columns.names)
    conditions = [parse_condition(columns, name, value) for name, value in key]
    found = select(served.rows, Selection.of(schema, conditions))
    rows = rows_to_json(found.select(columns))
    given = ", ".join(f"{name}={value}" for name, value in key)
    if not rows:
        raise RequestError(f"{view} has no row with {given or 'anything'}")
    if len(rows) > 1:
        raise RequestError(
            f"{len(rows):,} rows of {view} have {given or 'no condition'}; give more of the key"
        )
    return rows[0]


# --- records --------------------------------------------------------------------------------------


def _behind(fetcher: RawFetcher, place: RecordPlace) -> RecordBehind:
    record = _record_at(fetcher, place)
    headers = {} if record is None else read_headers(record.headers, EVENT_PREFIX)
    return RecordBehind(place, record, headers)


def _record_at(fetcher: RawFetcher, place: RecordPlace) -> Record | None:
    for run in fetcher.fetch(place.topic, place.partition, place.offset, place.offset + 1):
        position = 0
        while position < len(run):
            for record in iterate_batch(run, position):
                if record.offset == place.offset:
                    return record
            position += read_header(run, position).size_bytes
    return None


def shown_value(record: Record | None) -> Any:
    """The value of a record for people: JSON if it is, else text."""
    if record is None or record.value is None:
        return None
    try:
        return orjson.loads(record.value)
    except ValueError:
        return record.value.decode(errors="replace")
