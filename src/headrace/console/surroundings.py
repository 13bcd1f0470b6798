"""What the handlers of a console share: settings, threads, the log, the application and its stores."""

import asyncio
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any

import orjson
from confluent_kafka.admin import AdminClient

from headrace.app.description import AppDescription, ViewDescription, read_description
from headrace.client import Connection, Identity, RawFetcher, TopicLayout, admin
from headrace.clock import Clock, SystemClock
from headrace.console.http_metrics import HttpMetrics
from headrace.console.problems import ProblemError
from headrace.console.security import LOCAL, NOBODY, Principal
from headrace.console.settings import ConsoleSettings
from headrace.console.sharing import Sharing
from headrace.console.users import UsersFile
from headrace.console.watching import Watches
from headrace.console.workers import Workers
from headrace.console.writing import Writer
from headrace.views import ViewStore, open_store

__all__ = ["Surroundings"]

CLIENT_ID = "headrace-console"
_IDLE_STORES = 4
_DATABASES = ("sqlite:", "postgresql:", "postgres:")
_FETCH_BYTES = 1 << 20
_LAYOUT_MS, _MOST_LAYOUTS = 2_000, 10_000
# Whoever looks at the log wants to hear soon that it is away.
_RETRY_TIMEOUT_MS = 3_000


@dataclass(slots=True, kw_only=True)
class Surroundings:
    """Made once for a console; `close` gives everything back.

    Methods that read files or ask the log say that they block: call them through
    `workers.run`. `stopping` is set when the console ends, and streams end with it.
    """

    settings: ConsoleSettings
    connection: Connection
    workers: Workers
    writer: Writer
    clock: Clock = field(default_factory=SystemClock)
    users: UsersFile | None = None
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    http: HttpMetrics = field(default_factory=HttpMetrics)
    watches: Watches = field(default_factory=Watches)
    shared: Sharing = field(default_factory=Sharing)
    record_times: dict[tuple[str, int], tuple[int, int | None]] = field(default_factory=dict)
    subscribers: int = 0
    _ending: ExitStack = field(default_factory=ExitStack)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _described: tuple[Any, AppDescription | None] = (None, None)
    _idle: dict[str, list[ViewStore]] = field(default_factory=dict)
    _fetchers: LifoQueue[RawFetcher] = field(default_factory=LifoQueue)
    _layouts: dict[str, tuple[int, TopicLayout]] = field(default_factory=dict)
    _admin: AdminClient | None = None

    @classmethod
    def of(cls, settings: ConsoleSettings, identity: Identity) -> "Surroundings":
        """As the settings say; raises ConfigError. Asks the log nothing."""
        connection = Connection(
            bootstrap_servers=_bootstrap(settings),
            client_id=CLIENT_ID,
            retry_timeout_ms=_RETRY_TIMEOUT_MS,
            **identity.identity_fields(),
        )
        workers = Workers(settings.threads, settings.max_waiting)
        return cls(
            settings=settings,
            connection=connection,
            workers=workers,
            writer=Writer(connection, workers),
            users=UsersFile(Path(settings.users)) if settings.users else None,
        )

    @property
    def data(self) -> Path | None:
        """The data folder of the application, if there is one."""
        return Path(self.settings.data) if self.settings.data else None

    def principal(self, token: str | None, *, by_token: bool) -> Principal:
        """Who presents this token; everybody is local where there are no users."""
        if self.users is None:
            return LOCAL
        return NOBODY if token is None else self.users.principal(token, by_token=by_token)

    def stop(self) -> None:
        """Lets every subscription end; the console is about to."""
        self.stopping.set()
        self.watches.wake_all()

    # --- these block --------------------------------------------------------------------------

    def application(self) -> AppDescription | None:
        """The application that runs or ran last on the data folder; read again when its file changes."""
        if self.data is None:
            return None
        stamp = _stamp(self.data / "app.json")
        with self._lock:
            if stamp is None or self._described[0] != stamp:
                self._described = (stamp, read_description(self.data))
            return self._described[1]

    def views(self) -> dict[str, ViewDescription]:
        """The views that are kept in a store, by name."""
        found = self.application()
        return {} if found is None else {each.name: each for each in found.views if each.store is not None}

    def view(self, name: str) -> ViewDescription:
        """A view by its name; raises ProblemError with 404."""
        known = self.views()
        if name not in known:
            if self.data is None:
                raise ProblemError(
                    404,
                    "this console knows no application",
                    "start it with --data, the folder of `headrace run`",
                )
            names = ", ".join(sorted(known)) or "none"
            raise ProblemError(404, f"there is no view {name!r} here; there is: {names}")
        return known[name]

    @contextmanager
    def store_of(self, view: ViewDescription) -> Iterator[ViewStore]:
        """The store of a view for the length of the block.

        Databases are opened several times, for one at a time reads from each; the other
        stores once, since they hold what they read.
        """
        if view.store is None:
            raise ProblemError(404, f"{view.name!r} is a topic of records and has no rows")
        url = view.store.openable(os.environ)
        alone = url.startswith(_DATABASES)
        with self._lock:
            idle = self._idle.setdefault(url, [])
            store = idle.pop() if idle and alone else idle[0] if idle else None
            if store is None:
                store = open_store(url, connection=self.connection)
                if not alone:
                    idle.append(store)
        try:
            yield store
        finally:
            if alone:
                self._give_back(idle, store)

    def _give_back(self, idle: list[ViewStore], store: ViewStore) -> None:
        with self._lock:
            kept = len(idle) < _IDLE_STORES
            if kept:
                idle.append(store)
        if not kept:
            store.close()

    @contextmanager
    def fetcher(self) -> Iterator[RawFetcher]:
        """A fetcher for the length of the block, this caller's alone."""
        try:
            fetcher = self._fetchers.get_nowait()
        except Empty:
            fetcher = RawFetcher(self.connection, max_bytes=_FETCH_BYTES)
        try:
            yield fetcher
        except BaseException:
            fetcher.close()  # half an answer may be on its way
            raise
        finally:
            self._fetchers.put(fetcher)

    def layout(self, topic: str) -> TopicLayout:
        """A topic's id and partitions, at most two seconds old; raises RequestError if there is none."""
        now = self.clock.monotonic_ms()
        known = self._layouts.get(topic)
        if known is not None and now - known[0] < _LAYOUT_MS:
            return known[1]
        with self.fetcher() as fetcher:
            found = fetcher.layout(topic)
        if len(self._layouts) >= _MOST_LAYOUTS:
            self._layouts.clear()
        self._layouts[topic] = (now, found)
        return found

    def admin(self) -> AdminClient:
        """A client for topics, groups and configurations; any thread."""
        with self._lock:
            if self._admin is None:
                self._admin = admin(self.connection, log_level=0, error_cb=lambda _: None)
            return self._admin

    def command(self, name: str, **fields: Any) -> None:
        """Tells whoever started this console to do something; raises ProblemError with 409 if nobody listens.

        A line of JSON on standard output: `{"command": "rebuild", …}`.
        """
        if not self.settings.commands:
            raise ProblemError(
                409,
                "this console was started by itself and cannot reach the application",
                f"do it where the application runs: headrace run FILE --{name}",
                kind="no-driver",
            )
        sys.stdout.buffer.write(orjson.dumps({"command": name, **fields}) + b"\n")
        sys.stdout.buffer.flush()

    def on_close(self, call: Any) -> None:
        """Has `call` called when the console ends."""
        self._ending.callback(call)

    def close(self) -> None:
        """Ends the threads and closes stores and clients."""
        self.writer.close()
        self.workers.close()
        self._ending.close()
        while not self._fetchers.empty():
            self._fetchers.get_nowait().close()
        for idle in self._idle.values():
            for store in idle:
                store.close()


def _bootstrap(settings: ConsoleSettings) -> str:
    if settings.bootstrap or not settings.data:
        return settings.bootstrap or Connection().bootstrap_servers
    described = read_description(Path(settings.data))
    return Connection().bootstrap_servers if described is None else described.bootstrap


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
