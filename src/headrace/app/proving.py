"""`headrace verify`: finds the log and the stores of an application, and proves its views one by one."""

import contextlib
import logging
from collections.abc import Callable, Iterator

from pyspark.errors import PySparkException

from headrace.app.application import App
from headrace.app.failures import failure_of
from headrace.app.log_process import running_address
from headrace.app.manifest import Manifest
from headrace.app.planning import plan_app
from headrace.app.sink import ignore
from headrace.app.starting import RunOptions, locked, start_log, start_spark
from headrace.app.surroundings import reading_from
from headrace.app.verifying import Verdict, verify_view
from headrace.app.view_stores import store_url
from headrace.client import Connection
from headrace.errors import ConfigError, HeadraceError
from headrace.views import open_store

__all__ = ["verified"]

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
    if only is not None and only not in app.views:
        raise ConfigError(f"{app.name} has no view {only!r}; it has {', '.join(app.views)}")
    if not options.data.is_dir():
        raise ConfigError(f"there is no {options.data}; run the application first, or name its --data")
    with contextlib.ExitStack() as ending:
        connection = options.wait_for_log() or _find_log(options, ending)
        spark = start_spark(app.name, options, ending)
        ending.enter_context(reading_from(spark, connection))
        plan = plan_app(app, spark)
        for frame in plan.frames:
            if only in (None, frame.view.name):
                on_message(
                    f"{frame.view.name}: not verified, for only Spark knows what its DataFrame has read"
                )
        for planned in plan.streams:
            manifest = Manifest.read(options.query_folder(planned.name))
            for number, view in enumerate(planned.views):
                url = store_url(plan, view, options.data)
                if url is None or (only is not None and view.view.name != only):
                    continue
                try:
                    with contextlib.closing(open_store(url, connection=connection)) as store:
                        verdict = verify_view(spark, planned, number, store, connection, manifest=manifest)
                except Exception as error:  # one view's; also what a user's own code raises
                    verdict = Verdict(view=view.view.name, failure=_cause(error, view.view.name))
                yield verdict


def _cause(error: Exception, view: str) -> str:
    """In one sentence; what nobody expected is logged whole."""
    if isinstance(error, HeadraceError):
        return str(error)
    if isinstance(error, PySparkException):
        return failure_of(error).cause
    _log.error("%s could not be verified", view, exc_info=error)
    return f"{type(error).__name__}: {error}"


def _find_log(options: RunOptions, ending: contextlib.ExitStack) -> Connection:
    address = running_address(options.data / "log")
    if address is None:
        ending.enter_context(locked(options.data))
        address = start_log(options.data, ending).bootstrap
    return Connection(bootstrap_servers=address)
