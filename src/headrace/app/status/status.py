"""The state of a running application, in `status.json` in its data folder, for other processes.

The driver records batches, restarts, failures and messages in a `StatusFile`, which writes
them at most twice a second. Pure functions on `AppStatus` decide what they change. Whether
the driver runs at all is said by its lock (`is_running`), not by this file: a driver that is
killed leaves its last status behind.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from headrace.app.status.batch_report import BatchReport
from headrace.json_files import read_json, write_json

__all__ = [
    "AppStatus",
    "ClusterStatus",
    "QueryStatus",
    "Rebuild",
    "StatusFile",
    "StatusMessage",
    "after_rebuild",
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

# The states of a query.
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

    `positions` are the next offsets to be read, by partition as text, or by "topic/partition"
    of a query over several topics; `recent` are the last batches that read something: when
    they were done, and how many records each had. `inputs` are what became of the records of
    each input, of a query over several topics. State is in `buckets`, on which at most `tasks` tasks work
    at a time; `put_ms` is how long the slowest of them took in the last batch to put a bucket's state into
    an object store.
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
    inputs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    buckets: int = 0
    tasks: int = 0
    put_ms: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """Where Spark runs: how many executors there are now, and how many tasks they run at a time."""

    master: str
    executors: int
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusMessage:
    """A message of the driver."""

    at: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild:
    """The last rebuild: the offsets each query must reach, as its positions are named, to complete it."""

    began_at: float
    targets: Mapping[str, Mapping[str, int]]
    done_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AppStatus:
    """An application at one point in time; on a local Spark there is no cluster."""

    pid: int
    started_at: float
    updated_at: float
    queries: Mapping[str, QueryStatus] = field(default_factory=dict)
    messages: tuple[StatusMessage, ...] = ()
    alerts: tuple[Mapping[str, Any], ...] = ()
    rebuild: Rebuild | None = None
    cluster: ClusterStatus | None = None

    def query(self, name: str) -> QueryStatus:
        """The status of a query; that of one that starts, if nothing is known of it."""
        return self.queries.get(name, QueryStatus())

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "AppStatus":
        """What `asdict` made of a status."""
        return cls(
            pid=data["pid"],
            started_at=data["started_at"],
            updated_at=data["updated_at"],
            queries={name: _query(each) for name, each in data["queries"].items()},
            messages=tuple(StatusMessage(**each) for each in data["messages"]),
            alerts=tuple(data["alerts"]),
            rebuild=None if data["rebuild"] is None else Rebuild(**data["rebuild"]),
            cluster=ClusterStatus(**data["cluster"]) if data.get("cluster") else None,
        )


def _query(fields: dict[str, Any]) -> QueryStatus:
    return QueryStatus(**{**fields, "recent": tuple((at, count) for at, count in fields["recent"])})


# --- pure ---------------------------------------------------------------------------------------


def with_query(status: AppStatus, name: str, now: float, **changes: Any) -> AppStatus:
    """The status with fields of one query changed."""
    changed = replace(status.query(name), updated_at=now, **changes)
    return replace(status, updated_at=now, queries={**status.queries, name: changed})


def with_batch(status: AppStatus, batch: BatchReport, now: float) -> AppStatus:
    """The status after a batch; one that is repeated after a failure counts once."""
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
        inputs=_counted(query.inputs, batch.inputs.values()) if is_new else query.inputs,
    )


def _counted(
    before: Mapping[str, Mapping[str, int]], more: Iterable[Mapping[str, Mapping[str, int]]]
) -> dict[str, dict[str, int]]:
    """Counts by input, with those of a batch added."""
    found = {name: Counter(counts) for name, counts in before.items()}
    for view in more:
        for name, counts in view.items():
            found.setdefault(name, Counter()).update(counts)
    return {name: dict(counts) for name, counts in found.items()}


def after_rebuild(status: AppStatus, now: float) -> AppStatus:
    """The status with every query that has reached its rebuild's target running; the last completes it."""
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
    """The fraction of a rebuild that is done, by offsets: 1 once it is complete, None if there was none."""
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
    """The status with one more message; the oldest are dropped beyond a limit."""
    messages = (*status.messages, StatusMessage(at=now, text=text))[-_KEPT_MESSAGES:]
    return replace(status, updated_at=now, messages=messages)


def records_per_s(query: QueryStatus, now: float) -> float:
    """Records that a query read per second, over the last ten seconds."""
    read = sum(count for at, count in query.recent if now - RATE_SPAN_S < at <= now)
    return read / RATE_SPAN_S


# --- the file -----------------------------------------------------------------------------------


class StatusFile:
    """Keeps `status.json` up to date: every change is in the file half a second later.

    May be used from any thread. Changes do not wait for the disk; a thread writes them, and
    `close` writes the last. A disk that refuses the file affects nothing else: `write_error`
    says why.
    """

    def __init__(self, data: Path, now: Callable[[], float] = time.time) -> None:
        self._path = data / _FILE
        self._now = now
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._closed = threading.Event()
        self.write_error: OSError | None = None
        self.writes = 0
        self._status = AppStatus(pid=os.getpid(), started_at=now(), updated_at=now())
        self._writer = threading.Thread(target=self._keep_writing, name="status", daemon=True)
        self._changed.set()
        self._writer.start()

    @property
    def status(self) -> AppStatus:
        """The current status."""
        return self._status

    def note(self, change: Callable[[AppStatus, float], AppStatus]) -> None:
        """Replaces the status by what `change` makes of it and the time."""
        with self._lock:
            self._status = change(self._status, self._now())
        self._changed.set()

    def query(self, name: str, **changes: Any) -> None:
        """Sets fields of one query."""
        self.note(lambda status, now: with_query(status, name, now, **changes))

    def batch(self, report: BatchReport) -> None:
        """A batch of a query has been completed."""
        self.note(lambda status, now: with_batch(status, report, now))

    def message(self, text: str) -> None:
        """Adds a message."""
        self.note(lambda status, now: with_message(status, text, now))

    def close(self) -> None:
        """Marks all queries that did not fail as stopped, and writes the file; harmless when repeated."""
        if self._closed.is_set():
            return
        for name, query in self._status.queries.items():
            if query.state != FAILED:
                self.query(name, state=STOPPED)
        self._closed.set()
        self._changed.set()
        self._writer.join()
        self._write()

    def _keep_writing(self) -> None:
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
            self.write_error = error


def read_status(data: Path) -> AppStatus | None:
    """The last status of the run on this folder; None if there is no readable one."""
    try:
        found = read_json(data / _FILE)
        return None if found is None else AppStatus.from_json(found)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
