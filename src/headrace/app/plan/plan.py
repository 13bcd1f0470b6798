"""What a plan of an application is made of, and all of planning that needs no Spark."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.app.application import App, View
from headrace.app.diagnostics.mistakes import placed
from headrace.app.diagnostics.places import place_of
from headrace.app.stream import Aggregation, Stream
from headrace.errors import ConfigError
from headrace.nearest import no_such
from headrace.streams import StreamSpec, rows_schema
from headrace.streams.engine import ROW_STAMPS, StreamPlan, ViewPlan
from headrace.streams.operators import LatestOperator, Sliding
from headrace.views import ViewSchema

if TYPE_CHECKING:
    from headrace.streams.engine import Step

__all__ = ["PlannedStream", "PlannedView", "Results", "plan_stream", "plan_view", "stream_of", "topics_used"]

Results = Mapping[str, tuple[View, Any]]

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
    def steps(self) -> "tuple[Step, ...]":
        """What Spark computes before the windows."""
        return stream_of(self.result).steps


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStream:
    """One query: a stream and the views on it.

    `followers` are the queries that read topics of rows which this one makes.
    """

    stream: Stream
    views: tuple[PlannedView, ...]
    followers: "tuple[PlannedStream, ...]" = ()

    @property
    def name(self) -> str:
        return self.stream.spec.topic

    def plan(self, buckets: int, spec: StreamSpec | None = None) -> StreamPlan:
        """For the engine; `spec` is the stream's as one query reads it."""
        views = tuple(each.plan for each in self.views)
        followers = tuple(each.plan(buckets) for each in self.followers if each.stream.spec.follows_maker)
        return StreamPlan(spec=spec or self.stream.spec, views=views, buckets=buckets, followers=followers)


def stream_of(result: Aggregation | Stream) -> Stream:
    """The stream behind what a view function returned."""
    if isinstance(result, Stream):
        return result
    assert isinstance(result.stream, Stream)
    return result.stream


def topics_used(app: App, results: Results) -> Iterator[str]:
    """The topics that views read, in the order of their declaration; a plain DataFrame reads by itself."""
    used = {
        stream_of(result).spec.topic
        for _, result in results.values()
        if isinstance(result, Stream)
        or (isinstance(result, Aggregation) and isinstance(result.stream, Stream))
    }
    return (topic for topic in app.streams if topic in used)


def plan_stream(stream: Stream, results: Results) -> PlannedStream:
    """A stream with all its views, none of which has steps; raises ConfigError naming view and column."""
    views = [
        plan_view(view, result, rows_schema(stream.spec))
        for view, result in results.values()
        if stream_of(result).spec.topic == stream.spec.topic
    ]
    return PlannedStream(stream=stream, views=tuple(views))


def plan_view(view: View, result: Aggregation | Stream, rows: pa.Schema) -> PlannedView:
    """A view on rows of these columns, which are those behind its steps.

    Raises ConfigError with the place in the user's file, the view and the column.
    """
    with placed(place_of(view.function), view.name):
        if view.last is not None and (not view.key or not isinstance(result, Stream)):
            raise ConfigError("last= says which row of a key is shown: for a view of a stream, with key=")
        if isinstance(result, Stream):
            return _plan_rows(view, result, rows)
    with placed(result.place or place_of(view.function), view.name):
        return _plan_windows(view, result, rows)


def _plan_windows(view: View, result: Aggregation, rows: pa.Schema) -> PlannedView:
    operator = result.operator(keep_closed_us=_KEEP_CLOSED_US)
    wanted = dict.fromkeys(
        [*operator.keys, *(name for _, each in operator.aggregates for name in each.columns())]
    )
    for name in wanted:
        if name not in rows.names:
            raise ConfigError(no_such("column", name, _own(rows)))
    plan = ViewPlan(name=view.name, columns=tuple(wanted), operator=operator)
    columns = operator.result_schema(rows)
    key = _window_key(result)
    if view.key and set(view.key) - {*key, "window"}:
        raise ConfigError(f"the key of a windowed view is {', '.join(key)}")
    return PlannedView(
        view=view, result=result, plan=plan, schema=ViewSchema(view.name, key, columns, keep_changes=10_000)
    )


def _window_key(result: Aggregation) -> tuple[str, ...]:
    keys = result.windowed.keys
    if isinstance(result.windowed.window, Sliding):
        return (*keys, "window_end", *_RECORD_KEY)
    return (*keys, "window_start", "window_end")


def _own(rows: pa.Schema) -> list[str]:
    """What a user would name: the columns of the schema and of the steps."""
    return [name for name in rows.names if not name.startswith("_")]


def _plan_rows(view: View, stream: Stream, rows: pa.Schema) -> PlannedView:
    """A view of rows as they are; without a key, every record is a row of its own."""
    for name in view.key:
        if name not in rows.names:
            raise ConfigError("its key: " + no_such("column", name, _own(rows)))
    own = [field for field in rows if field.name not in ROW_STAMPS]
    place = [] if view.key else [pa.field("_partition", pa.int32()), pa.field("_offset", pa.int64())]
    schema = ViewSchema(view.name, view.key or _RECORD_KEY, pa.schema([*own, *place]), keep_changes=10_000)
    columns = tuple(field.name for field in own)
    latest = None
    if view.key and view.topic is None:
        latest = LatestOperator(keys=view.key, columns=columns)
    plan = ViewPlan(name=view.name, columns=columns, latest=latest)
    return PlannedView(view=view, result=stream, plan=plan, schema=schema)
