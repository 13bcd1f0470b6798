"""Starts the processes beside the driver that an application asks for: its console, its deliverer."""

import contextlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from typing import Any

from headrace.app.application import App
from headrace.app.console_process import ConsoleProcess
from headrace.app.deliverer_process import DelivererProcess
from headrace.app.starting import RunOptions
from headrace.app.store_urls import passwords
from headrace.client import Connection

__all__ = ["start_console", "start_deliverer"]


def start_console(
    app: App,
    options: RunOptions,
    connection: Connection,
    commands: "SimpleQueue[Mapping[str, Any]]",
    say: Callable[[str], None],
    ending: contextlib.ExitStack,
) -> Future[ConsoleProcess] | None:
    """The application's console, if it shall have one; it comes up while Spark does."""
    if options.http is None:
        return None
    urls = [url for url in (app.store, *(view.store for view in app.views.values())) if url is not None]
    begin = partial(
        ConsoleProcess,
        options.data.resolve(),
        connection,
        options.http,
        environment=passwords(urls),
        on_command=commands.put,
    )

    def start() -> ConsoleProcess:
        console = begin()
        say(f"console: {console.url} (process {console.pid})")
        return console

    starter = ThreadPoolExecutor(1, thread_name_prefix="console")
    started = starter.submit(start)
    starter.shutdown(wait=False)

    def end() -> None:
        if started.exception() is None:
            started.result().end()

    ending.callback(end)
    return started


def start_deliverer(
    app: App,
    options: RunOptions,
    connection: Connection,
    say: Callable[[str], None],
    ending: contextlib.ExitStack,
) -> DelivererProcess | None:
    """What sends to the application's hooks, if it has any; they are in its description by now."""
    if not app.hooks or options.until_caught_up:
        return None
    deliverer = DelivererProcess(options.data.resolve(), connection)
    ending.callback(deliverer.end)
    say(f"hooks: {', '.join(app.hooks)} (process {deliverer.pid})")
    return deliverer
