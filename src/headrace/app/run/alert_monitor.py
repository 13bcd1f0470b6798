"""Watches the streams of a run and raises their alerts: `status.alerts` decides, this does the I/O."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from headrace.app.status.alerts import ActiveAlerts, Alert, StreamMonitor
from headrace.app.status.batch_report import BatchReport
from headrace.app.status.status import REBUILDING, AppStatus
from headrace.app.stream import Stream
from headrace.client import LATEST, Connection, RawFetcher
from headrace.errors import HeadraceError
from headrace.streams import counted_time

__all__ = ["AlertMonitor"]

LOOK_S = 5.0
OUTAGE_S = 30.0
_PATIENCE_MS = 2_000


class AlertMonitor:
    """The alerts of all streams; `batch` may be called from any thread, the rest from one."""

    def __init__(
        self, streams: Iterable[Stream], connection: Connection, now: Callable[[], float] = time.time
    ) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._monitors = {
            each.spec.topic: StreamMonitor(each.spec.topic, each.thresholds, counted_time(each.spec))
            for each in streams
        }
        self._fetcher = RawFetcher(replace(connection, retry_timeout_ms=_PATIENCE_MS))
        self._outages: dict[str, tuple[float, str]] = {}  # by query: since when, and why
        self._next_look = 0.0
        self.active = ActiveAlerts()

    def batch(self, report: BatchReport) -> None:
        """A batch has been completed."""
        with self._lock:
            self._outages.pop(report.query, None)
            if report.query in self._monitors:
                self._monitors[report.query].batch(report, self._now())

    def failing(self, query: str, cause: str) -> None:
        """A query has failed because something that it needs does not answer."""
        with self._lock:
            since, _ = self._outages.get(query, (self._now(), cause))
            self._outages[query] = since, cause

    def recovered(self, query: str) -> None:
        """It runs again."""
        with self._lock:
            self._outages.pop(query, None)

    def forget(self) -> None:
        """A rebuild begins."""
        with self._lock:
            for monitor in self._monitors.values():
                monitor.forget()

    def look(self, status: AppStatus, now: float) -> list[str]:
        """A line for every alert that began or ended; asks for the ends of the log every few seconds."""
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            self._ask_ends(status, now)
        with self._lock:
            found = [alert for monitor in self._monitors.values() for alert in monitor.alerts(now)]
            found += [
                _outage(query, cause, now - since)
                for query, (since, cause) in self._outages.items()
                if now - since >= OUTAGE_S
            ]
        return self.active.update(now, found)

    def close(self) -> None:
        """Closes the connection."""
        self._fetcher.close()

    def _ask_ends(self, status: AppStatus, now: float) -> None:
        for topic, monitor in self._monitors.items():
            query = status.query(topic)
            if monitor.thresholds.delay_s is None or query.state == REBUILDING:
                continue
            try:
                ends: Mapping[int, int] = self._fetcher.offsets(topic, LATEST)
            except HeadraceError:
                return  # the log is unreachable: `Running` deals with that, and asks again
            with self._lock:
                monitor.ends(now, ends, {int(each): next_ for each, next_ in query.positions.items()})


def _outage(query: str, cause: str, seconds: float) -> Alert:
    return Alert(
        kind="outage",
        subject=query,
        severity="warning",
        title=f"the query on {query} has stood still for {seconds:.0f} seconds",
        detail=cause,
        next="it goes on by itself once that is over; check its log, its store, and how busy its machine is",
        value=seconds,
        threshold=OUTAGE_S,
    )
