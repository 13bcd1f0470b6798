"""Rows into messages, on the side of the source: late ones split off, the rest summed up.

Every row is counted once per view, here: on time, corrected or dropped, or filtered
where the view's own conditions left it out. Dropped records travel whole, to the late
topic; what counts in some window as partial results, one message per bucket.
"""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.records import Places
from headrace.streams.engine.messages import ALL_VIEWS, BlobKind, Message, encode_json, encode_table
from headrace.streams.engine.plan import StreamPlan, ViewPlan
from headrace.streams.event_time import Mark
from headrace.streams.operators import DROPPED, LATE, PUNCTUAL, pack_buckets

__all__ = ["Originals", "ViewPacker", "mark_messages"]

Classes = npt.NDArray[np.int8]


class Originals:
    """The records behind some rows as they stand in the log, for those that must be kept whole."""

    def __init__(self, keys: Places, values: Places) -> None:
        self.keys = keys
        self.values = values

    def take(self, rows: npt.NDArray[np.int64]) -> tuple[pa.Array, pa.Array]:
        """Key and value of the given rows."""
        return self.keys.at(rows).column(), self.values.at(rows).column()


class ViewPacker:
    """Packs the rows of one view; `counters` is what it counted since the last `close`."""

    def __init__(self, number: int, plan: ViewPlan, buckets: int) -> None:
        self._number = number
        self._plan = plan
        self._buckets = buckets
        self.counters: Counter[str] = Counter()

    def pack(self, rows: pa.Table, originals: Originals) -> Iterator[Message]:
        """The messages of these rows, which carry the reserved columns and the view's own."""
        operator = self._plan.operator
        if operator is None:
            self.counters["on_time"] += rows.num_rows
            if rows.num_rows:
                yield from self._rows(rows)
            return
        classes = operator.classify(rows)
        self._count(classes)
        if (classes == DROPPED).any():
            yield self._late(rows, classes, originals)
        yield from self._partials(operator.partial(rows, classes))

    def close(self, bucket: int) -> Iterator[Message]:
        """What was counted, once, to one bucket."""
        if self.counters:
            yield Message(bucket, self._number, BlobKind.COUNTERS, encode_json(self.counters))
            self.counters = Counter()

    def _rows(self, rows: pa.Table) -> Iterator[Message]:
        """Rows as they are, or, of each key, the last."""
        latest = self._plan.latest
        if latest is None:
            yield Message(self.bucket(rows), self._number, BlobKind.ROWS, encode_table(rows))
        else:
            yield from self._partials(latest.partial(rows))

    def bucket(self, rows: pa.Table) -> int:
        """Where rows that belong to no key go: partitions are spread over the buckets, and so over tasks."""
        return int(rows["_partition"][0].as_py()) % self._buckets

    def _partials(self, partial: pa.Table) -> Iterator[Message]:
        assert self._plan.stateful is not None
        for bucket, blob in pack_buckets(partial, self._plan.stateful.keys, self._buckets):
            yield Message(bucket, self._number, BlobKind.PARTIAL, blob)

    def _count(self, classes: Classes) -> None:
        counts = np.bincount(classes, minlength=3)
        for name, number in (("on_time", PUNCTUAL), ("corrected", LATE), ("dropped", DROPPED)):
            self.counters[name] += int(counts[number])

    def _late(self, rows: pa.Table, classes: Classes, originals: Originals) -> Message:
        """The dropped records, with the windows that each was too late for."""
        assert self._plan.operator is not None
        late = np.flatnonzero(classes == DROPPED)
        kept = rows.take(pa.array(late))
        keys, values = originals.take(late)
        missed = self._plan.operator.missed(kept)
        table = pa.table(
            {
                **{name: kept[name] for name in ("_partition", "_offset", "_event_time", "_watermark")},
                "key": keys,
                "value": values,
                **{name: missed[name] for name in missed.column_names},
            }
        )
        return Message(self.bucket(kept), self._number, BlobKind.LATE, encode_table(table))


def mark_messages(plan: StreamPlan, mark: Mark) -> Iterator[Message]:
    """The mark of one partition, to every bucket: all of them close the same windows."""
    blob = encode_json(mark.to_json())
    for bucket in range(plan.buckets):
        yield Message(bucket, ALL_VIEWS, BlobKind.MARK, blob)
