"""Runs an application: its log, its Spark and its queries, one process tree that is stopped in order."""

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.app.application import App
from headrace.app.options import RunOptions
from headrace.app.plain_frame import reading_from
from headrace.app.plan.describe import describe_app
from headrace.app.plan.planner import AppPlan, plan_app
from headrace.app.processes.embedded_log import EmbeddedLog, start_log
from headrace.app.processes.sidecars import (
    CaptureSidecar,
    ConsoleSidecar,
    DelivererSidecar,
    EntitySidecar,
    FollowerSidecar,
    start_captures,
    start_class_archiver,
    start_console,
    start_deliverer,
    start_entities,
    start_followers,
)
from headrace.app.projected import projection_stores, request_rebuilds, with_projections
from headrace.app.query.checkpoint import (
    ShadowBuild,
    SideProgress,
    UrlCheckpoints,
    goes_on_from,
    rebuild_target,
    refuse_local_stores,
    side_progress,
)
from headrace.app.query.graphs import graph_target, positions_of
from headrace.app.query.places import graph_folder, stage_folder
from headrace.app.query.sinks import ignore
from headrace.app.query.stores import store_urls
from headrace.app.run.alert_monitor import AlertMonitor
from headrace.app.run.catch_up import CatchUp
from headrace.app.run.failures import QueryFailure, failure_of
from headrace.app.run.input_topics import create_app_topics, tables_losing_rows
from headrace.app.run.launcher import Launched, Launcher
from headrace.app.run.ownership import Ownership
from headrace.app.run.preflight import refuse_unsupported
from headrace.app.run.resting import QueryRest, bring_to_rest
from headrace.app.run.spark import cluster_status, start_spark
from headrace.app.snapshot import restore_snapshot
from headrace.app.status.batch_report import BatchReport
from headrace.app.status.description import write_description
from headrace.app.status.lock import locked
from headrace.app.status.published import Publisher
from headrace.app.status.state import write_held
from headrace.app.status.status import FAILED, REBUILDING, RESTARTING, Rebuild, StatusFile, after_rebuild
from headrace.app.status.stop_request import forget_request, is_requested
from headrace.client import Connection
from headrace.errors import FencedError, RequestError, RetriableError
from headrace.sourcing import create_entity_topics
from headrace.stopping import held_back
from headrace.streams.spark import running_spark
from headrace.views import ViewStore

__all__ = ["Running", "RunningQuery", "running"]

_WATCH_S = 0.2
_PROGRESS_S = 1.0
_OWNERSHIP_S = 1.0
_CLUSTER_S = 3.0
_LONGEST_PAUSE_S = 60.0
_APART_S = 5.0
_RECOVERED_S = 60.0  # a query that cannot reach its log fails sooner than that


@dataclass(slots=True)
class RunningQuery:
    """One of Spark's queries, and how to start it again from its checkpoint."""

    name: str
    start: Callable[[], StreamingQuery]
    spark_query: StreamingQuery
    raised: Callable[[], Exception | None] = lambda: None  # by its sink, since it was last started
    rest: QueryRest = field(default_factory=QueryRest)
    restarts: int = 0
    tries: int = 0
    restart_at: float | None = None
    restarted_at: float | None = None
    _stuck_at: int | None = None

    def resume(self) -> None:
        """Starts it again after it has ended as it should."""
        self.spark_query = self.start()

    def restart(self) -> None:
        """Starts it again after a failure."""
        self.restarts += 1
        self.tries += 1
        self.restart_at = None
        self.restarted_at = time.monotonic()
        self.spark_query = self.start()

    @property
    def pause_s(self) -> float:
        """How long to wait before the next restart: not at all before the first, then longer, to a minute."""
        return min(_LONGEST_PAUSE_S, float(2 ** min(self.tries, 10))) if self.tries else 0.0

    def has_recovered(self) -> bool:
        """Whether it has run for so long since its last restart that what it failed with is over."""
        return self.restarted_at is not None and time.monotonic() - self.restarted_at > _RECOVERED_S

    def note_failure(self, batch_id: int) -> None:
        """It failed after this batch; the count of tries starts over once a restart has made progress."""
        if batch_id != self._stuck_at:
            self._stuck_at, self.tries = batch_id, 0

    def stop(self) -> None:
        self.spark_query.stop()

    def batch_seconds(self) -> float | None:
        """How long Spark took for the last micro-batch, planning included; None before the first."""
        progress = self.spark_query.lastProgress
        return None if progress is None else progress["batchDuration"] / 1000


@dataclass(slots=True)
class Running:
    """A running application: its queries, and the processes beside it.

    `after_first_batch` is called once, when Spark has carried out a batch: for work that would
    take processors from the first results.
    """

    plan: AppPlan
    connection: Connection
    log: EmbeddedLog | None
    options: RunOptions
    status_file: StatusFile
    say: Callable[[str], None]
    launcher: Launcher
    alert_monitor: AlertMonitor
    catch_up: CatchUp
    ownership: Ownership
    commands: "SimpleQueue[Mapping[str, Any]]"
    console: ConsoleSidecar | None = None
    deliverer: DelivererSidecar | None = None
    captures: CaptureSidecar | None = None
    followers: FollowerSidecar | None = None
    entities: EntitySidecar | None = None
    after_first_batch: Callable[[], None] | None = None
    queries: dict[str, RunningQuery] = field(default_factory=dict)
    _launched: Launched | None = None
    _cleanup: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _rebuild_requested: threading.Event = field(default_factory=threading.Event)
    _progress_at: float = 0.0
    _ownership_at: float = 0.0
    _cluster_at: float = 0.0

    @property
    def stores(self) -> Mapping[str, ViewStore]:
        """The store of every view, as it is served."""
        assert self._launched is not None
        return self._launched.opened.stores

    @property
    def _builds(self) -> Iterable[ShadowBuild]:
        return () if self._launched is None else self._launched.opened.builds.values()

    def wait(self, seconds: float | None = None) -> bool:
        """Supervises everything until the queries have ended, the time is up or `stop` is called.

        True if all queries ended by themselves. A query that failed is restarted from its
        checkpoint, unless that cannot help: then RequestError says why. An outage of the log or
        of a store is waited for, however long it takes, unless the run is to end once it has
        caught up. A rebuild that was requested begins here. Raises FencedError when a newer run
        of the same application has taken over. False also when it was asked to come to rest.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._stopping.wait(_WATCH_S):
            self._check_processes()
            self._check_ownership()
            self._run_commands()
            if is_requested(self.options.data):
                self._come_to_rest()
                return False
            if self._rebuild_requested.is_set():
                self._rebuild()
            if not [query for query in self.queries.values() if self._is_alive(query)]:
                if self._resume_second_stages():
                    continue
                self._show_builds()
                for query in self.queries.values():
                    query.rest.settle()
                return True
            self._note_progress()
            self._note_cluster()
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return False

    def stop(self) -> None:
        """Makes `wait` return; the queries end with the context. From any thread or signal handler."""
        self._stopping.set()

    def rebuild(self) -> None:
        """Requests that all views be rebuilt from the log; from any thread.

        `wait` begins it. Readers see the old views until the new ones have reached the end
        that the log had when the rebuild began.
        """
        self._rebuild_requested.set()

    def launch(self, *, rebuild: bool, progress: Mapping[str, SideProgress] | None = None) -> None:
        """Starts all queries from their checkpoints, or, with `rebuild`, from the log."""
        views = () if self._launched is not None else self._rebuilt_alone()
        self._launched = launched = self.launcher.launch(
            self._cleanup, rebuild=rebuild, rebuild_views=views, progress=progress
        )
        if rebuild:
            self._note_rebuild(launched, {*launched.specs, *launched.graph_specs})
        elif views:
            self._note_rebuild(launched, {each.name for each in self.plan.graphs if each.view.name in views})
        for name, spec in launched.specs.items():
            next_offsets = goes_on_from(self.options.query_folder(name), spec)
            self.status_file.query(name, positions={str(each): next_ for each, next_ in next_offsets.items()})
        for planned in self.plan.graphs:
            folder = graph_folder(self.options.data, planned.view.name)
            positions = positions_of(folder, launched.graph_specs[planned.name])
            self.status_file.query(planned.name, positions=positions)
        for name, start in launched.starts.items():
            if self.options.until_caught_up:
                self.catch_up.begin(name)
            query = RunningQuery(name, start, start(), start.raised, start.rest)
            self.status_file.query(name, buckets=start.buckets, tasks=start.tasks)
            self._cleanup.callback(query.stop)
            self.queries[name] = query

    def _rebuilt_alone(self) -> list[str]:
        """The views that Spark is to rebuild alone; projections are none of its."""
        return [each for each in self.options.rebuild_views if each not in self.plan.app.projections]

    def end(self) -> None:
        """Stops the queries and closes their stores."""
        self._cleanup.close()
        self.queries.clear()

    # --- supervising --------------------------------------------------------------------------

    def _check_processes(self) -> None:
        if self.log is not None and self.log.check():
            self.say(f"the log died and was restarted (process {self.log.pid})")
        for sidecar in (self.console, self.deliverer, self.entities, self.captures, self.followers):
            message = sidecar.check() if sidecar is not None else None
            if message is not None:
                self.say(message)

    def _check_ownership(self) -> None:
        now = time.monotonic()
        if now - self._ownership_at < _OWNERSHIP_S:
            return
        self._ownership_at = now
        with contextlib.suppress(RetriableError):  # the log is unreachable, so nobody writes to it
            self.ownership.look()

    def _is_alive(self, query: RunningQuery) -> bool:
        if query.spark_query.isActive:
            if query.has_recovered():
                self.alert_monitor.recovered(query.name)
            return True
        if query.restart_at is None:
            error = query.spark_query.exception()
            if error is None and self.options.until_caught_up:
                return False
            self._note_failure(query, failure_of(error, query.raised()))
        if query.restart_at is not None and time.monotonic() >= query.restart_at:
            query.restart()
            self.status_file.query(query.name, restarts=query.restarts)
        return True

    def _resume_second_stages(self) -> bool:
        """Resumes queries whose topics have grown since they ended; False if there are none."""
        behind = self.catch_up.behind()
        for name in behind:
            self.catch_up.begin(name)
            self.queries[name].resume()
        return bool(behind)

    def _note_failure(self, query: RunningQuery, failure: QueryFailure) -> None:
        """Decides when to restart it; raises RequestError, or FencedError, if that cannot help."""
        status = self.status_file.status.query(query.name)
        query.note_failure(status.batch_id)
        waits = failure.is_outage and not self.options.until_caught_up
        if not failure.may_retry or (query.tries >= self.options.max_restarts and not waits):
            self.status_file.query(query.name, state=FAILED, error=failure.cause)
            if failure.is_fenced:  # a store or a topic noticed first; the log knows who has taken over
                with contextlib.suppress(RetriableError):
                    self.ownership.look()
            raised = FencedError if failure.is_fenced else RequestError
            raise raised(
                f"the query on {query.name} failed: {failure.cause}"
            ) from query.spark_query.exception()
        if failure.is_outage:
            self.alert_monitor.failing(query.name, failure.cause)
        # Their processes would keep each other from starting in time: one after the other.
        before = sum(each.restart_at is not None for each in self.queries.values())
        apart_s = _APART_S * before if failure.is_overload else 0.0
        query.restart_at = time.monotonic() + query.pause_s + apart_s
        self.say(f"the query on {query.name} failed and will be restarted: {failure.cause}")
        state = REBUILDING if status.state == REBUILDING else RESTARTING
        self.status_file.query(query.name, state=state, error=failure.cause)

    def _note_progress(self) -> None:
        """Takes over Spark's progress of the last batches, once a second: each costs a call to the JVM."""
        now = time.monotonic()
        if now - self._progress_at < _PROGRESS_S:
            return
        self._progress_at = now
        for query in self.queries.values():
            seconds = query.batch_seconds()
            if seconds != self.status_file.status.query(query.name).batch_seconds:
                self.status_file.query(query.name, batch_seconds=seconds)
            if seconds is not None and self.after_first_batch is not None:
                self.after_first_batch()
                self.after_first_batch = None
        for build in self._builds:
            build.show_if_caught_up()
        for line in self.alert_monitor.look(self.status_file.status, time.time()):
            self.say(line)
        alerts = self.alert_monitor.active.to_json()
        if alerts != self.status_file.status.alerts:
            self.status_file.note(lambda status, at: replace(status, updated_at=at, alerts=alerts))

    def _note_cluster(self) -> None:
        """Notes what executors there are, and what they keep at a URL, every few seconds."""
        now = time.monotonic()
        if now - self._cluster_at < _CLUSTER_S:
            return
        self._cluster_at = now
        held = {}
        for query in self.queries.values():
            records, folder = query.rest.records, query.rest.folder
            if records is None or records.held is None or folder is None:
                continue
            for stage, buckets in records.held.by_stage().items():
                held[str(stage_folder(folder, stage).relative_to(self.options.data))] = buckets
            if records.held.put_ms != self.status_file.status.query(query.name).put_ms:
                self.status_file.query(query.name, put_ms=records.held.put_ms)
        if held:
            write_held(self.options.data, held)
        cluster = cluster_status(self.launcher.spark)
        if cluster != self.status_file.status.cluster:
            self.status_file.note(lambda status, at: replace(status, updated_at=at, cluster=cluster))

    def _run_commands(self) -> None:
        """Carries out the commands that the console has passed on."""
        while not self.commands.empty():
            command = self.commands.get()
            if command.get("command") == "rebuild":
                self.say(f"rebuild requested by {command.get('who') or 'an unknown user'}")
                self.rebuild()

    # --- coming to rest -----------------------------------------------------------------------

    def _come_to_rest(self) -> None:
        """Lets the batches under way finish, and begins no other."""
        self.say("asked to stop between two micro-batches: waiting for those under way")
        queries = [(each.rest, each.spark_query) for each in self.queries.values()]
        if bring_to_rest(queries, self._check_ownership):
            self.say("stopped between two micro-batches")
        else:
            self.say("stopped; a micro-batch that failed will be repeated by the next start")

    # --- rebuilding ---------------------------------------------------------------------------

    def _rebuild(self) -> None:
        self.say("rebuilding all views from the log; the old ones are served until that is done")
        self._rebuild_requested.clear()
        request_rebuilds(self.plan.app, self.options.data, self.plan.app.projections, compare=False)
        self.end()
        self.alert_monitor.forget()
        self._cleanup = contextlib.ExitStack()
        # The same code finds the same dead and late records: those already on their topics are not repeated.
        self.launch(rebuild=True, progress=side_progress(self.plan, self.options, self.connection))

    def _note_rebuild(self, launched: Launched, names: Collection[str]) -> None:
        targets = {
            name: {str(partition): end for partition, end in rebuild_target(spec, self.connection).items()}
            for name, spec in launched.specs.items()
            if name in names
        }
        targets |= {
            name: graph_target(specs, self.connection)
            for name, specs in launched.graph_specs.items()
            if name in names
        }
        rebuild = Rebuild(began_at=time.time(), targets=targets)
        self.status_file.note(
            lambda status, now: replace(status, updated_at=now, rebuild=rebuild, queries={})
        )
        for name in targets:
            self.status_file.query(name, state=REBUILDING)
        self.status_file.note(after_rebuild)

    def _show_builds(self) -> None:
        """The queries have read everything there was, so what they have built is complete."""
        for build in self._builds:
            build.show_if_caught_up()
            build.show_or_hold()


@contextlib.contextmanager
def running(
    app: App,
    options: RunOptions,
    *,
    on_batch: Callable[[BatchReport], None] = ignore,
    on_message: Callable[[str], None] = ignore,
    on_step: Callable[[str], None] = ignore,
    spark: SparkSession | None = None,
) -> Iterator[Running]:
    """Starts everything an application needs, and stops it in reverse order.

    Its Spark is a session of its own, on the context of `spark`, or of the session that this process
    has, or on a new one.
    """
    refuse_unsupported(options, spark)
    with contextlib.ExitStack() as cleanup:
        cleanup.enter_context(locked(options.data))
        forget_request(options.data)
        cleanup.callback(forget_request, options.data)
        publisher = None if options.url is None else Publisher(options.url, options.data)
        if publisher is not None:
            cleanup.callback(publisher.close)
        status_file = StatusFile(options.data)
        cleanup.callback(status_file.close)
        say = _announcer(status_file, on_message)
        log, connection = None, options.wait_for_log()
        if connection is None:
            log = start_log(options, cleanup, say)
            connection = Connection(bootstrap_servers=log.bootstrap)
        say(f"log: {connection.bootstrap_servers}" + (f" (process {log.pid})" if log else ""))
        commands: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        console = start_console(app, options, connection, commands, say, cleanup)
        if spark is None and running_spark() is None:
            say("Spark: starting, which takes a few seconds")
        own = start_spark(app.name, options, connection, cleanup, spark, say)
        with held_back():  # after an interrupted call to Java nothing could be stopped in order
            cleanup.enter_context(reading_from(own, connection, options.limits))
            plan = plan_app(app, own)
            create_entity_topics(connection, app.name, app.entity_types.values())
            create_app_topics(plan, connection)
            for warning in tables_losing_rows(app, connection):
                say(warning)
            _describe(plan, options, connection)
            alert_monitor = AlertMonitor((each.stream for each in plan.streams), connection)
            cleanup.callback(alert_monitor.close)
            _request_rebuilds(app, options)
            reporter = _reporter(status_file, alert_monitor, on_batch)
            ownership = Ownership(connection, app.name, options.url or options.data)
            cleanup.callback(ownership.release)
            checkpoints = _checkpoints(plan, options)
            restore_snapshot(app.name, options, say)
            launcher = Launcher(
                own, plan, connection, options, reporter, on_step, ownership, say, checkpoints
            )
            catch_up = CatchUp(plan, connection)
            started = Running(
                plan,
                connection,
                log,
                options,
                status_file,
                say,
                launcher,
                alert_monitor,
                catch_up,
                ownership,
                commands,
            )
            started.console = None if console is None else console.result()
            with ThreadPoolExecutor(thread_name_prefix="sidecars") as starters:
                deliverer = starters.submit(start_deliverer, app, options, connection, say, cleanup)
                captures = starters.submit(start_captures, app, options, connection, say, cleanup)
                followers = starters.submit(start_followers, app, options, connection, say, cleanup)
                entities = starters.submit(start_entities, app, options, connection, say, cleanup)
            started.deliverer, started.captures = deliverer.result(), captures.result()
            started.followers, started.entities = followers.result(), entities.result()
            cleanup.callback(started.end)
            started.after_first_batch = partial(start_class_archiver, options, say, cleanup)
            started.launch(rebuild=options.rebuild)
            if publisher is not None:
                publisher.start(ownership.look)
                cleanup.callback(publisher.stop)  # before the ownership ends
        yield started


def _checkpoints(plan: AppPlan, options: RunOptions) -> UrlCheckpoints | None:
    """Where checkpoints are kept, if not in the data folder."""
    if options.url is None:
        return None
    frames = [each.view.name for each in plan.frames]
    stores = {**store_urls(plan, options.data), **projection_stores(plan.app, options.data)}
    refuse_local_stores(stores, frames, options.url)
    checkpoints = UrlCheckpoints(options.url, options.data)
    checkpoints.require_usable()
    return checkpoints


def _announcer(status_file: StatusFile, on_message: Callable[[str], None]) -> Callable[[str], None]:
    def say(text: str) -> None:
        status_file.message(text)
        on_message(text)

    return say


def _reporter(
    status_file: StatusFile, alert_monitor: AlertMonitor, on_batch: Callable[[BatchReport], None]
) -> Callable[[BatchReport], None]:
    def report(batch: BatchReport) -> None:
        status_file.batch(batch)
        alert_monitor.batch(batch)
        status_file.note(after_rebuild)
        on_batch(batch)

    return report


def _request_rebuilds(app: App, options: RunOptions) -> None:
    """Projections are rebuilt by those who serve the entities."""
    asked = app.projections if options.rebuild else app.projections.keys() & set(options.rebuild_views)
    request_rebuilds(app, options.data, asked, compare=options.compare)


def _describe(plan: AppPlan, options: RunOptions, connection: Connection) -> None:
    """Writes the application's description to the data folder, for the processes beside it."""
    file = None if options.file is None else str(options.file.resolve())
    stores = store_urls(plan, options.data)
    described = describe_app(
        plan, stores, bootstrap=connection.bootstrap_servers, file=file, folder=Path.cwd()
    )
    write_description(options.data, with_projections(described, plan.app, options.data, Path.cwd()))
