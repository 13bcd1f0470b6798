"""Keeps one projection up to date: reads its events, and writes its rows to their store.

Of all serving processes one does that: the member of the projection's group that has partition 0 of the
events, which then reads all partitions. That is for economy only. Rows and offsets are written in one
transaction, as the next batch after the one that the rows in memory came from; so of two processes that
both believe to be that one, one fails to write, and reads what the store has.

A projection whose function has changed is made from the log once more, in memory, while readers see the old
rows, which are replaced in one transaction. It may be held back until somebody has seen what differs.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher, consumer
from headrace.client.topics import SILENT_LOGGER
from headrace.errors import HeadraceError, RequestError, RetriableError
from headrace.records import Record
from headrace.sourcing.projections.projection import Projection, projection_group
from headrace.sourcing.projections.replay import failure_at, replay_events
from headrace.sourcing.projections.rows import ProjectedRows
from headrace.sourcing.records import Topics, read_event_record
from headrace.sourcing.topics import wait_committed_ends
from headrace.views import Snapshot, ViewBatch, ViewStore, open_store, rows_as_changes
from headrace.views.rebuilt import Comparison, Rebuilds, compare_versions

__all__ = ["ProjectionStart", "ProjectionWorker"]

_POLL_S = 0.2
_MOST_EVENTS = 2_000
_PROGRESS_S = 1.0
_AGAIN_S, _LONGEST_PAUSE_S = 0.5, 30.0
_FIRST_BATCH = 0
_TRANSIENT = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)


class _Superseded(HeadraceError):  # noqa: N818 - what has happened
    """Newer code has made the rows since this process began."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionStart:
    """Where a projection is kept, and where rebuilds are asked for, compared and approved.

    With `compare`, also a rebuild for which nobody has asked, because the code has changed, waits until it
    is approved if anything differs.
    """

    store: str
    rebuilds: Rebuilds
    compare: bool = False
    say: Callable[[str], None] = lambda _: None


@dataclass(slots=True)
class _Built:
    """The rows in memory, the offsets that they reflect, and the batch of the store that has them.

    `written` are the offsets that the store knows, and `looked_at` when requests were looked for last.
    `held` is the comparison that somebody has to see before these rows are shown.
    """

    rows: ProjectedRows
    query_id: str
    offsets: dict[int, int] = field(default_factory=dict)
    written: dict[int, int] = field(default_factory=dict)
    batch_id: int = _FIRST_BATCH - 1
    held: Comparison | None = None
    looked_at: float = 0.0


class ProjectionWorker:
    """A member of a projection's group; `run` returns when `stopping` is set.

    An event that the function fails on is tried again, ever more rarely, and never skipped: what is behind
    it waits.
    """

    def __init__(
        self,
        connection: Connection,
        app: str,
        projection: Projection,
        start: ProjectionStart,
        stopping: threading.Event,
    ) -> None:
        self._connection = connection
        self._app = app
        self._projection = projection
        self._start = start
        self._rebuilds = start.rebuilds
        self._stopping = stopping
        self._say = start.say
        self._name = projection.name
        self._topic = Topics.of(app, projection.kind.name).events
        self._store: ViewStore | None = None
        self._found: str | None = None  # the query whose rows were there when this process began
        self._leads = False
        self._built: _Built | None = None
        self._pause_s = _AGAIN_S

    def run(self) -> None:
        """Projects; after a failure it joins again, and continues where the store says it was."""
        try:
            while not self._stopping.is_set():
                try:
                    self._project()
                except _Superseded:
                    self._say(f"projection {self._name}: newer code keeps it; this process leaves it alone")
                    return
                except HeadraceError as error:
                    self._say(f"projection {self._name}: {error}; trying again in {self._pause_s:g} s")
                    self._stopping.wait(self._pause_s)
                    self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        finally:
            if self._store is not None:
                self._store.close()

    def _opened(self) -> ViewStore:
        if self._store is None:
            self._store = open_store(self._start.store, connection=self._connection)
            if self._name in self._store.views():
                self._found = self._store.reflected(self._name).query_id
        return self._store

    def _project(self) -> None:
        self._opened()
        member = consumer(
            self._connection,
            projection_group(self._app, self._name),
            auto_offset_reset="error",
            enable_partition_eof=True,
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            fetch_error_backoff_ms=50,
            logger=SILENT_LOGGER,
        )
        self._leads, self._built = False, None
        try:
            member.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke
            )
            while not self._stopping.is_set():
                if self._leads and self._built is None:
                    self._take_over(member)
                self._follow(member)
        finally:
            member.close()

    def _on_assign(self, member: Consumer, assigned: list[TopicPartition]) -> None:
        self._leads = any(each.partition == 0 for each in assigned)
        member.assign([])

    def _on_revoke(self, member: Consumer, revoked: list[TopicPartition]) -> None:
        del revoked
        self._leads, self._built = False, None
        member.unassign()

    # --- taking over --------------------------------------------------------------------------

    def _take_over(self, member: Consumer) -> None:
        """Loads the rows, or makes them anew, and reads on behind them."""

        def keep_on() -> bool:
            member.poll(0)  # a long history must not look like a process that is gone
            return self._leads and not self._stopping.is_set()

        with RawFetcher(self._connection) as fetcher:
            built = self._load(fetcher, keep_on)
            if built is None or not keep_on():
                return
            starts = fetcher.offsets(self._topic, EARLIEST)
        self._built = built
        member.assign(
            [TopicPartition(self._topic, each, built.offsets.get(each, at)) for each, at in starts.items()]
        )

    def _load(self, fetcher: RawFetcher, keep_on: Callable[[], bool]) -> _Built | None:
        """What to go on from; None if this process shall not keep the projection any more."""
        store, schema = self._opened(), self._projection.schema
        fingerprint, request = self._projection.fingerprint(), self._rebuilds.requested(self._name)
        wanted = fingerprint if request is None else f"{fingerprint}.{request.id}"
        if self._name not in store.views():
            store.prepare(schema)
        query_id = store.reflected(self._name).query_id
        if query_id is None:
            store.begin(self._name, wanted, schema=schema, first_batch=_FIRST_BATCH)
            return _Built(ProjectedRows(self._projection), wanted)
        is_fitting = query_id.split(".")[0] == fingerprint
        if query_id == wanted or (request is None and is_fitting):
            store.begin(self._name, query_id)
            return self._continued(fetcher, query_id)
        if not is_fitting and query_id != self._found:
            raise _Superseded(query_id)
        compare = self._start.compare if request is None else request.compare
        return self._rebuilt(fetcher, wanted, compare, keep_on)

    def _continued(self, fetcher: RawFetcher, query_id: str) -> _Built:
        shown = self._opened().snapshot(self._name)
        rows = ProjectedRows.load(self._projection, shown.rows)
        offsets = dict(shown.reflected.offsets.get(self._topic, {}))
        ends = fetcher.offsets(self._topic, LATEST, committed=False)
        for partition, at in offsets.items():
            if at > ends.get(partition, 0):
                raise RequestError(
                    f"its rows reflect {self._topic}-{partition} up to {at}, and the log ends at "
                    f"{ends.get(partition, 0)}: it is another log, or an older copy. Serve the application "
                    f"with --rebuild-view {self._name} to make it from this one"
                )
        return _Built(rows, query_id, offsets, dict(offsets), shown.reflected.batch_id)

    # --- making it anew -----------------------------------------------------------------------

    def _rebuilt(
        self,
        fetcher: RawFetcher,
        query_id: str,
        compare: bool,
        keep_on: Callable[[], bool],
    ) -> _Built | None:
        """The rows from the log; first those that can be compared with what is shown.

        What is shown is not read otherwise: it may be damaged, and the reason for the rebuild.
        """
        built = _Built(ProjectedRows(self._projection), query_id)
        if compare:
            self._rebuilds.hold(self._name, query_id)
        known = self._rebuilds.of_query(self._name, query_id)
        self._say(f"projection {self._name}: made from the log once more; the old rows are shown meanwhile")
        if known is not None and not known.is_approved:
            shown = self._opened().snapshot(self._name)
            if not self._read_to(fetcher, built, shown.reflected.offsets.get(self._topic, {}), keep_on):
                return None
            built.held = self._compared(shown, built)
        if not self._read_to(fetcher, built, wait_committed_ends(fetcher, self._topic), keep_on):
            return None
        built.rows.changes()
        if built.held is None:
            self._show(built)
        return built

    def _read_to(
        self,
        fetcher: RawFetcher,
        built: _Built,
        ends: Mapping[int, int],
        keep_on: Callable[[], bool],
    ) -> bool:
        done = replay_events(
            fetcher,
            self._projection,
            self._app,
            lambda event, _: built.rows.apply(event),
            built.offsets,
            ends,
            keep_on=keep_on,
        )
        built.offsets = {**built.offsets, **ends}
        return done

    def _compared(self, shown: Snapshot, built: _Built) -> Comparison | None:
        """What differs at the offsets that the shown rows reflect; None if nothing does."""
        found = compare_versions(
            (self._opened().schema(self._name), shown.rows, shown.reflected.offsets),
            (self._projection.schema, built.rows.table(), {self._topic: built.offsets}),
        )
        self._say(found.in_words())
        if found.is_equal:
            return None
        self._rebuilds.note(self._name, built.query_id, found)
        return found

    def _show(self, built: _Built) -> None:
        """Replaces the rows that are shown, in one transaction."""
        store, name = self._opened(), self._name
        store.begin(name, built.query_id, schema=self._projection.schema, first_batch=_FIRST_BATCH)
        changes = rows_as_changes(built.rows.table())
        self._apply(built, ViewBatch(built.query_id, _FIRST_BATCH, changes, {self._topic: built.offsets}))
        built.held = None
        self._rebuilds.release(name)
        self._say(f"projection {name}: the rows that were made anew are shown")

    def _show_if_approved(self, built: _Built) -> None:
        found = self._rebuilds.of_query(self._name, built.query_id)
        if found is not None and found.is_approved:
            self._show(built)

    # --- following ----------------------------------------------------------------------------

    def _follow(self, member: Consumer) -> None:
        """Applies the events that have come, and writes what they change."""
        first: Any = member.poll(_POLL_S)
        messages = [] if first is None else [first, *member.consume(_MOST_EVENTS, 0)]
        built = self._built
        if built is None:
            return
        failure = self._apply_events(built, messages)
        is_due = time.monotonic() - built.looked_at >= _PROGRESS_S
        if built.held is None:
            self._write(built, is_due=is_due)
        elif is_due:
            built.rows.changes()
            self._show_if_approved(built)
        if is_due:
            built.looked_at = time.monotonic()
            self._show_progress(member, built)
            self._begin_again_if_requested(member, built)
        if failure is not None:
            raise RequestError(f"{failure}; what is behind it waits: mend the function and start again")

    def _begin_again_if_requested(self, member: Consumer, built: _Built) -> None:
        request = self._rebuilds.requested(self._name)
        if request is not None and not built.query_id.endswith(f".{request.id}"):
            self._built = None
            member.assign([])

    def _apply_events(self, built: _Built, messages: Sequence[Any]) -> str | None:
        """Applies them up to one that the function fails on: then why it did."""
        for each in messages:
            error = each.error()
            if error is None:
                event = read_event_record(each.partition(), _record(each))
                try:
                    built.rows.apply(event)
                except Exception as failed:  # a defect of the function: the event is tried again
                    return failure_at(self._projection, self._topic, each.partition(), each.offset(), failed)
                built.offsets[each.partition()] = each.offset() + 1
            elif error.code() == KafkaError._PARTITION_EOF:
                built.offsets[each.partition()] = max(
                    each.offset(), built.offsets.get(each.partition(), 0)
                )  # behind the ends of transactions, too
            elif error.code() not in _TRANSIENT and not error.retriable():
                raise RequestError(f"{self._topic}: {error.str()}")
        return None

    def _write(self, built: _Built, *, is_due: bool) -> None:
        """Writes what has changed; that only offsets have moved, now and then."""
        changes = built.rows.changes()
        if changes is None and not (is_due and built.offsets != built.written):
            return
        offsets = {self._topic: dict(built.offsets)}
        self._apply(built, ViewBatch(built.query_id, built.batch_id + 1, changes, offsets, distinct=True))
        self._pause_s = _AGAIN_S

    def _apply(self, built: _Built, batch: ViewBatch) -> None:
        """Writes a batch; raises RetriableError if another process has written one since ours."""
        if not self._opened().apply(self._name, batch):
            raise RetriableError("another process has written its rows")
        built.batch_id, built.written = batch.batch_id, dict(built.offsets)

    def _show_progress(self, member: Consumer, built: _Built) -> None:
        """Commits how far it is, so that the lag shows; what counts is in the store."""
        offsets = [TopicPartition(self._topic, each, at) for each, at in built.offsets.items()]
        with contextlib.suppress(KafkaException):
            member.commit(offsets=offsets, asynchronous=True)


def _record(message: Any) -> Record:
    return Record(
        message.offset(), message.timestamp()[1], message.key(), message.value(), message.headers() or ()
    )
