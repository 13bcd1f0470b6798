"""Runs an application on records in memory, with a clock that only the test moves.

    with run_app(app, start="2026-01-05T09:00:00Z") as run:
        run.send("orders", {"region": "north", "amount": 5.0, "placed_at": "2026-01-05T09:00:01Z"})
        run.stop_input()
        assert run.rows("revenue_per_minute")[0]["revenue"] == 5.0

Views over several topics, such as joins, run in the same way. Everything between log and view is
what runs in production: stamping, lateness, windows, joins, counters, the sink, a store. Only the
log is a list, and time stands still. Without PySpark between the stages nothing imports Spark
and a test takes milliseconds; with `where`, `select` or `with_columns`, pass a `spark`, which
then computes the projection.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import pyarrow as pa

from headrace.app import Aggregation, App, Relation, Stream, Table, View, import_app
from headrace.app.plan import (
    PlannedGraph,
    PlannedStream,
    dead_topic,
    is_dataflow,
    late_topic,
    makers_of,
    plan_graph,
    plan_stream,
    topics_used,
    with_stages,
)
from headrace.client.write import OutputRecord
from headrace.errors import ConfigError
from headrace.records import LATE_PREFIX, STREAM_PREFIX, read_headers
from headrace.streams.operators import microseconds
from headrace.testing.application_graph import GraphRun
from headrace.testing.application_stream import StreamRun
from headrace.testing.topic_feed import RecordList, TopicFeed
from headrace.views import ViewChange, ViewStore, open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["AppRun", "SideRecord", "plan_for_test", "run_app"]

_START = "2026-01-01T00:00:00Z"
_GIVE_SPARK = (
    'give one: run_app(app, spark=local_spark("tests")), with local_spark from headrace.streams, '
    "best made once for all tests"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SideRecord:
    """A late or dead record: as it was, the reason, and the rest of its headers, as text."""

    reason: str
    key: bytes | None
    value: bytes | None
    about: Mapping[str, str]


def run_app(
    app: App | str | Path, *, start: str | datetime = _START, spark: "SparkSession | None" = None
) -> "AppRun":
    """Runs an application, or the file of one; its clock stands at `start`.

    Raises ConfigError if the application is invalid, or needs a Spark that is not given.
    """
    found = app if isinstance(app, App) else import_app(Path(app))
    streams, graphs = _planned(found, spark)
    return AppRun(found, streams, graphs, _moment_us(start), spark)


class AppRun:
    """A running application. What was sent is processed as one micro-batch at the next
    `batch`, `advance`, `stop_input` or access to a result."""

    def __init__(
        self,
        app: App,
        streams: Sequence[PlannedStream],
        graphs: Sequence[PlannedGraph],
        now_us: int,
        spark: "SparkSession | None",
    ) -> None:
        self._app = app
        self._now_us = now_us
        self._records = RecordList()
        self._store = open_store(f"memory://test-{uuid4().hex}")
        self._makers = makers_of(streams)
        self._streams = {
            each.name: StreamRun(app.name, each, self._store, self._records, now_us, spark)
            for each in streams
        }
        self._graphs = [
            GraphRun(app.name, each, self._store, self._records, now_us, spark) for each in graphs
        ]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Drops everything."""
        for view in self._store.views():
            self._store.drop(view)
        self._store.close()

    # --- input --------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        """The time of the clock."""
        return datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self._now_us)

    def send(
        self,
        topic: str,
        *values: Mapping[str, Any] | bytes | None,
        partition: int = 0,
        key: str | bytes | None = None,
        at: str | datetime | None = None,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> None:
        """Appends records to a partition: objects, which become JSON, or bytes as they are.

        Their timestamp is the clock's time, or `at`.
        """
        moment_us = self._now_us if at is None else _moment_us(at)
        for feed in self._feeds(topic):
            for value in values:
                feed.append(value, partition=partition, key=key, moment_us=moment_us, headers=tuple(headers))

    def batch(self) -> None:
        """Processes what was sent as one micro-batch; nothing happens if nothing is due.

        Records that it writes to topics that the application reads itself are processed next.
        """
        for query in self._queries:
            query.step(self._now_us)
        if self._pass_on():
            self.batch()

    def advance(self, duration: str | timedelta) -> None:
        """Lets time pass without input: partitions become idle, and event time advances when all are."""
        self.batch()
        self._now_us += microseconds(duration)
        self.batch()

    def stop_input(self) -> None:
        """Ends the input: time passes until every window has closed and no row waits for another."""
        self.batch()
        self._now_us += max(query.patience_us for query in self._queries)
        self.batch()

    # --- results ------------------------------------------------------------------------------

    def rows(self, view: str) -> list[dict[str, Any]]:
        """The view as it is now, ordered by its key; times are datetimes in UTC."""
        return self.table(view).to_pylist()  # type: ignore[no-any-return]

    def table(self, view: str) -> pa.Table:
        """The view as it is now, as Arrow."""
        return self._up_to_date().read(view)

    def changes(self, view: str) -> list[ViewChange]:
        """Everything published, in order; a correction has `before` and `after`."""
        return self._up_to_date().changes(view, limit=10_000)

    def counters(self, view: str) -> dict[str, int]:
        """How many rows were on time, corrected, dropped, …; what was never counted is left out."""
        counters = self._up_to_date().reflected(view).counters
        return {name: count for name, count in counters.items() if count}

    def inputs(self, view: str) -> dict[str, dict[str, int]]:
        """The counters of a view over several topics, by input."""
        inputs = self._up_to_date().reflected(view).inputs
        return {name: {word: count for word, count in each.items() if count} for name, each in inputs.items()}

    def watermark(self, topic: str) -> datetime | None:
        """The watermark by which the stream's windows close; None before its first record."""
        self.batch()
        if topic not in self._streams:
            raise ConfigError(self._unknown(topic, self._streams))
        found = self._streams[topic].watermark_us
        return None if found is None else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=found)

    def topic(self, name: str) -> list[OutputRecord]:
        """The records written to a topic."""
        self.batch()
        return self._records.of(name)

    @property
    def late(self) -> list[SideRecord]:
        """Records that a view dropped, with the window they missed."""
        return list(_side_records(self.topic(late_topic(self._app.name)), LATE_PREFIX))

    @property
    def dead(self) -> list[SideRecord]:
        """Records that could not be read, or came from the far future."""
        return list(_side_records(self.topic(dead_topic(self._app.name)), STREAM_PREFIX))

    def _up_to_date(self) -> ViewStore:
        self.batch()
        return self._store

    def _pass_on(self) -> bool:
        """Passes written records and watermarks to the streams that read them; False if there are none."""
        known = self._topics()
        written = [record for record in self._records.take_new() if record.topic in known]
        for record in written:
            for feed in self._feeds(record.topic):
                feed.append_written(record, self._now_us)
        advanced = [
            self._streams[name].feeds[name].tell(self._streams[maker].watermark_us)
            for name, maker in self._makers.items()
        ]
        return bool(written) or any(advanced)

    @property
    def _queries(self) -> "list[StreamRun | GraphRun]":
        return [*self._streams.values(), *self._graphs]

    def _topics(self) -> dict[str, None]:
        return dict.fromkeys(topic for query in self._queries for topic in query.feeds)

    def _feeds(self, topic: str) -> list[TopicFeed]:
        """The topic as each query that reads it has it."""
        found = [query.feeds[topic] for query in self._queries if topic in query.feeds]
        if not found:
            raise ConfigError(self._unknown(topic, self._topics()))
        return found

    def _unknown(self, topic: str, topics: Iterable[str]) -> str:
        known = ", ".join(topics) or "none"
        return f"no view of {self._app.name!r} reads a stream {topic!r}; the streams are: {known}"


def _side_records(records: Iterable[OutputRecord], prefix: str) -> Iterator[SideRecord]:
    for record in records:
        about = read_headers(record.headers, prefix)
        yield SideRecord(reason=about.pop("reason"), key=record.key, value=record.value, about=about)


def _moment_us(moment: str | datetime) -> int:
    found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return (found - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)


# --- the plan -------------------------------------------------------------------------------------


def plan_for_test(app: App, spark: "SparkSession | None") -> tuple[PlannedStream, ...]:
    """The planned streams of an application; raises ConfigError if that needs a Spark and there is none."""
    return _planned(app, spark)[0]


def _planned(
    app: App, spark: "SparkSession | None"
) -> tuple[tuple[PlannedStream, ...], tuple[PlannedGraph, ...]]:
    """The planned streams, and the planned views over several topics."""
    if spark is not None:
        from headrace.app.plan import plan_app

        plan = plan_app(app, spark)
        return plan.streams, plan.graphs
    if not app.views:
        raise ConfigError(f"application {app.name!r} has no views and no topics; declare one with @app.view")
    found = {name: (view, _result(view)) for name, view in app.views.items()}
    results = {
        name: (view, result)
        for name, (view, result) in found.items()
        if isinstance(result, Aggregation | Stream) and not is_dataflow(result)
    }
    streams = [plan_stream(app.streams[topic], results) for topic in topics_used(app, results)]
    graphs = [
        plan_graph(app.name, view, result, None)
        for view, result in found.values()
        if not isinstance(result, Stream) and is_dataflow(result)
    ]
    reading = [(each.view, {source.spec.topic for source in each.graph.sources}) for each in graphs]
    return with_stages(app, streams, reading), tuple(graphs)


def _result(view: View) -> Aggregation | Stream | Table | Relation:
    try:
        result: Any = view.function()
    except Exception as error:
        if type(error).__module__.startswith("pyspark"):
            raise ConfigError(
                f"view {view.name!r} uses PySpark and there is no Spark; {_GIVE_SPARK}"
            ) from error
        raise
    if not isinstance(result, (Aggregation, Stream, Table, Relation)):
        raise ConfigError(
            f"view {view.name!r} returns {type(result).__name__}; return a stream, a table, a join or the "
            "result of .agg(…). Views of plain DataFrames are tested on a log, with headrace.app.run"
        )
    if _has_steps(result):
        raise ConfigError(
            f"view {view.name!r} has where, select or with_columns, which Spark computes; {_GIVE_SPARK}"
        )
    return result


def _has_steps(result: Aggregation | Stream | Table | Relation) -> bool:
    rows = result.stream if isinstance(result, Aggregation) else result
    inputs = rows.inputs if isinstance(rows, Relation) else ()
    return bool(rows.steps) or any(map(_has_steps, inputs))
