"""Stages of a graph in Spark's Python workers: the buckets of a task, one after the other."""

from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from headrace.streams.dataflow.graph import Graph
from headrace.streams.dataflow.step import StageBatch, StageOperators, advance_stage
from headrace.streams.engine.messages import ALL_VIEWS, BlobKind, Message, to_batch
from headrace.streams.engine.spill import SpillFiles
from headrace.streams.engine.stage import batch_number, by_bucket
from headrace.streams.engine.state import BucketCopies, BucketLog, BucketStates, append, load

__all__ = ["GraphTaskSink", "advance_graph_bucket", "advance_graph_task", "write_graph_task"]

GraphTaskSink = Callable[[int, int, Iterator[Message]], Iterable[Message]]  # of (slot, batch, messages)

_copies = BucketCopies()


def advance_graph_task(
    graph: Graph,
    stages: Sequence[int],
    states: BucketStates,
    run_id: str,
    spill: SpillFiles,
    messages: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """What the messages of a task lead to, bucket after bucket; the body of `mapInArrow`.

    Each bucket goes through all of the stages, between which no row leaves it.
    """
    number, arrived = batch_number(), by_bucket(messages)
    logs = [states.logs(stage, number) for stage in stages]
    for bucket, of_bucket in sorted(arrived.items()):
        found = [Message(bucket, edge, *spill.received(kind, blob)) for _, edge, kind, blob in of_bucket]
        for stage, log in zip(stages, logs, strict=True):
            batch = StageBatch.of(graph, stage, bucket, found)
            found = advance_graph_bucket(batch, run_id, bucket, log(bucket), number)
        yield to_batch(Message(to, edge, *spill.sent(kind, blob)) for to, edge, kind, blob in found)


def advance_graph_bucket(
    batch: StageBatch, run_id: str, bucket: int, log: BucketLog, number: int
) -> list[Message]:
    """The messages that the bucket's part of a batch leads to, its log brought up to date."""
    place = (f"{run_id}/{batch.stage}", bucket)
    operators = StageOperators(batch.graph, batch.stage)
    # Out of the cache while it changes: an attempt that fails must leave no copy.
    copy = load(log, operators.new_states, _copies.take(place), number, 0)
    out, deltas = advance_stage(copy.states, bucket, batch)
    append(log, copy, number, deltas)
    _copies.keep(place, copy)
    if log.receipt is not None:
        out.append(Message(bucket, ALL_VIEWS, BlobKind.STATE, log.receipt))
    return out


def write_graph_task(
    sink: GraphTaskSink, slots: int, spill: SpillFiles, messages: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What is left for the driver of the results of a task, which has the buckets of one slot."""
    arrived = sorted(by_bucket(messages).items())
    if not arrived:
        return
    received = (
        Message(bucket, edge, *spill.received(kind, blob))
        for _, of_bucket in arrived
        for bucket, edge, kind, blob in of_bucket
    )
    left = sink(arrived[0][0] % slots, batch_number(), received)
    yield to_batch(Message(to, edge, *spill.sent(kind, blob)) for to, edge, kind, blob in left)
