"""One batch of one bucket: its messages, and what its states make of them. No Spark."""

from collections import Counter
from collections.abc import Iterator

import pyarrow.compute as pc

from headrace.streams.engine.messages import BlobKind, Outgoing, decode_json, encode_json, encode_table
from headrace.streams.engine.plan import StreamPlan
from headrace.streams.engine.state import BucketCopy
from headrace.streams.event_time import NO_WATERMARK, Mark, operator_watermark
from headrace.streams.operators import Advance, unpack

__all__ = ["BucketBatch", "advance_bucket", "batch_summary"]


class BucketBatch:
    """The messages of one bucket and batch, sorted by what is done with them."""

    def __init__(self) -> None:
        self.marks: list[Mark] = []
        self.partials: dict[int, list[bytes]] = {}
        self.passed_on: list[Outgoing] = []

    def add(self, view: int, kind: BlobKind, blob: bytes) -> None:
        if kind is BlobKind.MARK:
            self.marks.append(Mark.from_json(decode_json(blob)))
        elif kind is BlobKind.PARTIAL:
            self.partials.setdefault(view, []).append(blob)
        else:
            self.passed_on.append((view, kind, blob))


def advance_bucket(
    plan: StreamPlan, copy: BucketCopy, batch: BucketBatch
) -> tuple[list[Outgoing], list[bytes]]:
    """Moves the bucket's watermark and states on: the messages that come of it, and a delta per state."""
    found = operator_watermark(batch.marks)
    copy.watermark_us = max(copy.watermark_us, NO_WATERMARK if found is None else found)
    out: list[Outgoing] = []
    deltas: list[bytes] = []
    for number, state in zip(plan.stateful, copy.states, strict=True):
        partials = [unpack(blob) for blob in batch.partials.get(number, ())]
        result = state.advance(partials, copy.watermark_us)
        deltas.append(result.delta)
        out.extend((number, kind, blob) for kind, blob in _results(result))
    return out, deltas


def batch_summary(batch: BucketBatch, copy: BucketCopy) -> bytes:
    """What the sink of the batch must know of the whole: every mark, and the watermark."""
    marks = [mark.to_json() for mark in batch.marks]
    return encode_json({"marks": marks, "watermark_us": copy.watermark_us})


def _results(result: Advance) -> Iterator[tuple[BlobKind, bytes]]:
    if result.changes is not None:
        yield BlobKind.CHANGES, encode_table(result.changes)
    if result.unfit is not None:
        yield BlobKind.UNFIT, encode_table(result.unfit)
    counters = Counter(on_time=-result.corrected_rows, corrected=result.corrected_rows)
    if result.dropped is not None:
        yield BlobKind.FORGOTTEN, encode_table(result.dropped)
        for name in ("on_time", "corrected"):  # those that were dropped before are counted so
            count = pc.sum(result.dropped[f"_{name}"]).as_py()
            counters.update({name: -count, "dropped": count})
    if any(counters.values()):
        yield BlobKind.COUNTERS, encode_json(counters)
