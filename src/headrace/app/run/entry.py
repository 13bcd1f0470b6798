"""`App.run` and `App.start`: an application run from its own file, by `spark-submit`, or in a notebook."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

from headrace.app.application import App
from headrace.app.background_run import BackgroundRun
from headrace.app.diagnostics.places import is_users
from headrace.app.options import RunOptions, data_place
from headrace.app.run.runner import Running, running
from headrace.app.run.serving import Serving, serving
from headrace.client import Identity
from headrace.config import load
from headrace.errors import ConfigError
from headrace.stopping import Stopping, hearing

__all__ = ["run_here", "run_in_background", "run_options"]


def run_options(
    app: App, given: Mapping[str, Any], environment: Mapping[str, str] | None = None
) -> RunOptions:
    """The options of a run started in Python: what was given, then the environment, then the defaults."""
    known = os.environ if environment is None else environment
    chosen = {name: value for name, value in given.items() if value is not None}
    unknown = chosen.keys() - RunOptions.__dataclass_fields__.keys()
    if unknown:
        raise ConfigError(f"App.run has no option {min(unknown)!r}; RunOptions has all there are")
    bootstrap = chosen.get("bootstrap") or known.get("HEADRACE_BOOTSTRAP") or None
    data, url = data_place(str(chosen.get("data") or known.get("HEADRACE_DATA") or "") or None, app.name)
    identity = chosen.get("identity") or (load(Identity, environment=known) if bootstrap else Identity())
    return RunOptions(
        **{
            "file": _file_of(app),
            "url": url,
            **chosen,
            "bootstrap": bootstrap,
            "data": data,
            "identity": identity,
        }
    )


def run_here(
    app: App, options: RunOptions, spark: SparkSession | None, on_message: Callable[[str], None]
) -> None:
    """Runs the application until it has ended, or is interrupted: then it is stopped in order."""
    stopping = Stopping(lambda: None)
    with hearing(stopping.hear), _started(app, options, spark, on_message) as started:
        stopping.on_stop = started.stop
        started.wait()


def run_in_background(
    app: App, options: RunOptions, spark: SparkSession | None, on_message: Callable[[str], None]
) -> BackgroundRun:
    """Starts the application in a thread; returns once its queries run, or raises what kept them from it."""
    return BackgroundRun.begin(app.name, lambda: _started(app, options, spark, on_message))


@contextlib.contextmanager
def _started(
    app: App, options: RunOptions, spark: SparkSession | None, on_message: Callable[[str], None]
) -> Iterator[Running | Serving]:
    _ship_functions(app)
    if app.entity_types and not app.views:
        with serving(app, options, on_message=on_message) as serves:
            yield serves
    else:
        with running(app, options, on_message=on_message, spark=spark) as runs:
            yield runs


def _ship_functions(app: App) -> None:
    """Spark's workers get the functions of the user's own files by value, for they cannot import those."""
    for module, _ in _own_files(app):
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call,unused-ignore]


def _file_of(app: App) -> Path | None:
    """The file that declares the application, for the processes beside it; None in a notebook."""
    return next((file for _, file in _own_files(app)), None)


def _own_files(app: App) -> Iterator[tuple[ModuleType, Path]]:
    """The user's own files that declare views and entities, and what was imported from each."""
    functions = [view.function for view in app.views.values()]
    functions += [entity.decide for entity in app.entity_types.values()]
    names = dict.fromkeys(getattr(function, "__module__", "") for function in functions)
    for module in filter(None, map(sys.modules.get, names)):
        file = getattr(module, "__file__", None)
        if file is not None and is_users(file) and Path(file).is_file():
            yield module, Path(file)
