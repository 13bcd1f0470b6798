"""The work of the stateful stage: one bucket's messages of a batch into changes.

Runs in Spark's Python workers, once per bucket and batch. Every bucket gets the marks
of all partitions, so every bucket comes to the same event-time watermark and closes
the same windows, whether or not it has rows.
"""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from headrace.streams.engine.bucket import BucketBatch, advance_bucket, batch_summary
from headrace.streams.engine.bucket_log import BucketCopy, BucketLog, Entry, Head, append, load
from headrace.streams.engine.messages import ALL_VIEWS, Kind
from headrace.streams.engine.plan import StreamPlan
from headrace.streams.event_time import NO_WATERMARK

__all__ = ["SparkLog", "advance"]

# What this worker knows of its buckets, by query and bucket. A query is named by a
# fresh id each time it is started, so that copies of an earlier run are never met.
_copies: dict[tuple[str, int], BucketCopy] = {}


def advance(
    plan: StreamPlan, run_id: str, bucket: int, log: BucketLog, rows: Iterator[pd.DataFrame]
) -> pd.DataFrame:
    """The messages that the bucket's part of a batch leads to, its log brought up to date."""
    batch = BucketBatch()
    for frame in rows:
        for view, kind, blob in zip(frame["view"], frame["kind"], frame["blob"], strict=True):
            batch.add(int(view), Kind(int(kind)), bytes(blob))
    # Out of the cache while it changes: an attempt that fails must leave no copy.
    copy = load(log, plan.operators, _copies.pop((run_id, bucket), None), NO_WATERMARK)
    out, deltas = advance_bucket(plan, copy, batch)
    append(log, copy, deltas)
    _copies[run_id, bucket] = copy
    if bucket == 0:
        out.append((ALL_VIEWS, Kind.MARK, batch_summary(batch, copy)))
    return pd.DataFrame([*batch.passed_on, *out], columns=["view", "kind", "blob"])


class SparkLog:
    """A bucket's log in Spark's state store, under the key that Spark is working on."""

    def __init__(self, head: Any, entries: Any) -> None:
        self._head = head
        self._entries = entries

    def head(self) -> Head | None:
        found: Any = self._head.get()
        return Head(int(found[0]), tuple(found[1]), int(found[2]), int(found[3])) if found else None

    def set_head(self, head: Head) -> None:
        self._head.update((head.base, list(head.tokens), head.delta_bytes, head.snapshot_bytes))

    def get(self, number: int) -> Entry:
        found: Any = self._entries.getValue((number,))
        return Entry(bool(found[0]), int(found[1]), tuple(bytes(blob) for blob in found[2]))

    def put(self, number: int, entry: Entry) -> None:
        self._entries.updateValue((number,), (entry.is_snapshot, entry.watermark_us, list(entry.blobs)))

    def remove(self, number: int) -> None:
        self._entries.removeKey((number,))
