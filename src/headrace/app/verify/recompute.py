"""The proof: a view recomputed from the log, in batch, and held against what is served."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.plan.planner import PlannedStream, PlannedView
from headrace.app.query.checkpoint import BUCKETS, FORMAT, Manifest
from headrace.app.query.graphs import specs_of
from headrace.app.query.sinks import BY_CLOCK, HIDDEN, row_changes
from headrace.client import EARLIEST, Connection, RawFetcher
from headrace.errors import RequestError
from headrace.sourcing import Topics
from headrace.sourcing.projections import Projection, replayed_projection
from headrace.streams import NO_WATERMARK, PROCESSING_TIME, Start, StreamSpec, parse_start
from headrace.streams.dataflow import Graph, comparable_versions, replayed_view
from headrace.streams.engine import replayed_results, replayed_rows
from headrace.streams.operators import TableHistory, recompute_latest
from headrace.views import Reflected, Snapshot, ViewSchema, ViewStore, dumps, net_changes, rows_as_changes
from headrace.views.rebuilt import differing_rows

__all__ = [
    "KeyDifference",
    "Verdict",
    "compare",
    "compare_in_spark",
    "graph_as_read",
    "require_as_written",
    "require_whole_log",
    "stream_as_read",
    "verify_graph",
    "verify_projection",
    "verify_view",
]

_ROWS_AT_ONCE = 50_000
_MOST_DIFFERENCES = 100_000
_DIFFERENCES = pa.schema([(name, pa.string()) for name in ("key", "served", "recomputed")])


@dataclass(frozen=True, slots=True)
class KeyDifference:
    """One key on which view and log disagree; None where there is no row."""

    key: Mapping[str, Any]
    served: Mapping[str, Any] | None
    recomputed: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What was found of one view; `failure` says why it could not be compared, and None if it was."""

    view: str
    rows: int = 0
    differences: tuple[KeyDifference, ...] = ()
    reflected: Reflected = field(default_factory=Reflected)
    failure: str | None = None

    @property
    def is_equal(self) -> bool:
        return self.failure is None and not self.differences

    @property
    def hidden(self) -> int:
        """How many rows are not shown, because another one has the view's key."""
        return sum(each.get(HIDDEN, 0) for each in self.reflected.inputs.values())


def verify_view(
    spark: SparkSession,
    planned: PlannedStream,
    number: int,
    store: ViewStore,
    connection: Connection,
    *,
    manifest: Manifest | None = None,
    done: int = -1,
) -> Verdict:
    """Recomputes one view from the records it reflects, and compares, row by row and bit by bit.

    `manifest` is that of the stream's query, and says where it began; `done` is the last batch that
    its checkpoint knows to be done.

    Raises RequestError where that cannot be done: on processing time, when the log no
    longer has all the records, or when nobody knows which they were.
    """
    view = planned.views[number]
    served = store.snapshot(view.view.name)
    require_as_written(view.schema, served, manifest, done)
    end = served.reflected.offsets.get(planned.name, {})
    spec = stream_as_read(planned, view, served.reflected, manifest)
    require_whole_log(spec, end, connection)
    recomputed = _recompute(spark, planned, number, connection, end, served.reflected, spec)
    differences = tuple(compare(view, served.rows, recomputed))
    return Verdict(
        view=view.view.name, rows=served.rows.num_rows, differences=differences, reflected=served.reflected
    )


def verify_graph(
    spark: SparkSession,
    planned: PlannedGraph,
    store: ViewStore,
    connection: Connection,
    *,
    manifest: Manifest | None,
    done: int = -1,
) -> Verdict:
    """Recomputes a dataflow's view by its batch definition from the records it reflects, and compares.

    Raises RequestError where that cannot be done, as `verify_view` does.
    """
    name = planned.view.name
    served = store.snapshot(name)
    require_as_written(planned.schema, served, manifest, done)
    graph = graph_as_read(planned, served.reflected, connection, manifest)
    frame = replayed_view(
        spark,
        graph,
        planned.steps,
        connection=connection,
        ends=served.reflected.offsets,
        watermarks=served.reflected.watermarks,
    )
    differences = compare_in_spark(spark, planned, served, frame)
    by_clock = sum(each.get(what, 0) for each in served.reflected.inputs.values() for what in BY_CLOCK)
    failure = _by_clock(len(differences), by_clock) if differences and by_clock else None
    return Verdict(
        view=name,
        rows=served.rows.num_rows,
        differences=differences,
        reflected=served.reflected,
        failure=failure,
    )


def verify_projection(app: str, projection: Projection, store: ViewStore, connection: Connection) -> Verdict:
    """Makes a projection's rows from the events that it reflects, and compares.

    Raises RequestError where that cannot be done: other code made the rows, or events are gone.
    """
    name = projection.name
    if name not in store.views():
        raise RequestError(f"{name} has not been built yet; serve the application")
    served = store.snapshot(name)
    made_by = served.reflected.query_id or projection.fingerprint()
    if made_by.partition(".")[0] != projection.fingerprint():
        raise RequestError(
            f"{name} was made by other code than the application has now: serve the application, which makes "
            "it anew, and verify then"
        )
    ends = served.reflected.offsets.get(Topics.of(app, projection.kind.name).events, {})
    recomputed = replayed_projection(projection, app, connection, ends)
    names = projection.schema.columns.names
    differences = differing_rows(projection.key, served.rows.select(names), recomputed.select(names))
    return Verdict(
        view=name,
        rows=served.rows.num_rows,
        differences=tuple(KeyDifference(*each) for each in differences),
        reflected=served.reflected,
    )


def graph_as_read(
    planned: PlannedGraph, reflected: Reflected, connection: Connection, manifest: Manifest | None
) -> Graph:
    """The graph as the query read it that made what is served: above all, from where.

    Raises RequestError if that is not known, or the log no longer has it.
    """
    name = planned.view.name
    if manifest is None or reflected.query_id not in (None, manifest.query_id):
        raise RequestError(
            f"where the query began that made {name} as it is served is not known: its manifest is gone, or "
            "of another query. Run the application with --rebuild"
        )
    specs = specs_of(planned, manifest)
    for topic, spec in specs.items():
        require_whole_log(spec, reflected.offsets.get(topic, {}), connection)
    sources = tuple(
        replace(each, spec=replace(specs[each.spec.topic], letters_of=())) for each in planned.graph.sources
    )
    if not reflected.watermarks and reflected.watermark_us is not None:
        raise RequestError(
            f"how far event time had come in the topics of {name} is not known: an older version wrote "
            "the view. Let the application run for another batch, and verify then"
        )
    return replace(planned.graph, sources=sources)


def require_as_written(schema: ViewSchema, served: Snapshot, manifest: Manifest | None, done: int) -> None:
    """Raises RequestError where a store does not have what the view's query, as it is now, would write.

    That is, where it has lost batches that were done, has other columns than the application declares, or
    was written by a version whose results were not all the same.
    """
    reflected = served.reflected
    if manifest is not None and manifest.format < FORMAT:
        raise RequestError(
            f"{schema.name} was built by an older version of Headrace (format {manifest.format}, now "
            f"{FORMAT}), which decided some late records differently. Run the application with --rebuild"
        )
    is_of_query = manifest is not None and reflected.query_id in (None, manifest.query_id)
    if is_of_query and reflected.batch_id < done:
        raise RequestError(
            f"{schema.name} shows batch {reflected.batch_id} of its query, which has done {done}: its store "
            "was emptied or replaced. Run the application with --rebuild"
        )
    if reflected.query_id is not None and set(schema.columns.names) != set(served.rows.column_names):
        raise RequestError(
            f"the application declares {schema.name} with the columns {', '.join(schema.columns.names)}, and "
            f"it is served with {', '.join(served.rows.column_names)}: it changed since it was last run. Run "
            "it with --rebuild, or --rebuild-view for a view over several topics, or undo the change"
        )


def _by_clock(keys: int, rows: int) -> str:
    return (
        f"{keys} keys differ, and {rows} rows came from partitions that had been taken for idle, when what "
        "they belong to was gone. What became of them depends on the clock, "
        "so the log alone cannot prove the view"
    )


def compare_in_spark(
    spark: SparkSession, view: PlannedGraph, snapshot: Snapshot, recomputed: DataFrame
) -> tuple[KeyDifference, ...]:
    """The keys on which the two differ, of many the first; a part of the keys is in memory at a time."""
    columns, key, served = view.schema.columns, view.schema.key, snapshot.rows
    shown = spark.createDataFrame(served)
    if view.is_stream or view.picks_rows:
        recomputed = _one_of_a_key(spark, view.schema, served, recomputed)
    last = view.graph.nodes[-1].operator if view.graph.nodes else None
    if isinstance(last, TableHistory):
        reached = min(snapshot.reflected.watermarks.values(), default=NO_WATERMARK)
        shown, recomputed = comparable_versions(last, shown, recomputed, reached)
    recomputed = recomputed.select(*[f"`{each}`" for each in columns.names])
    parts = max(8, served.num_rows // _ROWS_AT_ONCE)
    part = F.pmod(F.hash(*[F.col(f"`{each}`") for each in key]), F.lit(parts)).alias("_part")

    def differing(ours: pa.Table, theirs: pa.Table) -> pa.Table:
        tables = [each.select(columns.names).cast(columns) for each in (ours, theirs)]
        found = [map(dumps, (one.key, one.served, one.recomputed)) for one in _differences(key, *tables)]
        rows = [dict(zip(_DIFFERENCES.names, each, strict=True)) for each in found]
        return pa.Table.from_pylist(rows, schema=_DIFFERENCES)

    sides = [rows.select("*", part).groupBy("_part") for rows in (shown, recomputed)]
    frame = sides[0].cogroup(sides[1]).applyInArrow(differing, from_arrow_schema(_DIFFERENCES))
    rows = frame.orderBy("key").limit(_MOST_DIFFERENCES).toArrow().to_pylist()
    return tuple(KeyDifference(*(json.loads(row[name]) for name in _DIFFERENCES.names)) for row in rows)


def _one_of_a_key(spark: SparkSession, schema: ViewSchema, served: pa.Table, rows: DataFrame) -> DataFrame:
    """Of a stream's rows with one key the last, by event time, partition and offset.

    Where that record has several rows, it is the one that is served, if that is among them. Of a table's
    they are the first ones by now, which have no place in time.
    """
    names = schema.columns.names
    shown = spark.createDataFrame(served.select(names)).toDF(*[f"_served_{name}" for name in names])
    same = {name: F.col(f"`{name}`").eqNullSafe(F.col(f"`_served_{name}`")) for name in names}
    beside = rows.join(shown, reduce(and_, [same[name] for name in schema.key]), "left")
    comparable = [same[each.name] for each in schema.columns if not pa.types.is_map(each.type)]
    places = [F.desc(name) for name in ("_event_time", "_partition", "_offset")]
    first = Window.partitionBy(*[F.col(f"`{name}`") for name in schema.key]).orderBy(
        *places, F.desc(reduce(and_, comparable))
    )
    return beside.withColumn("_n", F.row_number().over(first)).where("_n = 1")


def compare(
    view: PlannedView | PlannedGraph, served: pa.Table, recomputed: pa.Table
) -> Iterator[KeyDifference]:
    """The keys on which the two tables differ."""
    names = view.schema.columns.names
    return _differences(view.schema.key, served.select(names), recomputed.select(names))


def _differences(key: Sequence[str], served: pa.Table, recomputed: pa.Table) -> Iterator[KeyDifference]:
    return (KeyDifference(*each) for each in differing_rows(key, served, recomputed))


def _recompute(
    spark: SparkSession,
    planned: PlannedStream,
    number: int,
    connection: Connection,
    end: Mapping[int, int],
    reflected: Reflected,
    spec: StreamSpec,
) -> pa.Table:
    view, plan = planned.views[number], planned.plan(BUCKETS, spec)
    if not end:
        return view.schema.columns.empty_table()
    rows = replayed_rows(spark, plan, number, view.steps, connection=connection, end=end)
    if view.plan.operator is not None:
        return replayed_results(rows, plan, number, view.schema.columns, reflected.watermark_us)
    if view.plan.latest is not None:
        changes = rows_as_changes(recompute_latest(view.plan.latest, rows.toArrow()))
    else:
        changes = row_changes(view.schema, [rows.toArrow()])
    return net_changes(view.schema, changes).rows


def stream_as_read(
    planned: PlannedStream, view: PlannedView, reflected: Reflected, manifest: Manifest | None
) -> StreamSpec:
    """The stream as the query read it that made what is served: above all, from where."""
    declared = planned.stream.spec
    if manifest is not None and reflected.query_id in (None, manifest.query_id):
        return manifest.spec(declared, is_proof=True)
    is_second_stage = manifest is not None and manifest.reads
    if parse_start(declared.start) == Start(EARLIEST) and not is_second_stage:
        return declared  # it began at 0; or else the log has no 0 now, and that is seen
    raise RequestError(
        f"where the query began that made {view.view.name} as it is served is not known: a rebuild is under "
        "way, or its manifest is gone. Verify once that is done, or run the application with --rebuild"
    )


def require_whole_log(spec: StreamSpec, end: Mapping[int, int], connection: Connection) -> None:
    """Retention may have removed what a view still reflects; then there is nothing to prove it by."""
    if spec.event_time == PROCESSING_TIME:
        raise RequestError(
            f"{spec.topic} is on processing time: when its records were processed is not in the log, "
            "so its views cannot be recomputed"
        )
    if not end:
        return
    with RawFetcher(connection) as fetcher:
        firsts = fetcher.offsets(spec.topic, EARLIEST)
    begins = dict(spec.begins)
    held = {each: min(firsts.get(each, last), last) for each, last in end.items()}
    gone = {each: first for each, first in held.items() if first > begins.get(each, 0)}
    if gone:
        places = ", ".join(f"{spec.topic}-{each} before {first}" for each, first in sorted(gone.items()))
        raise RequestError(
            f"the log no longer has {places}: retention removed them, and the view cannot be proved. "
            "Keep the records longer (retention.ms, retention.bytes) to verify"
        )
