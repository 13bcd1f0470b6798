"""From a plan to queries that run: topics, checkpoints, stores and sinks, in that order."""

import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.app.options import RunOptions
from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.plan.names import dead_topic, frame_query, late_topic
from headrace.app.plan.planner import AppPlan, PlannedFrame, PlannedStream
from headrace.app.plan.topology import row_topics
from headrace.app.query.checkpoint import (
    Manifest,
    QueryState,
    SideProgress,
    Spread,
    UrlCheckpoints,
    buckets_for,
    fence_slots,
    last_begun,
    ready_manifests,
    record_sink_name,
    with_slots,
)
from headrace.app.query.frames import FrameSink, frame_folder, ready_frames, start_frame
from headrace.app.query.graphs import GraphProgress, ready_graphs, specs_of
from headrace.app.query.places import graph_folder
from headrace.app.query.sinks import (
    BatchOutput,
    BatchRecords,
    GraphRecords,
    GraphSink,
    GraphTaskSink,
    SlotRecords,
    StagedView,
    StreamSink,
    TaskSink,
    ViewWriter,
    staged_views,
    stager_of,
)
from headrace.app.query.stores import OpenedStores, open_stores, store_urls
from headrace.app.run.failures import NotedSink, QueryStart
from headrace.app.run.ownership import Ownership
from headrace.app.run.resting import QueryRest
from headrace.app.status.batch_report import BatchReport
from headrace.client import LARGE_RECORD_CONFIGS, Connection
from headrace.client.topics import TopicSettings
from headrace.client.write import RecordSink
from headrace.errors import ConfigError
from headrace.streams import StreamSpec
from headrace.streams.dataflow import GraphQuery, start_graph
from headrace.streams.engine import BatchGate, CheckpointRecords, StreamQuery, start_stream
from headrace.streams.feed import FeedOptions, GroupProgress
from headrace.streams.spark import is_local, shuffle_partitions
from headrace.views import LimitedStore, StagingStore, written_epoch

__all__ = ["Launched", "Launcher"]

_ASIDE = TopicSettings(partitions=1, configs=LARGE_RECORD_CONFIGS)


@dataclass(frozen=True, slots=True)
class Launched:
    """What one start, or one rebuild, has prepared: stores, and what starts each query from its checkpoint.

    `specs` are the streams as these queries read them, and `graph_specs` the topics of each dataflow,
    by the name of its query.
    """

    opened: OpenedStores
    specs: Mapping[str, StreamSpec]
    graph_specs: Mapping[str, Mapping[str, StreamSpec]]
    starts: Mapping[str, QueryStart]


@dataclass(frozen=True, slots=True)
class Launcher:
    """Prepares an application's queries, at the start and for every rebuild."""

    spark: SparkSession
    plan: AppPlan
    connection: Connection
    options: RunOptions
    on_batch: Callable[[BatchReport], None]
    on_step: Callable[[str], None]
    ownership: Ownership
    say: Callable[[str], None]
    checkpoints: UrlCheckpoints | None = None

    def launch(
        self,
        cleanup: contextlib.ExitStack,
        *,
        rebuild: bool,
        rebuild_views: Collection[str] = (),
        progress: Mapping[str, SideProgress] | None = None,
    ) -> Launched:
        """Stores and queries, which `cleanup` closes; with `rebuild`, all checkpoints are dropped first.

        Otherwise those of `rebuild_views` are, which are dataflows: each has a query of its own.

        `progress` says which dead and late records are on their topics already.

        Raises ConfigError if a checkpoint does not fit and may not be dropped, and FencedError
        if a newer run of the application has taken over from this one.
        """
        plan, options = self.plan, self.options
        _require_dataflows(plan, rebuild_views)
        at_url = self.checkpoints
        is_first = not self.ownership.has_claimed
        if at_url is not None and is_first:
            at_url.pull()
        spread = None if at_url is None else _as_it_is
        manifests, frames, graphs = self._ready(rebuild, rebuild_views, progress, spread)
        self._claim()
        if at_url is not None:
            at_url.claimed(self.ownership.owner.epoch)
            if is_first:  # once more, for what the run before this one has written last
                at_url.pull()
                manifests, frames, graphs = self._ready(rebuild, rebuild_views, progress, at_url.spread)
        manifests = {
            name: with_slots(each, options.query_folder(name), self._wanted_slots(), self.say)
            for name, each in manifests.items()
        }
        graphs = {
            name: with_slots(each, graph_folder(options.data, name), self._wanted_slots(), self.say)
            for name, each in graphs.items()
        }
        if at_url is not None:
            folders = [options.query_folder(name) for name in manifests]
            folders += [graph_folder(options.data, name) for name in graphs]
            at_url.publish(folders)
        ids = {view.view.name: manifests[each.name].query_id for each in plan.streams for view in each.views}
        ids |= {name: manifest.query_id for name, manifest in (*frames.items(), *graphs.items())}
        specs = {each.name: manifests[each.name].spec(each.stream.spec) for each in plan.streams}
        graph_specs = {each.view.name: specs_of(each, graphs[each.view.name]) for each in plan.graphs}
        opened = open_stores(
            plan,
            options,
            self.connection,
            ids,
            specs,
            graph_specs,
            cleanup,
            self.say,
            epoch=self.ownership.owner.epoch,
        )
        starter = _Starter(
            self.spark,
            plan.app.name,
            self.connection,
            options,
            opened.writers,
            cleanup,
            self.on_batch,
            self.on_step,
            self.ownership,
            at_url,
            self._tasks(),
            self._wanted_slots() > 0,
        )
        starts = {each.name: starter.prepare(each, manifests[each.name]) for each in plan.streams}
        starts |= {
            frame_query(each.view.name): starter.prepare_frame(each, frames[each.view.name])
            for each in plan.frames
        }
        starts |= {each.name: starter.prepare_graph(each, graphs[each.view.name]) for each in plan.graphs}
        by_query = {each.name: graph_specs[each.view.name] for each in plan.graphs}
        return Launched(opened, specs, by_query, starts)

    def _tasks(self) -> int | None:
        """As many as the cluster runs at a time; None on a local Spark."""
        context = self.spark.sparkContext
        return None if is_local(context.master) else int(context.defaultParallelism)

    def _wanted_slots(self) -> int:
        """As many tasks as Spark runs at a time; none where the driver is to write everything."""
        default = "driver" if self._tasks() is None else "executors"
        writes = (self.options.sinks or default) == "executors"
        return int(self.spark.sparkContext.defaultParallelism) if writes else 0

    def _ready(
        self,
        rebuild: bool,
        rebuild_views: Collection[str],
        progress: Mapping[str, SideProgress] | None,
        spread: Spread | None,
    ) -> tuple[dict[str, Manifest], dict[str, Manifest], dict[str, Manifest]]:
        """The manifests of streams, frames and dataflows, held against the checkpoints that there are."""
        plan, options = self.plan, self.options
        new_buckets = buckets_for(self._tasks())
        manifests = ready_manifests(
            plan,
            options,
            self.connection,
            rebuild=rebuild,
            progress=progress,
            new_buckets=new_buckets,
            say=self.say,
            spread=spread,
        )
        frames = ready_frames(plan, options.data, rebuild=rebuild)
        graphs = ready_graphs(
            plan.graphs,
            options.data,
            self.connection,
            rebuild=lambda view: rebuild or view in rebuild_views,
            makers={topic: manifests[each.name] for each in plan.streams for topic in row_topics(each)},
            progress=progress,
            buckets=options.buckets,
            new_buckets=new_buckets,
            say=self.say,
            spread=spread,
        )
        return manifests, frames, graphs

    def _highest_epoch(self) -> int:
        """That of the last run which has put anything into an object store."""
        stores = set(store_urls(self.plan, self.options.data).values())
        found = [written_epoch(each) for each in stores]
        return max([*found, 0 if self.checkpoints is None else self.checkpoints.highest_epoch()])

    def _claim(self) -> None:
        """Only once the checkpoints are known to fit: a start that is refused must not stop another run."""
        before = self.ownership.claim(self._highest_epoch)
        if before is not None:
            self.say(
                f"{self.plan.app.name} was last run in {before}: this run takes over, "
                "and that one stops if it is still running"
            )


def _as_it_is(folder: Path, manifest: Manifest, state: QueryState, buckets: int) -> Manifest:
    """Before this run owns the application, it may not spread state that is not its own."""
    del folder, state, buckets
    return manifest


def _require_dataflows(plan: AppPlan, views: Collection[str]) -> None:
    """Raises ConfigError if a view cannot be built anew alone, since it shares its query."""
    own = [each.view.name for each in plan.graphs]
    for name in views:
        if name not in own:
            raise ConfigError(
                f"view {name!r} cannot be rebuilt alone: only views over several topics have a query of "
                f"their own ({', '.join(own) or 'there are none'}), and projections. Run with "
                "--rebuild to rebuild all views"
            )


@dataclass(slots=True)
class _Starter:
    """Starts queries, and restarts them."""

    spark: SparkSession
    app_name: str
    connection: Connection
    options: RunOptions
    stores: Mapping[str, ViewWriter]
    cleanup: contextlib.ExitStack
    on_batch: Callable[[BatchReport], None]
    on_step: Callable[[str], None]
    ownership: Ownership
    checkpoints: UrlCheckpoints | None
    tasks: int | None
    tasks_write: bool

    def prepare(self, planned: PlannedStream, manifest: Manifest) -> QueryStart:
        """What starts the query from its checkpoint, now and after each failure."""
        name = record_sink_name(self.app_name, planned)
        records = self._records(name, manifest, self.options.query_folder(planned.name))
        fence_slots(name, self.connection)
        progress = _Progress(planned, manifest.query_id, self.connection)
        self.cleanup.callback(progress.close)
        sink = StreamSink(
            planned=planned,
            app_name=self.app_name,
            query_id=manifest.query_id,
            stores=self.stores,
            records=records,
            commit_progress=progress.commit,
            side_offsets=_side_offsets(manifest),
            on_batch=self.on_batch,
            on_step=self.on_step,
        )
        noted = NotedSink(sink)
        kept = self._kept(self.options.query_folder(planned.name), manifest)
        rest = QueryRest.of(self.options.query_folder(planned.name), kept)
        start = partial(self._start, planned, manifest, noted, kept, rest.gate)
        return QueryStart(start, noted, rest, manifest.buckets, self._tasks_of(manifest))

    def prepare_frame(self, planned: PlannedFrame, manifest: Manifest) -> QueryStart:
        """The same for a plain DataFrame."""
        name, folder = planned.view.name, frame_folder(self.options.data, planned.view.name)
        records = None
        if isinstance(self.stores[name], LimitedStore):
            records = self._records(f"{self.app_name}.{name}.frame", manifest, folder)
        sink = FrameSink(
            planned, self.app_name, manifest.query_id, self.stores, records, self.on_batch, self.on_step
        )
        noted = NotedSink(sink)
        start = partial(
            start_frame,
            planned,
            noted,
            checkpoint=folder / "checkpoint",
            trigger_ms=self.options.trigger_ms,
            until_caught_up=self.options.until_caught_up,
        )
        return QueryStart(start, noted)

    def prepare_graph(self, planned: PlannedGraph, manifest: Manifest) -> QueryStart:
        """The same for a dataflow."""
        folder = graph_folder(self.options.data, planned.view.name)
        name = _dataflow_sink_name(self.app_name, planned)
        records = self._records(name, manifest, folder)
        fence_slots(name, self.connection)
        progress = GraphProgress(planned, manifest.query_id, self.connection)
        self.cleanup.callback(progress.close)
        sink = GraphSink(
            planned=planned,
            app_name=self.app_name,
            query_id=manifest.query_id,
            stores=self.stores,
            records=records,
            commit_progress=progress.commit,
            side_offsets=manifest.side_offsets,
            on_batch=self.on_batch,
            on_step=self.on_step,
        )
        noted = NotedSink(sink)
        kept = self._kept(folder, manifest)
        rest = QueryRest.of(folder, kept)
        start = partial(self._start_graph, planned, manifest, noted, kept, rest.gate)
        return QueryStart(start, noted, rest, manifest.buckets, self._tasks_of(manifest))

    def _tasks_of(self, manifest: Manifest) -> int:
        """How many tasks work on the state of a query at a time."""
        return min(manifest.buckets, manifest.slots or self.tasks or shuffle_partitions(self.spark))

    def _kept(self, folder: Path, manifest: Manifest) -> CheckpointRecords | None:
        """Where what the query's batches are made from is kept, if not in the folder."""
        if self.checkpoints is None:
            return None
        return self.checkpoints.records(folder, manifest.query_id, self.ownership.require)

    def _records(self, name: str, manifest: Manifest, folder: Path) -> RecordSink:
        """Where a query's records go, ours from now on: an earlier run must not write any.

        Raises ConfigError if the log has batches that the checkpoint knows nothing of.
        """
        records = RecordSink(
            self.connection,
            name,
            manifest.query_id,
            topics=self._side_topics(),
            require_owner=self.ownership.require,
        )
        self.cleanup.callback(records.close)
        records.take_over()
        written = records.last_batch()
        if written > last_begun(folder):
            raise ConfigError(
                f"batch {written} of a query is on the log, and its checkpoint in {folder} knows of none "
                f"after {last_begun(folder)}: it is an older copy. Use the newest one, or run with "
                "--rebuild to rebuild all views and topics from the log"
            )
        return records

    def _side_topics(self) -> dict[str, TopicSettings]:
        return {dead_topic(self.app_name): _ASIDE, late_topic(self.app_name): _ASIDE}

    def _task_sink(self, planned: PlannedStream, manifest: Manifest) -> TaskSink | None:
        """What writes on the executors; None where the driver writes everything."""
        if not manifest.slots:
            return None
        return TaskSink(
            made=BatchRecords.of(self.app_name, planned, manifest.query_id, _side_offsets(manifest)),
            records=SlotRecords(
                connection=self.connection,
                name=record_sink_name(self.app_name, planned),
                query_id=manifest.query_id,
                topics=self._side_topics(),
                require_owner=self.ownership.check,
            ),
            views=self._staged_views(planned) if self.tasks_write else {},
        )

    def _graph_task_sink(self, planned: PlannedGraph, manifest: Manifest) -> tuple[GraphTaskSink, int] | None:
        """The same for a dataflow, with the number of its slots."""
        if not manifest.slots:
            return None
        writer = self.stores[planned.view.name]
        if isinstance(writer, StagingStore):
            writer.work_by(partial(_in_a_task, self.spark))
        sink = GraphTaskSink(
            made=GraphRecords.of(self.app_name, planned, manifest.query_id, manifest.side_offsets),
            records=SlotRecords(
                connection=self.connection,
                name=_dataflow_sink_name(self.app_name, planned),
                query_id=manifest.query_id,
                topics=self._side_topics(),
                require_owner=self.ownership.check,
            ),
            schema=planned.schema,
            stager=stager_of(writer, planned.schema) if self.tasks_write else None,
        )
        return sink, manifest.slots

    def _staged_views(self, planned: PlannedStream) -> dict[int, StagedView]:
        for each in planned.views:
            store = self.stores.get(each.view.name)
            if isinstance(store, StagingStore):
                store.work_by(partial(_in_a_task, self.spark))
        return staged_views(planned, self.stores)

    def _start_graph(
        self,
        planned: PlannedGraph,
        manifest: Manifest,
        sink: NotedSink,
        kept: CheckpointRecords | None,
        gate: BatchGate,
    ) -> StreamingQuery:
        specs = specs_of(planned, manifest)
        sources = tuple(replace(each, spec=specs[each.spec.topic]) for each in planned.graph.sources)
        query = GraphQuery(
            graph=replace(
                planned.graph,
                sources=sources,
                buckets=manifest.buckets,
                view_keys=planned.schema.key if manifest.slots else (),
            ),
            steps=planned.steps,
            options=self._feed_options(),
        )
        return start_graph(
            self.spark,
            query,
            query_id=manifest.query_id,
            checkpoint=str(graph_folder(self.options.data, planned.view.name) / "checkpoint"),
            output=sink,
            trigger_ms=self.options.trigger_ms,
            until_caught_up=self.options.until_caught_up,
            spill_bytes=self.options.spill_bytes,
            tasks=self._tasks_of(manifest),
            task_sink=self._graph_task_sink(planned, manifest),
            records=kept,
            gate=gate,
        )

    def _feed_options(self) -> FeedOptions:
        return FeedOptions(
            connection=self.connection,
            max_records_per_batch=self.options.max_records_per_batch,
            max_bytes_per_batch=self.options.max_bytes_per_batch,
        )

    def _start(
        self,
        planned: PlannedStream,
        manifest: Manifest,
        sink: NotedSink,
        kept: CheckpointRecords | None,
        gate: BatchGate,
    ) -> StreamingQuery:
        query = StreamQuery(
            plan=planned.plan(manifest.buckets, manifest.spec(planned.stream.spec)),
            steps=tuple(view.steps for view in planned.views),
            options=self._feed_options(),
        )
        return start_stream(
            self.spark,
            query,
            query_id=manifest.query_id,
            checkpoint=str(self.options.query_folder(planned.name) / "checkpoint"),
            output=sink,
            trigger_ms=self.options.trigger_ms,
            until_caught_up=self.options.until_caught_up,
            spill_bytes=self.options.spill_bytes,
            tasks=self._tasks_of(manifest),
            task_sink=self._task_sink(planned, manifest),
            records=kept,
            gate=gate,
        )


def _dataflow_sink_name(app: str, planned: PlannedGraph) -> str:
    """Under which the query of a dataflow writes its records."""
    return f"{app}.{planned.view.name}.dataflow"


def _in_a_task(spark: SparkSession, work: Callable[[], Any]) -> Any:
    """What the call returns, on an executor, so that the rows that it is about do not pass the driver."""
    (found,) = spark.sparkContext.parallelize([work], 1).map(_called).collect()
    return found


def _called(work: Callable[[], Any]) -> Any:
    return work()


def _side_offsets(manifest: Manifest) -> dict[int, int]:
    """Up to where, by partition, dead and late records are on their topics."""
    return {int(partition): offset for partition, offset in manifest.side_offsets.items()}


class _Progress:
    """Commits a query's progress as the offsets of its group."""

    def __init__(self, planned: PlannedStream, query_id: str, connection: Connection) -> None:
        self._spec = planned.stream.spec
        self._query_id = query_id
        self._connection = connection
        self._run = ""
        self._group: GroupProgress | None = None

    def commit(self, output: BatchOutput) -> None:
        if not output.marks:
            return
        if self._group is None or self._run != output.marks[0].run:
            self.close()
            self._run = output.marks[0].run
            spec = self._spec
            self._group = GroupProgress(self._connection, spec.group, spec.topic, self._run, self._query_id)
        self._group.commit(output.following, output.times, output.watermark_us)

    def close(self) -> None:
        if self._group is not None:
            self._group.close()
            self._group = None
