"""Asks the driver of an application to stop between two micro-batches, and waits until it has."""

import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.app.options import RunOptions
from headrace.app.status import FollowedFolder, is_running, read_description, request_stop
from headrace.app.status.lock import locked
from headrace.errors import ConfigError, RetriableError
from headrace.objects import Objects, open_objects

__all__ = ["stopped"]

_ASK_S = 2.0
_FILES = ("sqlite", "parquet", "memory")


@contextmanager
def stopped(options: RunOptions, timeout_s: float, say: Callable[[str], None]) -> Iterator[dict[str, str]]:
    """Within, no driver runs in the folder; at a URL one can be started, and its records tell.

    Has the stores, by view, that are files of the driver's machine. Raises ConfigError if there is no
    application, and RetriableError if it does not stop in time.
    """
    with contextlib.ExitStack() as ending:
        place: Path | Objects = options.data
        folder, refresh = options.data, _nothing
        if options.url is None:
            if read_description(folder) is None:
                raise ConfigError(f"there is no application in {folder}; run it first, or name its --data")
        else:
            followed = ending.enter_context(contextlib.closing(FollowedFolder(options.url)))
            folder, refresh = followed.path, followed.refresh
            place = open_objects(options.url)
        _wait(folder, refresh, lambda: request_stop(place), timeout_s, say)
        if options.url is None:
            ending.enter_context(locked(options.data))
        yield _stores_in_files(folder)


def _wait(
    folder: Path,
    refresh: Callable[[], None],
    ask: Callable[[], None],
    timeout_s: float,
    say: Callable[[str], None],
) -> None:
    refresh()
    if not is_running(folder):
        say("the application is not running")
        return
    say("the application is running: waiting until its micro-batches are done")
    deadline = time.monotonic() + timeout_s
    while is_running(folder):
        if time.monotonic() > deadline:
            raise RetriableError(
                f"the application has not stopped within {timeout_s:.0f} seconds; it stops when its "
                "micro-batches are done: try again, with a longer --timeout, or stop it yourself"
            )
        ask()
        time.sleep(_ASK_S)
        refresh()
    say("the application has stopped")


def _stores_in_files(folder: Path) -> dict[str, str]:
    described = read_description(folder)
    stores = {} if described is None else {each.name: each.store for each in described.views if each.store}
    return {name: store.url for name, store in stores.items() if store.url.startswith(_FILES)}


def _nothing() -> None:
    """A folder is as it is."""
