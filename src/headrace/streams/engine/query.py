"""Starts one query: the feed, the stage, and the function that takes a batch's output."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.streams.engine.heartbeats import heartbeat_of
from headrace.streams.engine.messages import IN_SCHEMA, OUT_SCHEMA
from headrace.streams.engine.packers import FusedPacker, RowPacker, pack_projected
from headrace.streams.engine.plan import StreamPlan
from headrace.streams.engine.projection import Step, project, projected_fields
from headrace.streams.engine.stage import BucketStage
from headrace.streams.feed import Packer, feed_source
from headrace.streams.options import FeedOptions

__all__ = ["Output", "StreamQuery", "start_stream"]

Output = Callable[[pa.Table, int], None]


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
) -> StreamingQuery:
    """Starts the query; `output` gets each batch's messages, and may get a batch again after a failure."""
    stage = BucketStage(query.plan, run_id=uuid.uuid4().hex)
    changes = (
        _messages(spark, query)
        .groupBy("bucket")
        .transformWithStateInPandas(stage, outputStructType=OUT_SCHEMA, outputMode="update", timeMode="none")
    )

    def take(frame: DataFrame, batch_id: int) -> None:
        output(frame.toArrow(), batch_id)

    writer = changes.writeStream.outputMode("update").foreachBatch(take)
    writer = writer.option("checkpointLocation", checkpoint)
    if until_caught_up:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{trigger_ms} milliseconds").start()


def _messages(spark: SparkSession, query: StreamQuery) -> DataFrame:
    plan = query.plan
    if query.is_fused:
        return _load(spark, query, lambda: FusedPacker(plan))
    rows = _load(spark, query, lambda: RowPacker(plan))
    views = [(steps, view.columns) for steps, view in zip(query.steps, plan.views, strict=True)]

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack_projected(plan, batches)

    return project(rows, projected_fields(plan.spec), views).mapInArrow(pack, IN_SCHEMA)


def _load(spark: SparkSession, query: StreamQuery, packer: Callable[[], Packer]) -> DataFrame:
    """The feed of this query, under a name of its own, since Spark's registry is shared."""
    name = f"headrace-feed-{uuid.uuid4().hex}"
    options = replace(query.options, heartbeat=heartbeat_of(query.plan))
    spark.dataSource.register(feed_source(name, query.plan.spec, options, packer))
    return spark.readStream.format(name).load()
