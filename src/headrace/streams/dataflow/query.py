"""Starts a query over a graph: the feed of its topics, its stages one behind the other, and its output.

    feed ──> [projection] ──shuffle──> stage 0 ──> [projection] ──shuffle──> stage 1 ──> … ──> sink

All of it is one Spark query: what a stage puts out in a micro-batch the next one takes in the
same, so that a batch is one cut through all topics and all stages. Stages between which no row
leaves its bucket are computed in one go (`shuffles`).
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.query import StreamingQuery

from headrace.streams.dataflow.graph import Graph, graph_heartbeat, stepped_edges
from headrace.streams.dataflow.packing import (
    SourcePacker,
    edge_column,
    pack_edges,
    producer_column,
    unpack_rows,
    wide_schema,
)
from headrace.streams.dataflow.shuffles import passes
from headrace.streams.dataflow.stage import GraphTaskSink, advance_graph_task, write_graph_task
from headrace.streams.engine.batch_gate import BatchGate
from headrace.streams.engine.messages import IN_SCHEMA, Message, read_messages
from headrace.streams.engine.projection import Step, project_producers
from headrace.streams.engine.query import planned_once
from headrace.streams.engine.spill import SpillFiles
from headrace.streams.engine.state import BucketStates, CheckpointRecords, StateInFolders, recorded
from headrace.streams.feed.feed import feed_source
from headrace.streams.feed.options import FeedOptions

__all__ = ["GraphOutput", "GraphQuery", "project_edges", "start_graph"]

GraphOutput = Callable[[Iterator[Message], int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphQuery:
    """A graph with what only Spark understands: the steps of its edges, by their number."""

    graph: Graph
    steps: Mapping[int, Sequence[Step]]
    options: FeedOptions


def start_graph(
    spark: SparkSession,
    query: GraphQuery,
    *,
    query_id: str,
    checkpoint: str,
    output: GraphOutput,
    trigger_ms: int = 0,
    until_caught_up: bool = False,
    spill_bytes: int = 0,
    tasks: int | None = None,
    task_sink: tuple[GraphTaskSink, int] | None = None,
    records: CheckpointRecords | None = None,
    gate: BatchGate | None = None,
) -> StreamingQuery:
    """Starts the query; `output` gets each batch's messages, and may get a batch again after a failure.

    State is kept next to the checkpoint, or, with `records`, where these are. Every stage has as many
    `tasks`, or as many as Spark's shuffles have partitions. With `task_sink`, and the number of its slots,
    the results pass through it, on the executors, and what it leaves comes to `output`.
    """
    folder, graph = Path(checkpoint), query.graph
    by_files = spill_bytes and (spark.sparkContext.master or "").startswith("local")
    spill = SpillFiles(folder / "spill" if by_files else None, min_bytes=spill_bytes)
    spill.remove_all()
    location = checkpoint
    if records is not None:
        location = folder.absolute().as_uri()  # whatever Hadoop's default is
    frame = _projected(_load(spark, query, spill), query, range(len(graph.sources)), spill)
    run_id = uuid.uuid4().hex
    folders = tuple(folder / "stages" / str(stage) for stage in range(len(graph.stages)))
    states = StateInFolders(query_id, folders) if records is None else records.state
    for stages, is_shuffled in passes(graph):
        if is_shuffled:
            frame = _shuffled(frame, graph.buckets, tasks)
        frame = _advanced(frame, graph, stages, states, run_id, spill)
        made = [len(graph.sources) + place for place in graph.stages[stages[-1]]]
        frame = _projected(frame, query, made, spill)

    if task_sink is not None:
        frame = _written(frame, *task_sink, spill)
    gate = gate or BatchGate()

    def take(batch: DataFrame, batch_id: int) -> None:
        with gate.batch(batch_id), recorded(records, batch_id) as receipts:
            messages = receipts.apart(
                each for part in batch.toArrow().to_batches() for each in read_messages(part)
            )
            output(
                (
                    Message(bucket, number, *spill.received(kind, blob))
                    for bucket, number, kind, blob in messages
                ),
                batch_id,
            )
        spill.remove_all()

    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", location)
    with planned_once(spark):
        if until_caught_up:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{trigger_ms} milliseconds").start()


def _load(spark: SparkSession, query: GraphQuery, spill: SpillFiles) -> DataFrame:
    name = f"headrace-feed-{uuid.uuid4().hex}"
    graph = query.graph
    options = replace(query.options, heartbeat=graph_heartbeat(graph))
    specs = [each.spec for each in graph.sources]
    source = feed_source(name, specs, options, lambda number: SourcePacker(graph, number, spill))
    spark.dataSource.register(source)
    return spark.readStream.format(name).load()


def _projected(frame: DataFrame, query: GraphQuery, producers: Sequence[int], spill: SpillFiles) -> DataFrame:
    """The messages, with the rows of these producers through the steps of their edges."""
    graph = query.graph
    numbers = stepped_edges(graph, producers)
    if not numbers:
        return frame
    read = sorted({graph.edges[number].producer for number in numbers})
    schema = wide_schema(graph, read)

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return unpack_rows(schema, spill, batches)

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return pack_edges(graph, numbers, spill, batches)

    rows = frame.mapInArrow(unpack, from_arrow_schema(schema))
    return project_edges(rows, graph, query.steps, numbers).mapInArrow(pack, IN_SCHEMA)


def project_edges(
    rows: DataFrame, graph: Graph, steps: Mapping[int, Sequence[Step]], numbers: Sequence[int]
) -> DataFrame:
    """What the steps of these edges make of rows that `unpack_rows` has spread out."""
    edges = {
        edge_column(number): (
            producer_column(graph.edges[number].producer),
            graph.schema_of(graph.edges[number].producer).names,
            steps[number],
            graph.edges[number].projected,
        )
        for number in numbers
    }
    return project_producers(rows, edges)


def _shuffled(messages: DataFrame, buckets: int, tasks: int | None) -> DataFrame:
    by_default = int(messages.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    tasks = min(buckets, tasks or by_default)
    return messages.repartitionById(tasks, F.col("bucket") % tasks)


def _advanced(
    messages: DataFrame,
    graph: Graph,
    stages: Sequence[int],
    states: BucketStates,
    run_id: str,
    spill: SpillFiles,
) -> DataFrame:
    def advance(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return advance_graph_task(graph, stages, states, run_id, spill, batches)

    return messages.mapInArrow(advance, IN_SCHEMA)


def _written(messages: DataFrame, sink: GraphTaskSink, slots: int, spill: SpillFiles) -> DataFrame:
    """The messages that are left when each slot has written its own."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return write_graph_task(sink, slots, spill, batches)

    return messages.repartitionById(slots, F.col("bucket") % slots).mapInArrow(write, IN_SCHEMA)
