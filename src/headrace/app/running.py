"""Runs an application: its log, its Spark, its queries; one process tree, ended in order."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pyspark.sql.streaming.query import StreamingQuery

from headrace.app.application import App
from headrace.app.failures import failure_of
from headrace.app.frames import ready_frames
from headrace.app.log_process import EmbeddedLog
from headrace.app.planning import AppPlan, plan_app
from headrace.app.sink import BatchReport, ignore
from headrace.app.starting import (
    RunOptions,
    Starter,
    create_app_topics,
    locked,
    open_stores,
    ready_manifests,
    start_log,
    start_spark,
)
from headrace.app.surroundings import reading_from
from headrace.errors import RequestError
from headrace.views import ViewStore

__all__ = ["RunOptions", "Running", "RunningQuery", "running"]

_WATCH_S = 0.2


@dataclass(slots=True)
class Running:
    """An application that runs: its queries, and the log it started if it has one."""

    plan: AppPlan
    bootstrap: str
    log: EmbeddedLog | None
    stores: Mapping[str, ViewStore]
    queries: "dict[str, RunningQuery]"
    max_restarts: int
    ends: bool
    on_message: Callable[[str], None]
    _stopping: threading.Event = field(default_factory=threading.Event)

    def wait(self, seconds: float | None = None) -> bool:
        """Watches over the queries until they ended, the time is over or `stop` is called.

        True if all queries ended by themselves. A query that failed is started again
        from its checkpoint, unless that cannot help: then RequestError says why.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._stopping.wait(_WATCH_S):
            if self.log is not None and self.log.check():
                self.on_message(f"the log had died and was started again (process {self.log.pid})")
            if not [query for query in self.queries.values() if self._is_alive(query)]:
                return True
            if deadline is not None and time.monotonic() >= deadline:
                return False
        return False

    def stop(self) -> None:
        """Lets `wait` return; the queries end when the context does. From any thread or signal handler."""
        self._stopping.set()

    def _is_alive(self, query: "RunningQuery") -> bool:
        if query.spark_query.isActive:
            return True
        error = query.spark_query.exception()
        if error is None and self.ends:
            return False
        failure = failure_of(error)
        if not failure.may_retry or query.restarts >= self.max_restarts:
            raise RequestError(f"the query on {query.name} failed: {failure.cause}")
        self.on_message(f"the query on {query.name} failed and is started again: {failure.cause}")
        query.restart()
        return True


@dataclass(slots=True)
class RunningQuery:
    """One of Spark's queries, and how to start it once more from its checkpoint."""

    name: str
    start: Callable[[], StreamingQuery]
    spark_query: StreamingQuery
    restarts: int = 0

    def restart(self) -> None:
        self.restarts += 1
        self.spark_query = self.start()

    def stop(self) -> None:
        self.spark_query.stop()


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
        log = None if options.bootstrap else start_log(options.data, ending)
        bootstrap = options.bootstrap or (log.bootstrap if log else "")
        on_message(f"log: {bootstrap}" + (f" (process {log.pid})" if log else ""))
        on_message("Spark: starting, which takes a few seconds")
        spark = start_spark(app.name, options, ending)
        ending.enter_context(reading_from(spark, bootstrap))
        plan = plan_app(app, spark)
        create_app_topics(plan, bootstrap)
        manifests = ready_manifests(plan, options)
        frames = ready_frames(plan, options.data, rebuild=options.rebuild)
        ids = {view.view.name: manifests[each.name].query_id for each in plan.streams for view in each.views}
        ids |= {name: manifest.query_id for name, manifest in frames.items()}
        stores = open_stores(plan, options, bootstrap, ids, ending)
        started = Running(
            plan, bootstrap, log, stores, {}, options.max_restarts, options.until_caught_up, on_message
        )
        starter = Starter(spark, app.name, bootstrap, options, stores, ending, on_batch, on_step)
        starts = {each.name: starter.prepare(each, manifests[each.name]) for each in plan.streams}
        starts |= {
            f"DataFrame {each.view.name}": starter.prepare_frame(each, frames[each.view.name])
            for each in plan.frames
        }
        for name, start in starts.items():
            query = RunningQuery(name, start, start())
            ending.callback(query.stop)
            started.queries[name] = query
        yield started
