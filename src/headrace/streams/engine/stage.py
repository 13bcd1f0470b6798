"""The stateful stage: one bucket's messages of a batch into changes.

Runs in Spark's Python workers, once per bucket and batch. Every bucket gets the marks
of all partitions, so every bucket comes to the same event-time watermark and closes
the same windows, whether or not it has rows.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.streams.engine.bucket import BucketBatch, advance_bucket, batch_summary
from headrace.streams.engine.bucket_log import BucketCopy, Entry, Head, append, load
from headrace.streams.engine.messages import ALL_VIEWS, Kind
from headrace.streams.engine.plan import StreamPlan
from headrace.streams.event_time import NO_WATERMARK

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["BucketStage"]

# What this worker knows of its buckets, by query and bucket. A query is named by a
# fresh id each time it is started, so that copies of an earlier run are never met.
_copies: dict[tuple[str, int], BucketCopy] = {}


class BucketStage(StatefulProcessor):
    """Keeps the operators' states of each bucket, and lets them advance."""

    def __init__(self, plan: StreamPlan, run_id: str) -> None:
        self._plan = plan
        self._run_id = run_id

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._log = _SparkLog(handle)

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[Any],
        timerValues: Any,  # noqa: ARG002, N803
    ) -> "Iterator[pd.DataFrame]":
        # Here, for before its first batch a query starts a process that only looks at this class.
        import pandas as pd

        bucket = int(key[0])
        batch = BucketBatch()
        for frame in rows:
            for view, kind, blob in zip(frame["view"], frame["kind"], frame["blob"], strict=True):
                batch.add(int(view), Kind(int(kind)), bytes(blob))
        # Out of the cache while it changes: an attempt that fails must leave no copy.
        copy = load(self._log, self._plan.operators, _copies.pop((self._run_id, bucket), None), NO_WATERMARK)
        out, deltas = advance_bucket(self._plan, copy, batch)
        append(self._log, copy, deltas)
        _copies[self._run_id, bucket] = copy
        if bucket == 0:
            out.append((ALL_VIEWS, Kind.MARK, batch_summary(batch, copy)))
        yield pd.DataFrame([*batch.passed_on, *out], columns=["view", "kind", "blob"])

    def close(self) -> None:
        """Nothing is held open."""


class _SparkLog:
    """A bucket's log in Spark's state store, under the key that Spark is working on."""

    def __init__(self, handle: StatefulProcessorHandle) -> None:
        self._head = handle.getValueState(
            "head", "base long, tokens array<string>, delta_bytes long, snapshot_bytes long"
        )
        self._entries = handle.getMapState(
            "entries", "number long", "is_snapshot boolean, watermark_us long, blobs array<binary>"
        )

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
