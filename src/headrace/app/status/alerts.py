"""When an application needs attention: too many late records, too many unreadable ones, too much lag. Pure.

A `StreamMonitor` takes every batch of one stream's query, and from time to time the ends of
the log; `alerts` says which alerts are active. Shares are taken over the last batches that
read something, once they had enough records to be meaningful, and are dropped when nothing
has been read for a while: input that is silent raises no alert.

The delay is the age of the newest end of the log that the query is known to have reached.
Partitions where the query's position is unknown do not count. A query that starts has to
catch up first, which is no reason for an alert as long as less and less is left: until it
has come within the threshold once, it is behind only if it makes no progress for that long.
Its first batch may take `START_S` longer.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.app.status.batch_report import BatchReport
from headrace.errors import ConfigError

__all__ = ["ActiveAlerts", "Alert", "StreamMonitor", "Thresholds", "parse_share"]

LAST_BATCHES = 20
FEWEST_RECORDS = 20
QUIET_S = 300.0
START_S = 60.0
_KEPT_ENDS = 2_000
_LATE = ("corrected", "dropped")
_TIMED = ("on_time", *_LATE)
_YEAR_US = 365 * 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """The limits of a stream; None for no alert. Shares are fractions of 1."""

    late_share: float | None = None
    dead_share: float | None = None
    delay_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that needs attention now: what it is about, how severe it is, and what to do."""

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
class StreamMonitor:
    """The recent batches and positions of one stream's query."""

    stream: str
    thresholds: Thresholds
    counted_time: str | None = None  # the column of event times and its unit, if it is of numbers
    _batches: deque[BatchReport] = field(default_factory=lambda: deque(maxlen=LAST_BATCHES))
    _ends: deque[tuple[float, Mapping[int, int]]] = field(default_factory=lambda: deque(maxlen=_KEPT_ENDS))
    _read_at: float = 0.0
    _reached: float | None = None
    _has_started: bool = False
    _catching_up: bool = True
    _fewest_left: int | None = None
    _progress_at: float = 0.0

    def batch(self, report: BatchReport, now: float) -> None:
        """A batch has been completed; one without records is ignored, and a repeated one counts once."""
        self._has_started = True
        if report.records and not (self._batches and self._batches[-1].batch_id == report.batch_id):
            if self._is_silent(now):
                self._batches.clear()
            self._batches.append(report)
            self._read_at = now

    def forget(self) -> None:
        """A rebuild begins: what was seen before does not apply to it."""
        self._batches.clear()
        self._ends.clear()
        self._reached, self._fewest_left = None, None
        self._has_started, self._catching_up = False, True

    def ends(self, now: float, ends: Mapping[int, int], positions: Mapping[int, int]) -> None:
        """The ends of the log now, and the positions of the query, as far as they are known."""
        known = {each: end for each, end in ends.items() if each in positions}
        if not known:
            return
        self._ends.append((now, known))
        while self._ends and _has_reached(positions, self._ends[0][1]):
            self._reached = self._ends.popleft()[0]
            if now - self._reached <= (self.thresholds.delay_s or 0.0):
                self._catching_up = False
        if self._reached is None:
            self._reached = now
        left = sum(max(0, end - positions[each]) for each, end in known.items())
        if self._fewest_left is None or left < self._fewest_left:
            self._fewest_left, self._progress_at = left, now

    def delay_s(self, now: float) -> float:
        """For how long the query has not reached an end of the log that was seen."""
        return now - self._reached if self._ends and self._reached is not None else 0.0

    def _is_silent(self, now: float) -> bool:
        return now - self._read_at > QUIET_S

    def _is_progressing(self, now: float) -> bool:
        """Whether a query that is catching up has made progress lately, or has just started."""
        since = self._progress_at if self._has_started else self._progress_at + START_S
        return self._catching_up and now - since <= (self.thresholds.delay_s or 0.0)

    def alerts(self, now: float) -> Iterator[Alert]:
        """The alerts that are active now."""
        if not self._is_silent(now):
            yield from self._shares()
        yield from self._behind(now)

    def _shares(self) -> Iterator[Alert]:
        views = {view for report in self._batches for view in report.counters}
        for view in sorted(views):
            yield from self._late(view)
        yield from self._dead()
        yield from self._long_ago()

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
            next=f"look for slow or wrong clocks among producers of {self.stream}, or allow more lateness",
            value=late / total,
            threshold=limit,
        )

    def _dead(self) -> Iterator[Alert]:
        limit = self.thresholds.dead_share
        total = sum(report.records for report in self._batches)
        # The counters of every view include the stream's dead records.
        dead = sum(
            max((each.get("dead", 0) for each in report.counters.values()), default=0)
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
            next="see why with `headrace deadletters list`, fix the producer, then redrive them",
            value=dead / total,
            threshold=limit,
        )

    def _long_ago(self) -> Iterator[Alert]:
        """Numbers that are read in a finer unit than their own give times in 1970."""
        watermark_us = self._batches[-1].watermark_us if self._batches else None
        if self.counted_time is None or watermark_us is None or not 0 < watermark_us < _YEAR_US:
            return
        yield Alert(
            kind="event-time",
            subject=self.stream,
            severity="warning",
            title=f"the events of {self.stream} are dated 1970",
            detail=f"{self.counted_time}; times in a coarser unit, such as seconds, look like this",
            next='if they are in seconds, declare time_unit="s" (or "ms", "us"), and run it with --rebuild',
            value=watermark_us / 1_000_000,
            threshold=_YEAR_US / 1_000_000,
        )

    def _behind(self, now: float) -> Iterator[Alert]:
        limit, delay = self.thresholds.delay_s, self.delay_s(now)
        if limit is None or delay <= limit or self._is_progressing(now):
            return
        yield Alert(
            kind="lag",
            subject=self.stream,
            severity="warning",
            title=f"the query on {self.stream} is {delay:.0f} seconds behind",
            detail=f"what the log had {delay:.0f} seconds ago is not in its views yet; {limit:g} are allowed",
            next="give it more cores or partitions, or check whether its store or its log is slow",
            value=delay,
            threshold=limit,
        )

    def _count(self, view: str, names: Iterable[str]) -> int:
        return sum(report.counters.get(view, {}).get(name, 0) for report in self._batches for name in names)


def _has_reached(positions: Mapping[int, int], ends: Mapping[int, int]) -> bool:
    """Whether every partition whose position is known has reached its end."""
    return all(positions.get(each, end) >= end for each, end in ends.items())


@dataclass(slots=True)
class ActiveAlerts:
    """The alerts that are active, since when, and messages about those that begin and end."""

    active: dict[str, Alert] = field(default_factory=dict)

    def update(self, now: float, alerts: Iterable[Alert]) -> list[str]:
        """Takes the alerts that are active now; a line for each that has begun or ended."""
        found = {each.id: each for each in alerts}
        began = [each for name, each in found.items() if name not in self.active]
        ended = [each for name, each in self.active.items() if name not in found]
        self.active = {
            name: _since(each, self.active[name].since if name in self.active else now)
            for name, each in found.items()
        }
        return [
            *(f"alert: {each.title}; {each.next}" for each in began),
            *(f"alert over: {each.title}" for each in ended),
        ]

    def to_json(self) -> tuple[dict[str, Any], ...]:
        """All that are active, oldest first."""
        return tuple(each.to_json() for each in sorted(self.active.values(), key=lambda each: each.since))


def _since(alert: Alert, since: float) -> Alert:
    return Alert(**{**asdict(alert), "since": since})


def parse_share(name: str, given: str | float | None) -> float | None:
    """A part of 1 from "5 %" or 0.05; None stays None. Raises ConfigError naming the argument."""
    if given is None:
        return None
    text = given.strip() if isinstance(given, str) else given
    try:
        share = float(text.removesuffix("%")) / 100 if isinstance(text, str) else float(text)
        if isinstance(text, str) and not text.endswith("%"):
            raise ValueError
    except ValueError:
        raise ConfigError(f'{name}={given!r} is no share; write "5 %", 0.05, or None for no alert') from None
    if not 0 <= share <= 1:
        raise ConfigError(f"{name}={given!r} is not between 0 and 100 %")
    return share
