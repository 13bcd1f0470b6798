"""A share partition: what one queue knows of one partition.

```text
        start_offset                                          end_offset
  done  | acquired x3 | acknowledged | available x2 | acquired x1 |  not yet delivered
```

The window between the two offsets is a row of runs without gaps: consecutive records
in the same state. Records below are finished, records above were never delivered.
Finished runs in the midst are merged, so the number of runs is bounded by the number
of records that are not finished, and that by `share.partition.max.record.locks` and
the rest of a batch.

A record is *acquired* by one member until a deadline, its lease. It becomes
*acknowledged* (accepted) or *archived* (never to be delivered again), both for good;
*available* when it was given back or its lease ran out; or *archiving*: given up, and
on its way to the dead-letter topic. Only when it stands there it is archived.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

__all__ = [
    "FINISHED",
    "Burial",
    "GiveUpReason",
    "RecordRun",
    "RecordState",
    "SharePartition",
    "Span",
    "advanced",
    "merged",
    "pieces",
]


class RecordState(StrEnum):
    """Kafka's names; what is neither acknowledged nor archived counts as in flight."""

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    ACKNOWLEDGED = "acknowledged"
    ARCHIVING = "archiving"
    ARCHIVED = "archived"


_NO_END = 2**63 - 1
FINISHED = frozenset({RecordState.ACKNOWLEDGED, RecordState.ARCHIVED})


class GiveUpReason(StrEnum):
    """Why a record was given up."""

    NONE = ""
    REJECTED = "rejected"
    RELEASED = "released"
    EXPIRED = "expired"


class Span(NamedTuple):
    """Offsets from `first` to `last`, both included."""

    first: int
    last: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRun:
    """Consecutive records in the same state; a deadline is not persisted and does not compare."""

    first: int
    last: int
    state: RecordState
    deliveries: int = 0
    member: str = ""
    reason: GiveUpReason = GiveUpReason.NONE
    deadline_ms: int = field(default=0, compare=False)

    @property
    def count(self) -> int:
        return self.last - self.first + 1

    def continues(self, before: "RecordRun") -> bool:
        """Whether the two are one run; of finished records nothing but that is kept."""
        if before.state != self.state:
            return False
        return self.state in FINISHED or (
            before.deliveries == self.deliveries
            and before.member == self.member
            and before.reason == self.reason
            and before.deadline_ms == self.deadline_ms
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Burial:
    """Dead letters being written: which, where to, and as which idempotent batch, so that twice is once."""

    topic: str
    partition: int
    producer_id: int
    sequence: int
    spans: tuple[Span, ...]

    @property
    def count(self) -> int:
        return sum(span.last - span.first + 1 for span in self.spans)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharePartition:
    """One partition of one queue; see the top of the file. Persisted whole with every change."""

    group_id: str
    topic_id: UUID
    partition: int
    start_offset: int
    runs: tuple[RecordRun, ...] = ()
    burial: Burial | None = None
    producer_id: int = -1
    """Who writes the dead letters of this partition; -1 until there is one."""
    sequence: int = 0

    @property
    def end_offset(self) -> int:
        """The first offset that was never delivered."""
        return self.runs[-1].last + 1 if self.runs else self.start_offset

    @property
    def in_flight(self) -> int:
        """Records of the window that are not finished."""
        return sum(run.count for run in self.runs if run.state not in FINISHED)

    @property
    def finished(self) -> int:
        """Records of the window that are finished, but stand behind one that is not."""
        return sum(run.count for run in self.runs if run.state in FINISHED)

    def next_offset(self) -> int:
        """The first offset that may be delivered now."""
        for run in self.runs:
            if run.state is RecordState.AVAILABLE:
                return run.first
        return self.end_offset

    def available(self) -> Iterator[Span]:
        """What may be delivered now, in order; the last part has no end."""
        for run in self.runs:
            if run.state is RecordState.AVAILABLE:
                yield Span(run.first, run.last)
        yield Span(self.end_offset, _NO_END)

    def next_deadline_ms(self) -> int | None:
        """When the first lease runs out; None: there is none."""
        return min(
            (run.deadline_ms for run in self.runs if run.state is RecordState.ACQUIRED),
            default=None,
        )


def merged(runs: Iterable[RecordRun]) -> tuple[RecordRun, ...]:
    """The same window in as few runs as possible."""
    found: list[RecordRun] = []
    for run in runs:
        if found and run.continues(found[-1]):
            found[-1] = replace(found[-1], last=run.last)
        else:
            found.append(run if run.state not in FINISHED else _bare(run))
    return tuple(found)


def _bare(run: RecordRun) -> RecordRun:
    return RecordRun(first=run.first, last=run.last, state=run.state)


def advanced(partition: SharePartition, runs: Iterable[RecordRun]) -> SharePartition:
    """The partition with another window; what is finished at its beginning is forgotten."""
    window = merged(runs)
    end = window[-1].last + 1 if window else partition.start_offset
    kept = 0
    while kept < len(window) and window[kept].state in FINISHED:
        kept += 1
    window = window[kept:]
    start = window[0].first if window else end
    return replace(partition, start_offset=start, runs=window)


def pieces(runs: Iterable[RecordRun], spans: Iterable[Span]) -> Iterator[tuple[RecordRun, int | None]]:
    """The window cut at the borders of the spans: each piece with the number of the span that it lies in.

    The spans come in order and do not overlap.
    """
    numbered = iter(enumerate(spans))
    number, span = next(numbered, (None, None))
    for run in runs:
        rest: RecordRun | None = run
        while rest is not None:
            while span is not None and span.last < rest.first:
                number, span = next(numbered, (None, None))
            if span is None or span.first > rest.last:
                yield rest, None
                rest = None
            elif span.first > rest.first:
                yield replace(rest, last=span.first - 1), None
                rest = replace(rest, first=span.first)
            elif span.last < rest.last:
                yield replace(rest, last=span.last), number
                rest = replace(rest, first=span.last + 1)
            else:
                yield rest, number
                rest = None
