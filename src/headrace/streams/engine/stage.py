"""The stateful stage: one bucket's messages of a batch into changes.

Runs in Spark's Python workers, once per bucket and batch. Every bucket gets the marks
of all partitions, so every bucket comes to the same event-time watermark and closes
the same windows, whether or not it has rows.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.streams.engine.bucket_log import BucketCopy, Entry, Head, append, load
from headrace.streams.engine.messages import ALL_VIEWS, Kind, read_json, write_json, write_table
from headrace.streams.engine.plan import StreamPlan
from headrace.streams.event_time import NO_WATERMARK, Mark, operator_watermark
from headrace.streams.operators import Advance, unpack

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
    ) -> Iterator[pd.DataFrame]:
        bucket = int(key[0])
        batch = _Batch.collect(rows)
        # Out of the cache while it changes: an attempt that fails must leave no copy.
        copy = load(self._log, self._plan.operators, _copies.pop((self._run_id, bucket), None), NO_WATERMARK)
        found = operator_watermark(batch.marks)
        copy.watermark_us = max(copy.watermark_us, NO_WATERMARK if found is None else found)
        out, deltas = self._advance(copy, batch)
        append(self._log, copy, deltas)
        _copies[self._run_id, bucket] = copy
        if bucket == 0:
            out.append((ALL_VIEWS, Kind.MARK, _summary(batch.marks, copy.watermark_us)))
        yield pd.DataFrame([*batch.passed_on, *out], columns=["view", "kind", "blob"])

    def close(self) -> None:
        """Nothing is held open."""

    def _advance(self, copy: BucketCopy, batch: "_Batch") -> tuple[list[tuple[int, int, bytes]], list[bytes]]:
        out: list[tuple[int, int, bytes]] = []
        deltas: list[bytes] = []
        for number, state in zip(self._plan.windowed, copy.states, strict=True):
            partials = [unpack(blob) for blob in batch.partials.get(number, ())]
            result = state.advance(partials, copy.watermark_us)
            deltas.append(result.delta)
            out.extend((number, int(kind), blob) for kind, blob in _results(result))
        return out, deltas


def _results(result: Advance) -> Iterator[tuple[Kind, bytes]]:
    if result.changes is not None:
        yield Kind.CHANGES, write_table(result.changes)
    books = Counter(on_time=-result.corrected_rows, corrected=result.corrected_rows)
    if result.dropped is not None:
        yield Kind.FORGOTTEN, write_table(result.dropped)
        for name in ("on_time", "corrected"):
            count = pc.sum(result.dropped[name]).as_py()
            books.update({name: -count, "dropped": count})
    if any(books.values()):
        yield Kind.BOOKS, write_json(books)


class _Batch:
    """The messages of one bucket and batch, sorted by what is done with them."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.partials: dict[int, list[bytes]] = {}
        self.passed_on: list[tuple[int, int, bytes]] = []

    @classmethod
    def collect(cls, frames: Iterator[pd.DataFrame]) -> "_Batch":
        batch = cls()
        for frame in frames:
            for view, kind, blob in zip(frame["view"], frame["kind"], frame["blob"], strict=True):
                batch._add(int(view), Kind(int(kind)), bytes(blob))
        return batch

    def _add(self, view: int, kind: Kind, blob: bytes) -> None:
        if kind is Kind.MARK:
            self.marks.append(Mark.from_json(read_json(blob)))
        elif kind is Kind.PARTIAL:
            self.partials.setdefault(view, []).append(blob)
        else:
            self.passed_on.append((view, int(kind), blob))


def _summary(marks: list[Mark], watermark_us: int) -> bytes:
    """What the sink of the batch must know of the whole: every mark, and the watermark."""
    return write_json({"marks": [mark.to_json() for mark in marks], "watermark_us": watermark_us})


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
