"""Runs an application that has entities and no views: its log, its console and its server, without Spark."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from headrace.app.application import App
from headrace.app.options import RunOptions
from headrace.app.plan.names import dead_topic, late_topic
from headrace.app.processes.embedded_log import EmbeddedLog, start_log
from headrace.app.processes.sidecars import Sidecar, start_console, start_entities
from headrace.app.projected import request_rebuilds, with_projections
from headrace.app.status.description import AppDescription, write_description
from headrace.app.status.lock import locked
from headrace.client import Connection

__all__ = ["Serving", "serving"]

_WATCH_S = 0.2


@dataclass(slots=True)
class Serving:
    """The processes of an application without views; each is restarted when it dies."""

    connection: Connection
    say: Callable[[str], None]
    log: EmbeddedLog | None
    sidecars: list[Sidecar]
    commands: "SimpleQueue[Mapping[str, Any]]"
    rebuild: Callable[[], None]
    _stopping: threading.Event = field(default_factory=threading.Event)

    def wait(self) -> None:
        """Supervises them until `stop` is called."""
        while not self._stopping.wait(_WATCH_S):
            if self.log is not None and self.log.check():
                self.say(f"the log died and was restarted (process {self.log.pid})")
            for each in self.sidecars:
                message = each.check()
                if message is not None:
                    self.say(message)
            self._run_commands()

    def _run_commands(self) -> None:
        """Carries out the commands that the console has passed on."""
        while not self.commands.empty():
            command = self.commands.get()
            if command.get("command") == "rebuild":
                self.say(f"rebuild requested by {command.get('who') or 'an unknown user'}")
                self.rebuild()

    def stop(self) -> None:
        """Makes `wait` return; from any thread or signal handler."""
        self._stopping.set()


@contextlib.contextmanager
def serving(
    app: App, options: RunOptions, *, on_message: Callable[[str], None] = lambda _: None
) -> Iterator[Serving]:
    """Starts what entities need, and stops it in reverse order."""
    with contextlib.ExitStack() as cleanup:
        cleanup.enter_context(locked(options.data))
        log, connection = None, options.wait_for_log()
        if connection is None:
            log = start_log(options, cleanup, on_message)
            connection = Connection(bootstrap_servers=log.bootstrap)
        on_message(f"log: {connection.bootstrap_servers}" + (f" (process {log.pid})" if log else ""))
        described = _description(app, options, connection)
        write_description(options.data, with_projections(described, app, options.data, Path.cwd()))
        wanted = app.projections if options.rebuild else options.rebuild_views
        request_rebuilds(app, options.data, wanted, compare=options.compare)
        commands: SimpleQueue[Mapping[str, Any]] = SimpleQueue()
        console = start_console(app, options, connection, commands, on_message, cleanup)
        server = start_entities(app, options, connection, on_message, cleanup)
        started: list[Sidecar | None] = [None if console is None else console.result(), server]
        sidecars = [each for each in started if each is not None]
        rebuild = partial(request_rebuilds, app, options.data, app.projections, compare=False)
        yield Serving(connection, on_message, log, sidecars, commands, rebuild)


def _description(app: App, options: RunOptions, connection: Connection) -> AppDescription:
    return AppDescription(
        app=app.name,
        file=None if options.file is None else str(options.file.resolve()),
        bootstrap=connection.bootstrap_servers,
        streams=(),
        views=(),
        dead_topic=dead_topic(app.name),
        late_topic=late_topic(app.name),
        hooks=tuple(each.to_json() for each in app.hooks.values()),
        nodes=(),
        edges=(),
        entities=tuple(each.describe() for each in app.entity_types.values()),
    )
