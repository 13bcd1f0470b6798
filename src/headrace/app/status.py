"""How a running application does, in a file beside its data: `status.json`, for whoever looks from outside.

The driver notes batches, restarts, failures and messages on a `StatusBoard`, which
writes them at most twice a second. What is noted is decided by pure functions on
`AppStatus`. Whether the driver runs at all is not asked here but of its lock
(`is_running`): a driver that is killed leaves its last status behind.
"""

import fcntl
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.app.json_files import read_json, write_json
from headrace.app.reports import BatchReport

__all__ = [
    "AppStatus",
    "Message",
    "QueryStatus",
    "Rebuild",
    "StatusBoard",
    "after_rebuild",
    "is_running",
    "read_status",
    "rebuild_progress",
    "records_per_s",
    "with_batch",
]

WRITE_INTERVAL_S = 0.5
RATE_SPAN_S = 10.0
_KEPT_MESSAGES = 50
_KEPT_BATCHES = 60
_FILE = "status.json"

# What a query may be doing.
STARTING, RUNNING, RESTARTING, FAILED, REBUILDING, STOPPED = (
    "starting",
    "running",
    "restarting",
    "failed",
    "rebuilding",
    "stopped",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryStatus:
    """One query. Counts are since the driver started; times are seconds since the epoch.

    `positions` are the next offsets to be read, by partition as text; `recent` are the
    last batches that read something: when they were done, and how many records each had.
    """

    state: str = STARTING
    batch_id: int = -1
    records: int = 0
    batch_records: int = 0
    batch_seconds: float | None = None
    watermark_us: int | None = None
    restarts: int = 0
    error: str | None = None
    updated_at: float = 0.0
    positions: Mapping[str, int] = field(default_factory=dict)
    recent: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """Something the driver said."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """The last rebuild: where each query must come to, by topic and partition as text, to be done."""

    began_at: float
    targets: Mapping[str, Mapping[str, int]]
    done_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppStatus:
    """An application at one moment."""

    pid: int
    started_at: float
    updated_at: float
    queries: Mapping[str, QueryStatus] = field(default_factory=dict)
    messages: tuple[Message, ...] = ()
    alerts: tuple[Mapping[str, Any], ...] = ()
    rebuild: Rebuild | None = None

    def query(self, name: str) -> QueryStatus:
        """The query of that name, as it is before anything is known of it."""
        return self.queries.get(name, QueryStatus())

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "AppStatus":
        """What `asdict` made of a status."""
        return cls(
            pid=data["pid"],
            started_at=data["started_at"],
            updated_at=data["updated_at"],
            queries={name: _query(each) for name, each in data["queries"].items()},
            messages=tuple(Message(**each) for each in data["messages"]),
            alerts=tuple(data["alerts"]),
            rebuild=None if data["rebuild"] is None else Rebuild(**data["rebuild"]),
        )


def _query(fields: dict[str, Any]) -> QueryStatus:
    return QueryStatus(**{**fields, "recent": tuple((at, count) for at, count in fields["recent"])})


# --- pure ---------------------------------------------------------------------------------------


def with_query(status: AppStatus, name: str, now: float, **changes: Any) -> AppStatus:
    """The status with fields of one query changed."""
    changed = replace(status.query(name), updated_at=now, **changes)
    return replace(status, updated_at=now, queries={**status.queries, name: changed})


def with_batch(status: AppStatus, batch: BatchReport, now: float) -> AppStatus:
    """The status after a batch; a batch that is given again, after a failure, counts once."""
    query = status.query(batch.query)
    is_new = batch.batch_id != query.batch_id
    read = batch.records if is_new else 0
    recent = (*query.recent, (now, read)) if read else query.recent
    marks = [each for each in (query.watermark_us, batch.watermark_us) if each is not None]
    return with_query(
        status,
        batch.query,
        now,
        state=query.state if query.state == REBUILDING else RUNNING,
        batch_id=batch.batch_id,
        records=query.records + read,
        batch_records=batch.records,
        watermark_us=max(marks, default=None),
        positions={**query.positions, **{str(each): next_ for each, next_ in batch.following.items()}},
        recent=tuple(each for each in recent if each[0] > now - RATE_SPAN_S)[-_KEPT_BATCHES:],
    )


def after_rebuild(status: AppStatus, now: float) -> AppStatus:
    """The status with every query as running that has come to where its rebuild must; the last ends it."""
    rebuild = status.rebuild
    if rebuild is None or rebuild.done_at is not None:
        return status
    for name, target in rebuild.targets.items():
        query = status.query(name)
        if query.state == REBUILDING and all(query.positions.get(p, 0) >= end for p, end in target.items()):
            status = with_query(status, name, now, state=RUNNING)
    if any(status.query(name).state == REBUILDING for name in rebuild.targets):
        return status
    return replace(status, updated_at=now, rebuild=replace(rebuild, done_at=now))


def rebuild_progress(status: AppStatus) -> float | None:
    """Which part of a rebuild is done, by offsets: 1 once it is over, None if there was none."""
    if status.rebuild is None:
        return None
    if status.rebuild.done_at is not None:
        return 1.0
    wanted = [
        (name, each, end) for name, ends in status.rebuild.targets.items() for each, end in ends.items()
    ]
    total = sum(end for _, _, end in wanted)
    read = sum(min(status.query(name).positions.get(each, 0), end) for name, each, end in wanted)
    return read / total if total else 1.0


def with_message(status: AppStatus, text: str, now: float) -> AppStatus:
    """The status with one more message; the oldest of too many go."""
    messages = (*status.messages, Message(at=now, text=text))[-_KEPT_MESSAGES:]
    return replace(status, updated_at=now, messages=messages)


def records_per_s(query: QueryStatus, now: float) -> float:
    """Records that a query read per second, over the last ten."""
    read = sum(count for at, count in query.recent if now - RATE_SPAN_S < at <= now)
    return read / RATE_SPAN_S


# --- the file -----------------------------------------------------------------------------------


class StatusBoard:
    """Keeps `status.json` up to date: whatever is noted is in the file half a second later.

    From any thread. Noting waits for no disk; a thread of its own writes, and `close`
    writes the last word. A disk that refuses the file hurts nobody else: `trouble` says why.
    """

    def __init__(self, data: Path, now: Callable[[], float] = time.time) -> None:
        self._path = data / _FILE
        self._now = now
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closed = threading.Event()
        self.trouble: OSError | None = None
        self.writes = 0
        self._status = AppStatus(pid=os.getpid(), started_at=now(), updated_at=now())
        self._writer = threading.Thread(target=self._write_on, name="status", daemon=True)
        self._changed.set()
        self._writer.start()

    @property
    def status(self) -> AppStatus:
        """As it is now."""
        return self._status

    def note(self, change: Callable[[AppStatus, float], AppStatus]) -> None:
        """Replaces the status by what `change` makes of it and of the time."""
        with self._lock:
            self._status = change(self._status, self._now())
        self._changed.set()

    def query(self, name: str, **changes: Any) -> None:
        """Sets fields of one query."""
        self.note(lambda status, now: with_query(status, name, now, **changes))

    def batch(self, report: BatchReport) -> None:
        """A batch of a query is done."""
        self.note(lambda status, now: with_batch(status, report, now))

    def message(self, text: str) -> None:
        """Something was said."""
        self.note(lambda status, now: with_message(status, text, now))

    def close(self) -> None:
        """All queries that did not fail are stopped; harmless when repeated."""
        if self._closed.is_set():
            return
        for name, query in self._status.queries.items():
            if query.state != FAILED:
                self.query(name, state=STOPPED)
        self._closed.set()
        self._changed.set()
        self._writer.join()
        self._write()

    def _write_on(self) -> None:
        while not self._closed.is_set():
            self._changed.wait()
            self._changed.clear()
            self._write()
            self._closed.wait(WRITE_INTERVAL_S)

    def _write(self) -> None:
        self.writes += 1
        try:
            write_json(self._path, asdict(self._status), durable=False)
        except OSError as error:
            self.trouble = error


def read_status(data: Path) -> AppStatus | None:
    """The last status of the run on this folder; None if there is none that can be read."""
    try:
        found = read_json(data / _FILE)
        return None if found is None else AppStatus.from_json(found)
    except (ValueError, KeyError, TypeError):
        return None


def is_running(data: Path) -> bool:
    """Whether a driver holds the folder's lock now."""
    try:
        with (data / "run.lock").open("r") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
    except FileNotFoundError:
        return False
