"""The stateful stage: every bucket's messages of a micro-batch into changes.

Runs in Spark's Python workers, once per task: the messages of some buckets come in, in any
order. Every bucket gets the marks of all partitions, so every bucket comes to the same
event-time watermark and closes the same windows, whether or not it has rows.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
from pyspark import TaskContext

from headrace.streams.engine.bucket import BucketBatch, advance_bucket, batch_summary
from headrace.streams.engine.bucket_files import BucketFiles
from headrace.streams.engine.bucket_log import BucketCopy, BucketLog, append, load
from headrace.streams.engine.messages import ALL_VIEWS, Kind, Message, Outgoing, read_messages, to_outgoing
from headrace.streams.engine.parcels import Parcels
from headrace.streams.engine.plan import StreamPlan
from headrace.streams.event_time import NO_WATERMARK

__all__ = ["advance", "advance_task"]

_BATCH = "streaming.sql.batchId"  # as Spark calls it among the properties of a task

# What this worker knows of its buckets, by query and bucket. A query is named by a
# fresh id each time it is started, so that copies of an earlier run are never met.
_copies: dict[tuple[str, int], BucketCopy] = {}


def advance_task(
    plan: StreamPlan,
    run_id: str,
    folder: Path,
    parcels: Parcels,
    messages: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """What the messages of a task lead to, bucket after bucket; the body of `mapInArrow`."""
    batch = _batch_number()
    for bucket, of_bucket in sorted(_by_bucket(messages).items()):
        log = BucketFiles(folder, bucket)
        out = advance(plan, run_id, bucket, log, batch, _received(of_bucket, parcels))
        yield to_outgoing((view, *parcels.sent(kind, blob)) for view, kind, blob in out)


def advance(
    plan: StreamPlan, run_id: str, bucket: int, log: BucketLog, number: int, batch: BucketBatch
) -> list[Outgoing]:
    """The messages that the bucket's part of a batch leads to, its log brought up to date."""
    # Out of the cache while it changes: an attempt that fails must leave no copy.
    copy = load(log, plan.operators, _copies.pop((run_id, bucket), None), number, NO_WATERMARK)
    out, deltas = advance_bucket(plan, copy, batch)
    append(log, copy, number, deltas)
    _copies[run_id, bucket] = copy
    if bucket == 0:
        out.append((ALL_VIEWS, Kind.MARK, batch_summary(batch, copy)))
    return [*batch.passed_on, *out]


def _batch_number() -> int:
    """The micro-batch that this task is part of: the same each time it is tried."""
    task = TaskContext.get()
    number = None if task is None else task.getLocalProperty(_BATCH)
    if number is None:
        raise RuntimeError("Spark does not say which micro-batch a task belongs to: use another version")
    return int(number)


def _by_bucket(messages: Iterable[pa.RecordBatch]) -> dict[int, list[Message]]:
    found: dict[int, list[Message]] = {}
    for batch in messages:
        for message in read_messages(batch):
            found.setdefault(message.bucket, []).append(message)
    return found


def _received(messages: list[Message], parcels: Parcels) -> BucketBatch:
    found = BucketBatch()
    for _, view, kind, blob in messages:
        found.add(view, *parcels.received(kind, blob))
    return found
