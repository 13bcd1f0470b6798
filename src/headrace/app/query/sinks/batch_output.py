"""The messages of one batch, sorted by what they mean to its sinks; no I/O."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from headrace.app.query.sinks.counters import OF_STREAM, SKIPPED
from headrace.streams import NO_WATERMARK, Mark, PartitionTime
from headrace.streams.engine import BlobKind, Outgoing, decode_json, decode_table
from headrace.views import StagedChanges

__all__ = ["BatchOutput", "collect"]


@dataclass(slots=True)
class BatchOutput:
    """What one batch of one query brought, by view number where it belongs to one."""

    changes: dict[int, list[pa.Table]] = field(default_factory=dict)
    rows: dict[int, list[pa.Table]] = field(default_factory=dict)
    late: dict[int, list[pa.Table]] = field(default_factory=dict)
    forgotten: dict[int, list[pa.Table]] = field(default_factory=dict)
    unfit: dict[int, list[pa.Table]] = field(default_factory=dict)
    failed: dict[int, list[pa.Table]] = field(default_factory=dict)
    dead: list[pa.Table] = field(default_factory=list)
    staged: dict[int, list[StagedChanges]] = field(default_factory=dict)
    counters: dict[int, Counter[str]] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    watermark_us: int | None = None

    @property
    def following(self) -> dict[int, int]:
        """The next offset of every partition that had records in this batch."""
        return {mark.partition: mark.next for mark in self.marks}

    @property
    def times(self) -> Mapping[int, PartitionTime]:
        """The time of those partitions behind the batch."""
        return {mark.partition: mark.time for mark in self.marks}

    @property
    def records(self) -> int:
        """Records read from the log, of whatever kind."""
        return sum(mark.records for mark in self.marks)

    def counts(self, view: int) -> Counter[str]:
        """The counters of one view, with what concerns the stream as a whole."""
        names = (*OF_STREAM, SKIPPED)
        whole = {name: sum(getattr(mark, name) for mark in self.marks) for name in names}
        return self.counters.get(view, Counter()) + Counter(whole)


def collect(messages: Iterable[Outgoing]) -> BatchOutput:
    """The output of a batch from its messages."""
    output = BatchOutput()
    for view, kind, blob in messages:
        _add(output, view, kind, blob)
    return output


def _add(output: BatchOutput, view: int, kind: BlobKind, blob: bytes) -> None:
    if kind is BlobKind.MARK:
        summary = decode_json(blob)
        output.marks = [Mark.from_json(each) for each in summary["marks"]]
        known = summary["watermark_us"] > NO_WATERMARK
        output.watermark_us = summary["watermark_us"] if known else None
    elif kind is BlobKind.COUNTERS:
        output.counters.setdefault(view, Counter()).update(decode_json(blob))
    elif kind is BlobKind.STAGED:
        output.staged.setdefault(view, []).append(StagedChanges(**decode_json(blob)))
    elif kind is BlobKind.DEAD:
        output.dead.append(decode_table(blob))
    else:
        places = {
            BlobKind.CHANGES: output.changes,
            BlobKind.ROWS: output.rows,
            BlobKind.LATE: output.late,
            BlobKind.FORGOTTEN: output.forgotten,
            BlobKind.UNFIT: output.unfit,
            BlobKind.FAILED: output.failed,
        }
        places[kind].setdefault(view, []).append(decode_table(blob))
