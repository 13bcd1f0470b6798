"""Runs captures of a log, each in its own thread, and carries out the requests in the catalog."""

import contextlib
import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.capture.catalog import Catalog, Entry
from headrace.capture.large_values import return_large_memory
from headrace.capture.open import open_source
from headrace.capture.run import CaptureRun
from headrace.capture.spec import CaptureSpec
from headrace.capture.status import Status
from headrace.capture.writer import CaptureWriter
from headrace.client import Connection
from headrace.clock import Clock, SystemClock
from headrace.errors import FencedError, RetriableError

if TYPE_CHECKING:
    from headrace.capture.connect import ConnectRun

__all__ = ["CaptureHost"]

_log = logging.getLogger(__name__)

_LOOK_S = 0.25
_SAY_MS = 2_000
_ALIVE_MS = 5_000
_RESTART_MS = 5_000


@dataclass(slots=True)
class _Running:
    spec: CaptureSpec
    run: "CaptureRun | ConnectRun"
    thread: threading.Thread
    said: Status | None = None
    said_ms: int = 0
    latest: Status | None = None
    resumed: str = ""
    ended: str | None = None


class CaptureHost:
    """The captures of these names, or, with none, all that the catalog has, until `stop`.

    A capture that is added, changed or removed there is started, restarted or stopped. If another
    process takes one over, it is left to that process.
    """

    def __init__(
        self,
        connection: Connection,
        names: Collection[str] = (),
        *,
        on_message: Callable[[str], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self._connection = connection
        self._names = frozenset(names)
        self._on_message = on_message
        self._clock = clock or SystemClock()
        self._stopping = threading.Event()
        self._running: dict[str, _Running] = {}
        self._fenced: dict[str, CaptureSpec] = {}
        self._died_ms: dict[str, int] = {}

    def stop(self) -> None:
        """Makes `run` return once every capture has ended; from any thread or signal handler."""
        self._stopping.set()
        for each in list(self._running.values()):
            each.run.stop()

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Runs captures until `stop`."""
        return_large_memory()
        catalog = self._found_catalog()
        if catalog is None:
            return
        try:
            self._look(catalog)
            on_ready()
            self._name_missing(catalog)
            while not self._stopping.wait(_LOOK_S):
                try:
                    self._look(catalog)
                except RetriableError as error:
                    if not self._stopping.is_set():
                        _log.warning("captures: %s", error)
        finally:
            for each in self._running.values():
                each.run.stop()
            for each in self._running.values():
                each.thread.join()
            self._say_ended(catalog)
            catalog.close()

    def _say_ended(self, catalog: Catalog) -> None:
        """Tells the log that the captures no longer run here, with what they said last."""
        for name, each in self._running.items():
            if each.ended is None and each.latest is not None:
                with contextlib.suppress(RetriableError):
                    catalog.say(name, {**each.latest.to_json(), "ended": True})

    def _found_catalog(self) -> Catalog | None:
        """The catalog, once the log can be reached; None if it was stopped before that."""
        said = ""
        while not self._stopping.is_set():
            try:
                return Catalog(self._connection)
            except RetriableError as error:
                if str(error) != said:
                    said = str(error)
                    self._on_message(f"waiting for the log: {error}")
                self._stopping.wait(_LOOK_S)
        return None

    def _name_missing(self, catalog: Catalog) -> None:
        """Says which captures are waited for, since their names may be mistaken."""
        found = {name for name, each in catalog.entries.items() if each.spec is not None}
        for name in sorted(self._names - found):
            there = ", ".join(sorted(found)) or "none"
            self._on_message(f"no capture {name} yet; waiting for it to be added (the captures are: {there})")

    def _look(self, catalog: Catalog) -> None:
        """Reads the catalog once: starts, stops and switches captures, and publishes their status."""
        wanted = {
            name: entry for name, entry in catalog.refresh().items() if not self._names or name in self._names
        }
        for name in [each for each in self._running if each not in wanted]:
            self._end(name)
            catalog.gone(name)
        for name, entry in wanted.items():
            assert entry.spec is not None
            running = self._running.get(name)
            if running is not None and running.spec != entry.spec:
                self._end(name)
                running = None
            if running is None and self._may_start(entry.spec):
                running = self._running[name] = self._start(entry.spec, entry)
            if running is not None and self._is_alive(running):
                self._switch(running, entry)
                self._say(catalog, running)

    def _start(self, spec: CaptureSpec, entry: Entry) -> _Running:
        def note(status: Status) -> None:
            made.latest = status

        run = self._run_of(spec, paused=entry.switch.paused, on_status=note)
        thread = threading.Thread(target=lambda: self._follow(made), daemon=True)
        made = _Running(spec, run, thread, resumed=entry.switch.resumed)
        made.thread.start()
        return made

    def _run_of(
        self, spec: CaptureSpec, *, paused: bool, on_status: Callable[[Status], None]
    ) -> "CaptureRun | ConnectRun":
        if spec.is_debezium:
            from headrace.capture.connect import ConnectRun

            return ConnectRun(spec, self._connection, paused=paused, on_status=on_status)
        return CaptureRun(
            spec.name,
            lambda: open_source(spec),
            CaptureWriter(self._connection, spec.name, partitions=spec.partitions),
            outbox=spec.outbox,
            chunk_rows=spec.chunk_rows,
            takes_all=not (spec.tables or spec.outbox),
            paused=paused,
            on_status=on_status,
        )

    def _follow(self, running: _Running) -> None:
        """The thread of a capture."""
        try:
            running.run.run()
        except FencedError as error:
            self._fenced[running.spec.name] = running.spec
            running.ended = str(error)
        except Exception as error:
            _log.exception("capture %s", running.spec.name)
            running.ended = f"{type(error).__name__}: {error}; it is started again"

    def _may_start(self, spec: CaptureSpec) -> bool:
        """Not if another process has taken it over, nor right after it died."""
        if self._fenced.get(spec.name) == spec:
            return False
        return self._clock.monotonic_ms() >= self._died_ms.get(spec.name, -_RESTART_MS) + _RESTART_MS

    def _is_alive(self, running: _Running) -> bool:
        """Whether its thread is still running; reports once if not."""
        if running.ended is None:
            return True
        self._on_message(f"capture {running.spec.name}: {running.ended}")
        self._died_ms[running.spec.name] = self._clock.monotonic_ms()
        del self._running[running.spec.name]
        return False

    def _switch(self, running: _Running, entry: Entry) -> None:
        if entry.switch.paused and not running.run.is_paused:
            running.run.pause()
        if entry.switch.resumed != running.resumed and not entry.switch.paused:
            running.resumed = entry.switch.resumed
            running.run.resume()
        if entry.switch.request and not entry.switch.paused:
            running.run.resnapshot(entry.switch.tables, request=entry.switch.request)

    def _say(self, catalog: Catalog, running: _Running) -> None:
        latest, said, now_ms = running.latest, running.said, self._clock.now_ms()
        if latest is None:
            return
        changed = said is None or (latest.state, latest.error) != (said.state, said.error)
        moved = said is None or latest.changes != said.changes or latest.state == "snapshot"
        if not changed and now_ms - running.said_ms < (_SAY_MS if moved else _ALIVE_MS):
            return
        if changed:
            problem = f": {latest.error}" if latest.state in ("reconnecting", "stopped") else ""
            self._on_message(f"capture {latest.name}: {latest.state}{problem}")
        # One that is stopped or paused has nothing new to say, and yet somebody runs it.
        catalog.say(latest.name, replace(latest, at_ms=now_ms).to_json())
        running.said, running.said_ms = latest, now_ms

    def _end(self, name: str) -> None:
        running = self._running.pop(name)
        running.run.stop()
        running.thread.join()
