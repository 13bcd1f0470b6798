"""Watches over the streams of a run, and raises their alerts: what `alerts` decides, with I/O and a lock."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.app.alerts import AlertBook, StreamWatch
from headrace.app.reports import BatchReport
from headrace.app.status import REBUILDING, AppStatus
from headrace.app.stream import Stream
from headrace.client import LATEST, Connection, RawFetcher
from headrace.errors import HeadraceError

__all__ = ["Alarms"]

LOOK_S = 5.0
_PATIENCE_MS = 2_000


class Alarms:
    """The alerts of all streams; `batch` from any thread, the rest from one."""

    def __init__(self, streams: Iterable[Stream], connection: Connection) -> None:
        self._lock = threading.Lock()
        self._watches = {each.spec.topic: StreamWatch(each.spec.topic, each.thresholds) for each in streams}
        self._fetcher = RawFetcher(replace(connection, retry_timeout_ms=_PATIENCE_MS))
        self._next_look = 0.0
        self.book = AlertBook()

    def batch(self, report: BatchReport) -> None:
        """A batch was done."""
        with self._lock:
            if report.query in self._watches:
                self._watches[report.query].batch(report)

    def forget(self) -> None:
        """A rebuild begins."""
        with self._lock:
            for watch in self._watches.values():
                watch.forget()

    def look(self, status: AppStatus, now: float) -> list[str]:
        """What there is to say, a line each; where the log ends is asked every few seconds."""
        if now >= self._next_look:
            self._next_look = now + LOOK_S
            self._ask_ends(status, now)
        with self._lock:
            found = [alert for watch in self._watches.values() for alert in watch.alerts(now)]
        return self.book.update(now, found)

    def close(self) -> None:
        """Closes the connection."""
        self._fetcher.close()

    def _ask_ends(self, status: AppStatus, now: float) -> None:
        for topic, watch in self._watches.items():
            query = status.query(topic)
            if watch.thresholds.delay_s is None or query.state == REBUILDING:
                continue
            try:
                ends: Mapping[int, int] = self._fetcher.offsets(topic, LATEST)
            except HeadraceError:
                return  # the log is away: `Running` sees to that, and asks again
            with self._lock:
                watch.ends(now, ends, {int(each): next_ for each, next_ in query.positions.items()})
