"""Runs an application: its log, its Spark, its queries; one process tree, ended in order."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from headrace.app.alarms import Alarms
from headrace.app.application import App
from headrace.app.checkpoints import told_so_far
from headrace.app.companions import start_console, start_deliverer
from headrace.app.console_process import ConsoleProcess
from headrace.app.deliverer_process import DelivererProcess
from headrace.app.describing import describe_app
from headrace.app.description import write_description
from headrace.app.failures import QueryFailure, failure_of
from headrace.app.launching import Launched, Launcher
from headrace.app.log_process import EmbeddedLog
from headrace.app.manifest import Told
from headrace.app.planning import AppPlan, plan_app
from headrace.app.rebuilds import HiddenBuild, rebuild_target
from headrace.app.reports import BatchReport
from headrace.app.running_query import RunningQuery
from headrace.app.sink import ignore
from headrace.app.stages import Stages
from headrace.app.starting import RunOptions, create_app_topics, locked, start_log, start_spark
from headrace.app.status import (
    FAILED,
    REBUILDING,
    RESTARTING,
    Rebuild,
    StatusBoard,
    after_rebuild,
)
from headrace.app.surroundings import reading_from
from headrace.app.view_stores import store_urls
from headrace.client import Connection
from headrace.errors import RequestError
from headrace.streams.spec import StreamSpec
from headrace.views import ViewStore

__all__ = ["RunOptions", "Running", "RunningQuery", "running"]

_WATCH_S = 0.2
_PROGRESS_S = 1.0


@dataclass(slots=True)
class Running:
    """An application that runs: its queries, and the processes beside it."""

    plan: AppPlan
    connection: Connection
    log: EmbeddedLog | None
    options: RunOptions
    board: StatusBoard
    say: Callable[[str], None]
    launcher: Launcher
    alarms: Alarms
    stages: Stages
    commands: "SimpleQueue[Mapping[str, Any]]"
    console: ConsoleProcess | None = None
    deliverer: DelivererProcess | None = None
    queries: dict[str, RunningQuery] = field(default_factory=dict)
    _launched: Launched | None = None
    _ending: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    _stopping: threading.Event = field(default_factory=threading.Event)
    _rebuild_asked: threading.Event = field(default_factory=threading.Event)
    _looked_at: float = 0.0

    @property
    def stores(self) -> Mapping[str, ViewStore]:
        """The store of every view, as it is served."""
        assert self._launched is not None
        return self._launched.opened.stores

    @property
    def _builds(self) -> Iterable[HiddenBuild]:
        return () if self._launched is None else self._launched.opened.builds.values()

    def wait(self, seconds: float | None = None) -> bool:
        """Watches over everything until the queries ended, the time is over or `stop` is called.

        True if all queries ended by themselves. A query that failed is started again
        from its checkpoint, unless that cannot help: then RequestError says why. A
        rebuild that was asked for is begun here.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._stopping.wait(_WATCH_S):
            self._check_processes()
            self._obey()
            if self._rebuild_asked.is_set():
                self._rebuild()
            if not [query for query in self.queries.values() if self._is_alive(query)]:
                if self._goes_on():
                    continue
                self._show_builds()
                return True
            self._note_progress()
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return False

    def stop(self) -> None:
        """Lets `wait` return; the queries end when the context does. From any thread or signal handler."""
        self._stopping.set()

    def rebuild(self) -> None:
        """Asks for all views to be built anew from the log; from any thread.

        Begun by `wait`. Readers see the old views until the new ones have caught up with
        where the log ended when the rebuild began.
        """
        self._rebuild_asked.set()

    def launch(self, *, rebuild: bool, told: Mapping[str, Told] | None = None) -> None:
        """Starts all queries from their checkpoints, or, with `rebuild`, from the log."""
        self._launched = launched = self.launcher.launch(self._ending, rebuild=rebuild, told=told)
        if rebuild:
            self._note_rebuild(launched.specs)
        for name, start in launched.starts.items():
            if self.options.until_caught_up:
                self.stages.begin(name)
            query = RunningQuery(name, start, start())
            self._ending.callback(query.stop)
            self.queries[name] = query

    def end(self) -> None:
        """Ends the queries and gives their stores back."""
        self._ending.close()
        self.queries.clear()

    # --- watching -----------------------------------------------------------------------------

    def _check_processes(self) -> None:
        if self.log is not None and self.log.check():
            self.say(f"the log had died and was started again (process {self.log.pid})")
        for companion in (self.console, self.deliverer):
            told = companion.check() if companion is not None else None
            if told is not None:
                self.say(told)

    def _is_alive(self, query: RunningQuery) -> bool:
        if query.spark_query.isActive:
            return True
        if query.again_at is None:
            error = query.spark_query.exception()
            if error is None and self.options.until_caught_up:
                return False
            self._note_failure(query, failure_of(error))
        if query.again_at is not None and time.monotonic() >= query.again_at:
            query.restart()
            self.board.query(query.name, restarts=query.restarts)
        return True

    def _goes_on(self) -> bool:
        """Starts queries again that read what others have written meanwhile; False if there are none."""
        behind = self.stages.behind()
        for name in behind:
            self.stages.begin(name)
            self.queries[name].go_on()
        return bool(behind)

    def _note_failure(self, query: RunningQuery, failure: QueryFailure) -> None:
        """Decides when to start it again; raises RequestError if that cannot help."""
        status = self.board.status.query(query.name)
        query.failed_at(status.batch_id)
        if not failure.may_retry or query.tries >= self.options.max_restarts:
            self.board.query(query.name, state=FAILED, error=failure.cause)
            raise RequestError(f"the query on {query.name} failed: {failure.cause}")
        query.again_at = time.monotonic() + query.pause_s
        self.say(f"the query on {query.name} failed and is started again: {failure.cause}")
        state = REBUILDING if status.state == REBUILDING else RESTARTING
        self.board.query(query.name, state=state, error=failure.cause)

    def _note_progress(self) -> None:
        """Spark's own account of the last batches, once a second: asking costs a call to the JVM."""
        now = time.monotonic()
        if now - self._looked_at < _PROGRESS_S:
            return
        self._looked_at = now
        for query in self.queries.values():
            seconds = query.batch_seconds()
            if seconds != self.board.status.query(query.name).batch_seconds:
                self.board.query(query.name, batch_seconds=seconds)
        for build in self._builds:
            build.show_if_caught_up()
        for line in self.alarms.look(self.board.status, time.time()):
            self.say(line)
        alerts = self.alarms.book.to_json()
        if alerts != self.board.status.alerts:
            self.board.note(lambda status, at: replace(status, updated_at=at, alerts=alerts))

    def _obey(self) -> None:
        """Does what the console was asked for."""
        while not self.commands.empty():
            command = self.commands.get()
            if command.get("command") == "rebuild":
                self.say(f"a rebuild was asked for by {command.get('who') or 'somebody'}")
                self.rebuild()

    # --- rebuilding ---------------------------------------------------------------------------

    def _rebuild(self) -> None:
        self.say("rebuilding: all views are built anew from the log; until then the old ones are served")
        self._rebuild_asked.clear()
        self.end()
        self.alarms.forget()
        self._ending = contextlib.ExitStack()
        # The very same code says the same of the same records: what it told is not told again.
        self.launch(rebuild=True, told=told_so_far(self.plan, self.options, self.connection))

    def _note_rebuild(self, specs: Mapping[str, StreamSpec]) -> None:
        targets = {
            name: {str(partition): end for partition, end in rebuild_target(spec, self.connection).items()}
            for name, spec in specs.items()
        }
        begun = Rebuild(began_at=time.time(), targets=targets)
        self.board.note(lambda status, now: replace(status, updated_at=now, rebuild=begun, queries={}))
        for name in targets:
            self.board.query(name, state=REBUILDING)
        self.board.note(after_rebuild)

    def _show_builds(self) -> None:
        """The queries have read all there was: what they built is the whole of it."""
        for build in self._builds:
            build.show_if_caught_up()
            build.show()


@contextlib.contextmanager
def running(
    app: App,
    options: RunOptions,
    *,
    on_batch: Callable[[BatchReport], None] = ignore,
    on_message: Callable[[str], None] = ignore,
    on_step: Callable[[str], None] = ignore,
) -> Iterator[Running]:
    """Starts everything an application needs, and ends it in reverse order."""
    with contextlib.ExitStack() as ending:
        ending.enter_context(locked(options.data))
        board = StatusBoard(options.data)
        ending.callback(board.close)
        say = _sayer(board, on_message)
        log, connection = None, options.wait_for_log()
        if connection is None:
            log = start_log(options.data, ending)
            connection = Connection(bootstrap_servers=log.bootstrap)
        say(f"log: {connection.bootstrap_servers}" + (f" (process {log.pid})" if log else ""))
        commands: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        console = start_console(app, options, connection, commands, say, ending)
        say("Spark: starting, which takes a few seconds")
        spark = start_spark(app.name, options, ending)
        ending.enter_context(reading_from(spark, connection, options.limits))
        plan = plan_app(app, spark)
        create_app_topics(plan, connection)
        _describe(plan, options, connection)
        alarms = Alarms((each.stream for each in plan.streams), connection)
        ending.callback(alarms.close)
        reporter = _reporter(board, alarms, on_batch)
        launcher = Launcher(spark, plan, connection, options, reporter, on_step)
        stages = Stages(plan, connection)
        started = Running(plan, connection, log, options, board, say, launcher, alarms, stages, commands)
        started.console = None if console is None else console.result()
        started.deliverer = start_deliverer(app, options, connection, say, ending)
        ending.callback(started.end)
        started.launch(rebuild=options.rebuild)
        yield started


def _sayer(board: StatusBoard, on_message: Callable[[str], None]) -> Callable[[str], None]:
    def say(text: str) -> None:
        board.message(text)
        on_message(text)

    return say


def _reporter(
    board: StatusBoard, alarms: Alarms, on_batch: Callable[[BatchReport], None]
) -> Callable[[BatchReport], None]:
    def report(batch: BatchReport) -> None:
        board.batch(batch)
        alarms.batch(batch)
        board.note(after_rebuild)
        on_batch(batch)

    return report


def _describe(plan: AppPlan, options: RunOptions, connection: Connection) -> None:
    """Writes down in the data folder what this application is, for the processes beside it."""
    file = None if options.file is None else str(options.file.resolve())
    stores = store_urls(plan, options.data)
    described = describe_app(
        plan, stores, bootstrap=connection.bootstrap_servers, file=file, folder=Path.cwd()
    )
    write_description(options.data, described)
