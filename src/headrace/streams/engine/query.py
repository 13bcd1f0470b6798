"""Starts one query: the feed, the stage, and the function that takes a batch's output."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know
from pyspark.sql.streaming.query import StreamingQuery

from headrace.streams.engine.heartbeats import heartbeat_of
from headrace.streams.engine.messages import IN_SCHEMA, OUT_SCHEMA, Outgoing, read_outgoing
from headrace.streams.engine.packers import FusedPacker, RowPacker, pack_projected
from headrace.streams.engine.parcels import Parcels
from headrace.streams.engine.plan import StreamPlan
from headrace.streams.engine.projection import Step, project, projected_fields
from headrace.streams.engine.stage import advance_task
from headrace.streams.feed import Packer, feed_source
from headrace.streams.options import FeedOptions

__all__ = ["Output", "StreamQuery", "start_stream"]

Output = Callable[[Iterator[Outgoing], int], None]


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
    checkpoint: str,
    output: Output,
    trigger_ms: int = 0,
    until_caught_up: bool = False,
    parcel_bytes: int = 0,
) -> StreamingQuery:
    """Starts the query; `output` gets each batch's messages, and may get a batch again after a failure.

    On one machine blobs of at least `parcel_bytes` go between its processes by files; 0: none.
    """
    folder = Path(checkpoint)
    by_files = parcel_bytes and _on_one_machine(spark)
    parcels = Parcels(folder / "parcels" if by_files else None, min_bytes=parcel_bytes)
    parcels.remove_all()
    changes = _changes(_messages(spark, query, parcels), query.plan, parcels, folder / "buckets")

    def take(frame: DataFrame, batch_id: int) -> None:
        messages = read_outgoing(frame.toArrow())
        output(((view, *parcels.received(kind, blob)) for view, kind, blob in messages), batch_id)
        parcels.remove_all()

    writer = changes.writeStream.foreachBatch(take)
    writer = writer.option("checkpointLocation", checkpoint)
    if until_caught_up:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{trigger_ms} milliseconds").start()


def _on_one_machine(spark: SparkSession) -> bool:
    """Its processes share a disk and a page cache, so that a file is the shortest way between them."""
    return (spark.conf.get("spark.master") or "").startswith("local")


def _changes(messages: DataFrame, plan: StreamPlan, parcels: Parcels, folder: Path) -> DataFrame:
    """What the states of the buckets, which are kept in the folder, make of the messages."""
    run_id = uuid.uuid4().hex

    def advance(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return advance_task(plan, run_id, folder, parcels, batches)

    tasks = min(plan.buckets, int(messages.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1))
    spread = messages.repartitionById(tasks, F.col("bucket") % tasks)
    return spread.mapInArrow(advance, OUT_SCHEMA)


def _messages(spark: SparkSession, query: StreamQuery, parcels: Parcels) -> DataFrame:
    plan = query.plan
    if query.is_fused:
        return _load(spark, query, lambda: FusedPacker(plan, parcels))
    rows = _load(spark, query, lambda: RowPacker(plan))
    views = [(steps, view.columns) for steps, view in zip(query.steps, plan.views, strict=True)]

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack_projected(plan, parcels, batches)

    return project(rows, projected_fields(plan.spec), views).mapInArrow(pack, IN_SCHEMA)


def _load(spark: SparkSession, query: StreamQuery, packer: Callable[[], Packer]) -> DataFrame:
    """The feed of this query, under a name of its own, since Spark's registry is shared."""
    name = f"headrace-feed-{uuid.uuid4().hex}"
    options = replace(query.options, heartbeat=heartbeat_of(query.plan))
    spark.dataSource.register(feed_source(name, query.plan.spec, options, packer))
    return spark.readStream.format(name).load()
