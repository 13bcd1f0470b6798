"""Sidecars: processes beside the driver that an application can run without.

The console, the deliverer of its hooks, the server of its entities, its captures and its followers. One that
cannot start, or dies, is reported and restarted, ever more rarely; what they would have done waits on the log
meanwhile.
The class archiver makes later starts of Spark faster, and runs once.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from headrace.addresses import is_taken
from headrace.app.application import App
from headrace.app.options import RunOptions
from headrace.app.processes.supervisor import ChildProcess
from headrace.app.status.store_urls import passwords
from headrace.client import Connection
from headrace.errors import ConfigError
from headrace.java import find_java
from headrace.personal import key_place
from headrace.streams.spark import archive_place

__all__ = [
    "CaptureSidecar",
    "ConsoleSidecar",
    "DelivererSidecar",
    "EntitySidecar",
    "FollowerSidecar",
    "Sidecar",
    "free_address",
    "start_captures",
    "start_class_archiver",
    "start_console",
    "start_deliverer",
    "start_entities",
    "start_followers",
]

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_END_TIMEOUT_S = 20


class Sidecar:
    """A child process that the application can run without; if it keeps dying, restarts become rare."""

    def __init__(self, child: ChildProcess, name: str) -> None:
        self.child = child
        self._name = name
        self._pause_s = _FIRST_PAUSE_S
        self._next_try = 0.0
        self._started = time.monotonic()

    def check(self, now: float | None = None) -> str | None:
        """Restarts it if it has died; a message about that, or None."""
        now = time.monotonic() if now is None else now
        if self.child.is_alive or now < self._next_try:
            return None
        pause_s = _FIRST_PAUSE_S if now - self._started > _LONGEST_PAUSE_S else self._pause_s
        self._next_try = now + pause_s
        self._pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        try:
            self.child.check()
        except ConfigError as error:
            return f"{error}; trying again in {pause_s:.0f} seconds"
        self._started = time.monotonic()
        return f"{self._name} died and was restarted (process {self.child.pid})"

    @property
    def pid(self) -> int:
        return self.child.pid

    def end(self) -> None:
        """Stops it; harmless when repeated."""
        self.child.end()


class ConsoleSidecar(Sidecar):
    """`headrace console`; `on_command` receives the commands that it passes to the driver, from a thread."""

    def __init__(
        self,
        data: Path,
        connection: Connection,
        listen: str,
        *,
        environment: Mapping[str, str],
        on_command: Callable[[dict[str, Any]], None],
    ) -> None:
        child = ChildProcess(
            ["console", "--commands", "--data", str(data), "--bootstrap", connection.bootstrap_servers],
            name=f"the console on {listen}",
            listen=listen,
            messages=data / "console.messages",
            environment={**environment, **connection.environment()},
            on_line=on_command,
        )
        super().__init__(child, f"the console at {child.announced['url']}")

    @property
    def url(self) -> str:
        return str(self.child.announced["url"])


class EntitySidecar(Sidecar):
    """`headrace serve`, which carries out the commands of the application's entities."""

    def __init__(
        self, data: Path, file: Path, connection: Connection, *, compare: bool, say: Callable[[str], None]
    ) -> None:
        child = ChildProcess(
            ["serve", str(file), "--bootstrap", connection.bootstrap_servers, "--data", str(data)]
            + (["--compare"] if compare else []),
            name="the server of entities",
            listen=None,
            messages=data / "serve.messages",
            environment={**connection.environment(), **key_place(data).environment()},
            on_line=lambda line: say(str(line.get("message", ""))),
        )
        super().__init__(child, "the server of entities")


class CaptureSidecar(Sidecar):
    """`headrace capture run`, which finds what to capture in the log's catalog."""

    def __init__(self, data: Path, names: Iterable[str], connection: Connection) -> None:
        child = ChildProcess(
            ["capture", "run", *names, "--bootstrap", connection.bootstrap_servers],
            name="the capture of databases",
            listen=None,
            messages=data / "capture.messages",
            environment=connection.environment(),
        )
        super().__init__(child, "the capture of databases")


class FollowerSidecar(Sidecar):
    """`headrace follow run`, which finds what to follow in the log's catalog."""

    def __init__(self, data: Path, names: Iterable[str], connection: Connection) -> None:
        child = ChildProcess(
            ["follow", "run", *names, "--bootstrap", connection.bootstrap_servers],
            name="the followers",
            listen=None,
            messages=data / "follow.messages",
            environment=connection.environment(),
        )
        super().__init__(child, "the process of followers")


class DelivererSidecar(Sidecar):
    """`headrace deliver`, which finds the hooks in the application's description in the data folder."""

    def __init__(self, data: Path, connection: Connection) -> None:
        child = ChildProcess(
            ["deliver", "--data", str(data), "--bootstrap", connection.bootstrap_servers],
            name="the deliverer of webhooks and mail",
            listen=None,
            messages=data / "deliver.messages",
            environment=connection.environment(),
        )
        super().__init__(child, "the deliverer of webhooks and mail")


def free_address(listen: str) -> str:
    """The address if it is free, else the same host with any free port."""
    return f"{listen.rpartition(':')[0]}:0" if is_taken(listen) else listen


def start_console(
    app: App,
    options: RunOptions,
    connection: Connection,
    commands: "SimpleQueue[Mapping[str, Any]]",
    say: Callable[[str], None],
    cleanup: contextlib.ExitStack,
) -> Future[ConsoleSidecar] | None:
    """The application's console, unless it is to have none; it starts while Spark does."""
    if options.http is None:
        return None
    stores = [view.store for view in app.views.values()] + [each.store for each in app.projections.values()]
    urls = [url for url in (app.store, *stores) if url is not None]
    begin = partial(
        ConsoleSidecar,
        options.data.resolve(),
        connection,
        options.http,
        environment=passwords(urls),
        on_command=commands.put,
    )

    def start() -> ConsoleSidecar:
        console = begin()
        say(f"console: {console.url} (process {console.pid})")
        return console

    starter = ThreadPoolExecutor(1, thread_name_prefix="console")
    started = starter.submit(start)
    starter.shutdown(wait=False)

    def end() -> None:
        if started.exception() is None:
            started.result().end()

    cleanup.callback(end)
    return started


def start_deliverer(
    app: App,
    options: RunOptions,
    connection: Connection,
    say: Callable[[str], None],
    cleanup: contextlib.ExitStack,
) -> DelivererSidecar | None:
    """The deliverer of the application's hooks, if it has any; its description must have been written."""
    if not app.hooks or options.until_caught_up:
        return None
    deliverer = DelivererSidecar(options.data.resolve(), connection)
    cleanup.callback(deliverer.end)
    say(f"hooks: {', '.join(app.hooks)} (process {deliverer.pid})")
    return deliverer


def start_entities(
    app: App,
    options: RunOptions,
    connection: Connection,
    say: Callable[[str], None],
    cleanup: contextlib.ExitStack,
) -> EntitySidecar | None:
    """The server of the application's entities, if it has any; more of them may run elsewhere."""
    if not app.entity_types or options.file is None or options.until_caught_up:
        return None
    server = EntitySidecar(
        options.data.resolve(), options.file.resolve(), connection, compare=options.compare, say=say
    )
    cleanup.callback(server.end)
    say(f"entities: {', '.join(app.entity_types)} (process {server.pid})")
    return server


def start_captures(
    app: App,
    options: RunOptions,
    connection: Connection,
    say: Callable[[str], None],
    cleanup: contextlib.ExitStack,
) -> CaptureSidecar | None:
    """Declares the application's captures on the log, and runs them in one process, if it has any.

    Tables that another application captures under the same name stay captured.
    """
    if not app.captures or options.until_caught_up:
        return None
    from headrace.capture import declare_captures

    declare_captures(app.captures, connection)
    captures = CaptureSidecar(options.data.resolve(), app.captures, connection)
    cleanup.callback(captures.end)
    say(f"captures: {', '.join(app.captures)} (process {captures.pid})")
    return captures


def start_followers(
    app: App,
    options: RunOptions,
    connection: Connection,
    say: Callable[[str], None],
    cleanup: contextlib.ExitStack,
) -> FollowerSidecar | None:
    """Declares the application's followers on the log, and runs them in one process, if it has any."""
    if not app.followers or options.until_caught_up:
        return None
    from headrace.derived import FollowCatalog

    with contextlib.closing(FollowCatalog(connection)) as catalog:
        for each in app.followers.values():
            catalog.add(each)
    followers = FollowerSidecar(options.data.resolve(), app.followers, connection)
    cleanup.callback(followers.end)
    say(f"followers: {', '.join(app.followers)} (process {followers.pid})")
    return followers


def start_class_archiver(
    options: RunOptions, say: Callable[[str], None], cleanup: contextlib.ExitStack
) -> None:
    """Builds the archive of Spark's classes in a process of lowest priority, if there is none yet.

    For runs on a local Spark that are meant to last. It ends with the run at the latest; an
    archive that was not finished is begun again by the next run.
    """
    if options.master is not None or options.until_caught_up:
        return
    place = archive_place(find_java())
    if place.is_file() or not _may_write(place.parent):
        return
    archiver = subprocess.Popen(
        [sys.executable, "-m", "headrace.app.run.class_archive", "--background"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    cleanup.callback(_end, archiver)
    say("building an archive of Spark's classes in the background, once, so that the next start is faster")


def _may_write(folder: Path) -> bool:
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    return os.access(existing, os.W_OK)


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
