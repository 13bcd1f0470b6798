"""The stateful stage: every bucket's messages of a micro-batch into changes.

Runs in Spark's Python workers, once per task: the messages of some buckets come in, in any
order. Every bucket gets the marks of all partitions, so every bucket comes to the same
event-time watermark and closes the same windows, whether or not it has rows.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import pyarrow as pa
from pyspark import TaskContext

from headrace.streams.engine.bucket_step import BucketBatch, advance_bucket, batch_summary
from headrace.streams.engine.messages import (
    ALL_VIEWS,
    BlobKind,
    Message,
    Outgoing,
    read_messages,
    to_outgoing,
)
from headrace.streams.engine.plan import StreamPlan
from headrace.streams.engine.spill import SpillFiles
from headrace.streams.engine.state import BucketCopies, BucketLog, BucketStates, append, load
from headrace.streams.event_time import NO_WATERMARK

__all__ = ["TaskSink", "advance", "advance_task", "batch_number", "by_bucket"]

TaskSink = Callable[[int, int, Iterator[Outgoing]], Iterable[Outgoing]]  # of (slot, batch, messages)

_BATCH = "streaming.sql.batchId"  # as Spark calls it among the properties of a task

_copies = BucketCopies()


def advance_task(
    plan: StreamPlan,
    states: BucketStates,
    run_id: str,
    spill: SpillFiles,
    messages: Iterable[pa.RecordBatch],
    sink: tuple[TaskSink, int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """What the messages of a task lead to, bucket after bucket; the body of `mapInArrow`.

    With `sink`, and the number of tasks, the results pass through it, and what it leaves goes on.
    """
    batch = batch_number()
    found = sorted(by_bucket(messages).items())
    log = states.logs(0, batch)

    def results() -> Iterator[list[Outgoing]]:
        for bucket, of_bucket in found:
            yield advance(plan, run_id, bucket, log(bucket), batch, _received(of_bucket, spill))

    left: Iterable[Iterable[Outgoing]] = results()
    if sink is not None and found:
        write, tasks = sink
        left = [write(found[0][0] % tasks, batch, chain.from_iterable(left))]
    for out in left:
        yield to_outgoing((view, *spill.sent(kind, blob)) for view, kind, blob in out)


def advance(
    plan: StreamPlan, run_id: str, bucket: int, log: BucketLog, number: int, batch: BucketBatch
) -> list[Outgoing]:
    """The messages that the bucket's part of a batch leads to, its log brought up to date."""
    # Out of the cache while it changes: an attempt that fails must leave no copy.
    copy = load(log, plan.new_states, _copies.take((run_id, bucket)), number, NO_WATERMARK)
    out, deltas = advance_bucket(plan, copy, batch)
    append(log, copy, number, deltas)
    _copies.keep((run_id, bucket), copy)
    if log.receipt is not None:
        out.append((ALL_VIEWS, BlobKind.STATE, log.receipt))
    if bucket == 0:
        out.append((ALL_VIEWS, BlobKind.MARK, batch_summary(batch, copy)))
    return [*batch.passed_on, *out]


def batch_number() -> int:
    """The micro-batch that this task is part of: the same each time it is tried."""
    task = TaskContext.get()
    number = None if task is None else task.getLocalProperty(_BATCH)
    if number is None:
        raise RuntimeError("Spark does not say which micro-batch a task belongs to: use another version")
    return int(number)


def by_bucket(messages: Iterable[pa.RecordBatch]) -> dict[int, list[Message]]:
    """The messages of each bucket, in the order they came."""
    found: dict[int, list[Message]] = {}
    for batch in messages:
        for message in read_messages(batch):
            found.setdefault(message.bucket, []).append(message)
    return found


def _received(messages: list[Message], spill: SpillFiles) -> BucketBatch:
    found = BucketBatch()
    for _, view, kind, blob in messages:
        found.add(view, *spill.received(kind, blob))
    return found
