"""`headrace verify`: finds the log and the stores of an application, and proves its views one by one."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headrace.app.application import App
from headrace.app.options import RunOptions
from headrace.app.plain_frame import reading_from
from headrace.app.plan.dataflow import PlannedGraph
from headrace.app.plan.planner import AppPlan, plan_app
from headrace.app.processes.embedded_log import start_log
from headrace.app.projected import projection_stores
from headrace.app.query.checkpoint import Manifest, last_commit, reading_place
from headrace.app.query.places import graph_folder
from headrace.app.query.sinks import ignore
from headrace.app.query.stores import store_url
from headrace.app.run.failures import failure_of
from headrace.app.run.preflight import refuse_unsupported
from headrace.app.run.spark import start_spark
from headrace.app.status.lock import locked
from headrace.app.status.log_address import running_address
from headrace.app.verify.recompute import Verdict, verify_graph, verify_projection, verify_view
from headrace.client import Connection
from headrace.errors import ConfigError, HeadraceError
from headrace.streams.dataflow import why_not_replayed
from headrace.views import open_store

__all__ = ["PlannedApp", "log_of", "planned_app", "verified"]

_log = logging.getLogger(__name__)


def verified(
    app: App, options: RunOptions, only: str | None = None, *, on_message: Callable[[str], None] = ignore
) -> Iterator[Verdict]:
    """The verdict on each view, as it is found; the application may run meanwhile.

    What cannot be proved is told in its verdict, and the views behind it are proved all the same.
    Views of plain DataFrames are left out, with a message. Uses the embedded log of a
    run on the same folder, or starts it if none runs.
    Raises ConfigError if there is nothing to verify.
    """
    if only is not None and only not in {**app.views, **app.projections}:
        raise ConfigError(f"{app.name} has no view {only!r}; it has {', '.join(app.views | app.projections)}")
    if app.projections and only not in app.views:
        yield from _verified_projections(app, options, only)
    if not app.views or only in app.projections:
        return
    with planned_app(app, options) as (spark, plan, connection, options):
        for frame in plan.frames:
            if only in (None, frame.view.name):
                on_message(
                    f"{frame.view.name}: not verified, for only Spark knows what its DataFrame has read"
                )
        for flow in plan.graphs:
            if only in (None, flow.view.name):
                yield from _verified_flow(spark, plan, flow, options, connection, on_message)
        for planned in plan.streams:
            folder = options.query_folder(planned.name)
            manifest, done = Manifest.read(folder), last_commit(folder)  # before what is served
            for number, view in enumerate(planned.views):
                url = store_url(plan, view, options.data)
                if url is None or (only is not None and view.view.name != only):
                    continue
                try:
                    with contextlib.closing(open_store(url, connection=connection)) as store:
                        verdict = verify_view(
                            spark, planned, number, store, connection, manifest=manifest, done=done
                        )
                except Exception as error:  # one view's; also what a user's own code raises
                    verdict = Verdict(view=view.view.name, failure=_cause(error, view.view.name))
                yield verdict


def _verified_projections(app: App, options: RunOptions, only: str | None) -> Iterator[Verdict]:
    """Those of projections, which need no Spark."""
    with log_of(options) as (connection, options):
        for name, url in projection_stores(app, options.data).items():
            if only not in (None, name):
                continue
            try:
                with contextlib.closing(open_store(url, connection=connection)) as store:
                    yield verify_projection(app.name, app.projections[name], store, connection)
            except Exception as error:  # one view's; also what a user's own code raises
                yield Verdict(view=name, failure=_cause(error, name))


@contextlib.contextmanager
def log_of(options: RunOptions) -> Iterator[tuple[Connection, RunOptions]]:
    """An application's log, and its data folder as this process can read it; the log is started if it does
    not run."""
    with contextlib.ExitStack() as cleanup:
        options = _readable(options, cleanup)
        yield options.wait_for_log() or _find_log(options, cleanup), options


def _readable(options: RunOptions, cleanup: contextlib.ExitStack) -> RunOptions:
    """The options with a data folder that can be read here; raises ConfigError if there is none."""
    if options.url is None and not options.data.is_dir():
        raise ConfigError(f"there is no {options.data}; run the application first, or name its --data")
    return cleanup.enter_context(reading_place(options))


class PlannedApp(NamedTuple):
    """A Spark, an application's plan, its log, and its data folder as this process can read it."""

    spark: SparkSession
    plan: AppPlan
    connection: Connection
    options: RunOptions


@contextlib.contextmanager
def planned_app(app: App, options: RunOptions) -> Iterator[PlannedApp]:
    """Everything that recomputing takes; the log is started if it does not run."""
    refuse_unsupported(options)
    with contextlib.ExitStack() as cleanup:
        options = _readable(options, cleanup)
        connection = options.wait_for_log() or _find_log(options, cleanup)
        spark = start_spark(app.name, options, connection, cleanup)
        cleanup.enter_context(reading_from(spark, connection))
        yield PlannedApp(spark, plan_app(app, spark), connection, options)


def _verified_flow(
    spark: SparkSession,
    plan: AppPlan,
    planned: PlannedGraph,
    options: RunOptions,
    connection: Connection,
    on_message: Callable[[str], None],
) -> Iterator[Verdict]:
    name = planned.view.name
    unknown = why_not_replayed(planned.graph)
    if unknown is not None:
        on_message(f"{name}: not verified, for {unknown}")
        return
    try:
        url = store_url(plan, planned, options.data)
        assert url is not None
        folder = graph_folder(options.data, name)
        manifest, done = Manifest.read(folder), last_commit(folder)  # before what is served
        with contextlib.closing(open_store(url, connection=connection)) as store:
            yield verify_graph(spark, planned, store, connection, manifest=manifest, done=done)
    except Exception as error:  # one view's; also what a user's own code raises
        yield Verdict(view=name, failure=_cause(error, name))


def _cause(error: Exception, view: str) -> str:
    """In one sentence; what nobody expected is logged whole."""
    if isinstance(error, HeadraceError):
        return str(error)
    if isinstance(error, PySparkException):
        return failure_of(error).cause
    _log.error("%s could not be verified", view, exc_info=error)
    return f"{type(error).__name__}: {error}"


def _find_log(options: RunOptions, cleanup: contextlib.ExitStack) -> Connection:
    address = running_address(options.data / "log")
    if address is None:
        cleanup.enter_context(locked(options.data))
        address = start_log(options, cleanup).bootstrap
    return Connection(bootstrap_servers=address)
