"""Starts one query: the feed, the stage, and the function that takes a batch's output."""

import contextlib
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know
from pyspark.sql.streaming.query import StreamingQuery

from headrace.streams.engine.batch_gate import BatchGate
from headrace.streams.engine.heartbeats import heartbeat_of
from headrace.streams.engine.messages import IN_SCHEMA, OUT_SCHEMA, Outgoing, read_outgoing
from headrace.streams.engine.packers import FusedPacker, RowPacker, pack_projected
from headrace.streams.engine.plan import StreamPlan
from headrace.streams.engine.projection import Step, project, projected_fields
from headrace.streams.engine.spill import SpillFiles
from headrace.streams.engine.stage import TaskSink, advance_task
from headrace.streams.engine.state import BucketStates, CheckpointRecords, StateInFolders, recorded
from headrace.streams.feed.feed import Packer, feed_source
from headrace.streams.feed.options import FeedOptions
from headrace.streams.spark import shuffle_partitions

__all__ = ["QueryOutput", "StreamQuery", "planned_once", "start_stream"]

_ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"

QueryOutput = Callable[[Iterator[Outgoing], int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamQuery:
    """A stream's plan with what only Spark understands: the steps before each view's windows."""

    plan: StreamPlan
    steps: tuple[tuple[Step, ...], ...]
    options: FeedOptions

    @property
    def is_fused(self) -> bool:
        """Nothing stands between the stream and its windows, so the source packs the rows itself."""
        return not any(self.steps)


def start_stream(
    spark: SparkSession,
    query: StreamQuery,
    *,
    query_id: str,
    checkpoint: str,
    output: QueryOutput,
    trigger_ms: int = 0,
    until_caught_up: bool = False,
    spill_bytes: int = 0,
    tasks: int | None = None,
    task_sink: TaskSink | None = None,
    records: CheckpointRecords | None = None,
    gate: BatchGate | None = None,
) -> StreamingQuery:
    """Starts the query; `output` gets each batch's messages, and may get a batch again after a failure.

    `query_id` says whose state is kept beside the checkpoint, and taken up again there; with
    `records`, the state is kept where these are. The stage has as many `tasks`, or as many as
    Spark's shuffles have partitions. `task_sink` takes the messages of each on the executors, where
    they are made, and `output` gets those that it returns.

    On one machine blobs of at least `spill_bytes` go between its processes by files; 0: none.
    """
    folder = Path(checkpoint)
    by_files = spill_bytes and _on_one_machine(spark)
    spill = SpillFiles(folder / "spill" if by_files else None, min_bytes=spill_bytes)
    spill.remove_all()
    location = checkpoint
    if records is not None:
        location = folder.absolute().as_uri()  # whatever Hadoop's default is
    messages = _messages(spark, query, spill)
    states = StateInFolders(query_id, (folder / "buckets",)) if records is None else records.state
    tasks = min(query.plan.buckets, tasks or shuffle_partitions(spark))
    sink = None if task_sink is None else (task_sink, tasks)
    changes = _changes(messages, query.plan, states, spill, tasks, sink)

    gate = gate or BatchGate()

    def take(frame: DataFrame, batch_id: int) -> None:
        with gate.batch(batch_id), recorded(records, batch_id) as receipts:
            messages = receipts.apart(read_outgoing(frame.toArrow()))
            output(((view, *spill.received(kind, blob)) for view, kind, blob in messages), batch_id)
        spill.remove_all()

    writer = changes.writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", location)
    with planned_once(spark) if records is not None else contextlib.nullcontext():
        if until_caught_up:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{trigger_ms} milliseconds").start()


@contextlib.contextmanager
def planned_once(spark: SparkSession) -> Iterator[None]:
    """A query that is started here is planned as a whole before each batch, and not stage by stage.

    Adaptive execution plans what is behind a shuffle when that is done, which takes a small batch a good
    part of its time, and has nothing to decide here. It carries out all stages but the last before
    `foreachBatch` is called, and so before the record of the batch is there.
    """
    before = spark.conf.get(_ADAPTIVE, None)
    spark.conf.set(_ADAPTIVE, "false")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_ADAPTIVE)
        else:
            spark.conf.set(_ADAPTIVE, before)


def _on_one_machine(spark: SparkSession) -> bool:
    """Its processes share a disk and a page cache, so that a file is the shortest way between them."""
    return (spark.sparkContext.master or "").startswith("local")


def _changes(
    messages: DataFrame,
    plan: StreamPlan,
    states: BucketStates,
    spill: SpillFiles,
    tasks: int,
    sink: tuple[TaskSink, int] | None,
) -> DataFrame:
    """What the states of the buckets make of the messages."""
    run_id = uuid.uuid4().hex

    def advance(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return advance_task(plan, states, run_id, spill, batches, sink)

    spread = messages.repartitionById(tasks, F.col("bucket") % tasks)
    return spread.mapInArrow(advance, OUT_SCHEMA)


def _messages(spark: SparkSession, query: StreamQuery, spill: SpillFiles) -> DataFrame:
    plan = query.plan
    if query.is_fused:
        return _load(spark, query, lambda: FusedPacker(plan, spill))
    rows = _load(spark, query, lambda: RowPacker(plan))
    views = [(steps, view.columns) for steps, view in zip(query.steps, plan.views, strict=True)]

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack_projected(plan, spill, batches)

    return project(rows, projected_fields(plan.spec), views).mapInArrow(pack, IN_SCHEMA)


def _load(spark: SparkSession, query: StreamQuery, packer: Callable[[], Packer]) -> DataFrame:
    """The feed of this query, under a name of its own, since Spark's registry is shared."""
    name = f"headrace-feed-{uuid.uuid4().hex}"
    options = replace(query.options, heartbeat=heartbeat_of(query.plan))
    spark.dataSource.register(feed_source(name, [query.plan.spec], options, lambda _: packer()))
    return spark.readStream.format(name).load()
