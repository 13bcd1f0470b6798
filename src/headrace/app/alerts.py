"""When somebody should look: too much that is late, too much that cannot be read, too far behind. Pure.

A `StreamWatch` is told of every batch of one stream's query, and now and then of where
the log ends; `alerts` says what holds. Shares are those of the last batches that read
something, once they had enough records to speak of a share; the delay is the age of the
newest end of the log that the query is known to have come to.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.app.reports import BatchReport

__all__ = ["Alert", "AlertBook", "StreamWatch", "Thresholds"]

LAST_BATCHES = 20
FEWEST_RECORDS = 20
_KEPT_ENDS = 2_000
_LATE = ("corrected", "dropped")
_TIMED = ("on_time", *_LATE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What a stream is held to; None asks for no alert. Shares are parts of 1."""

    late_share: float | None = None
    dead_share: float | None = None
    delay_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that holds now: what it is about, how bad it is, and what to do."""

    kind: str
    subject: str
    severity: str
    title: str
    detail: str
    next: str
    value: float
    threshold: float
    since: float = 0.0

    @property
    def id(self) -> str:
        return f"{self.kind} {self.subject}"

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a status."""
        return {"id": self.id, **asdict(self)}


@dataclass(slots=True)
class StreamWatch:
    """What was seen of one stream lately."""

    stream: str
    thresholds: Thresholds
    _batches: deque[BatchReport] = field(default_factory=lambda: deque(maxlen=LAST_BATCHES))
    _ends: deque[tuple[float, Mapping[int, int]]] = field(default_factory=lambda: deque(maxlen=_KEPT_ENDS))
    _reached: float | None = None

    def batch(self, report: BatchReport) -> None:
        """A batch was done; one that read nothing tells nothing, one that comes again counts once."""
        if report.records and not (self._batches and self._batches[-1].batch_id == report.batch_id):
            self._batches.append(report)

    def forget(self) -> None:
        """A rebuild begins: what was seen before says nothing of it."""
        self._batches.clear()
        self._ends.clear()
        self._reached = None

    def ends(self, now: float, ends: Mapping[int, int], positions: Mapping[int, int]) -> None:
        """Where the log ends now, and where the query stands."""
        self._ends.append((now, ends))
        while self._ends and all(positions.get(each, 0) >= end for each, end in self._ends[0][1].items()):
            self._reached = self._ends.popleft()[0]
        if self._reached is None:
            self._reached = now

    def delay_s(self, now: float) -> float:
        """For how long the query has not come to an end of the log that was seen."""
        return now - self._reached if self._ends and self._reached is not None else 0.0

    def alerts(self, now: float) -> Iterator[Alert]:
        """What holds now."""
        views = {view for report in self._batches for view in report.books}
        for view in sorted(views):
            yield from self._late(view)
        yield from self._dead()
        yield from self._behind(now)

    def _late(self, view: str) -> Iterator[Alert]:
        limit = self.thresholds.late_share
        total, late = self._count(view, _TIMED), self._count(view, _LATE)
        if limit is None or total < FEWEST_RECORDS or late <= limit * total:
            return
        yield Alert(
            kind="late",
            subject=view,
            severity="warning",
            title=f"{late / total:.1%} of the records of {view} are late",
            detail=f"{late:,} of the last {total:,} came after their window closed; {limit:.1%} are allowed",
            next=f"look for slow or wrong clocks among the producers of {self.stream}, or raise its lateness",
            value=late / total,
            threshold=limit,
        )

    def _dead(self) -> Iterator[Alert]:
        limit = self.thresholds.dead_share
        total = sum(report.records for report in self._batches)
        # Every view's books count the stream's dead records.
        dead = sum(
            max((each.get("dead", 0) for each in report.books.values()), default=0)
            for report in self._batches
        )
        if limit is None or total < FEWEST_RECORDS or dead <= limit * total:
            return
        yield Alert(
            kind="dead-letters",
            subject=self.stream,
            severity="warning",
            title=f"{dead / total:.1%} of the records of {self.stream} cannot be read",
            detail=f"{dead:,} of the last {total:,} went to the dead-letter topic ({limit:.1%} are allowed)",
            next="see why with `headrace deadletters list`, mend the producer, then send them again",
            value=dead / total,
            threshold=limit,
        )

    def _behind(self, now: float) -> Iterator[Alert]:
        limit, delay = self.thresholds.delay_s, self.delay_s(now)
        if limit is None or delay <= limit:
            return
        yield Alert(
            kind="lag",
            subject=self.stream,
            severity="warning",
            title=f"the query on {self.stream} is {delay:.0f} seconds behind",
            detail=f"what the log had {delay:.0f} seconds ago is not in its views yet; {limit:g} are allowed",
            next="give it more cores or partitions, or look whether its store or its log is slow",
            value=delay,
            threshold=limit,
        )

    def _count(self, view: str, names: Iterable[str]) -> int:
        return sum(report.books.get(view, {}).get(name, 0) for report in self._batches for name in names)


@dataclass(slots=True)
class AlertBook:
    """The alerts that hold, since when, and what there is to say of their coming and going."""

    held: dict[str, Alert] = field(default_factory=dict)

    def update(self, now: float, alerts: Iterable[Alert]) -> list[str]:
        """Takes what holds now; a line for each alert that is new, and for each that is over."""
        found = {each.id: each for each in alerts}
        began = [each for name, each in found.items() if name not in self.held]
        ended = [each for name, each in self.held.items() if name not in found]
        self.held = {
            name: _since(each, self.held[name].since if name in self.held else now)
            for name, each in found.items()
        }
        return [
            *(f"alert: {each.title}; {each.next}" for each in began),
            *(f"no longer: {each.title}" for each in ended),
        ]

    def to_json(self) -> tuple[dict[str, Any], ...]:
        """All that hold, oldest first."""
        return tuple(each.to_json() for each in sorted(self.held.values(), key=lambda each: each.since))


def _since(alert: Alert, since: float) -> Alert:
    return Alert(**{**asdict(alert), "since": since})
