"""Runs followers of a log, each in its own thread, and carries out the requests in the catalog."""

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from headrace.client import Connection
from headrace.clock import Clock, SystemClock
from headrace.derived.catalog import FollowCatalog, FollowEntry
from headrace.derived.open import open_target
from headrace.derived.run import FollowRun
from headrace.derived.spec import Follow
from headrace.derived.status import FollowStatus
from headrace.errors import FencedError, HeadraceError, RetriableError

__all__ = ["FollowHost"]

_log = logging.getLogger(__name__)

_LOOK_S = 0.25
_SAY_MS = 2_000
_ALIVE_MS = 10_000
_RESTART_MS = 5_000


@dataclass(slots=True)
class _Running:
    spec: Follow
    run: FollowRun
    thread: threading.Thread
    rebuild: str
    said: FollowStatus | None = None
    said_ms: int = 0
    latest: FollowStatus | None = None
    ended: str | None = None


class FollowHost:
    """The followers of these names, or, with none, all that the catalog has, until `stop`.

    A follower that is declared, changed or removed there is started, restarted or stopped. If another
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
        self._left: dict[str, Follow] = {}  # to another process, or stopped for good
        self._died_ms: dict[str, int] = {}

    def stop(self) -> None:
        """Makes `run` return once every follower has ended; from any thread or signal handler."""
        self._stopping.set()
        for each in list(self._running.values()):
            each.run.stop()

    def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Runs followers until `stop`."""
        catalog = FollowCatalog(self._connection)
        try:
            self._look(catalog)
            on_ready()
            while not self._stopping.wait(_LOOK_S):
                try:
                    self._look(catalog)
                except RetriableError as error:
                    if not self._stopping.is_set():
                        _log.warning("followers: %s", error)
        finally:
            for each in self._running.values():
                each.run.stop()
            for each in self._running.values():
                each.thread.join()
            catalog.close()

    def _look(self, catalog: FollowCatalog) -> None:
        """Reads the catalog once: starts and stops followers, and publishes their status."""
        wanted = {
            name: entry for name, entry in catalog.refresh().items() if not self._names or name in self._names
        }
        for name in [each for each in self._running if each not in wanted]:
            self._end(name)
        for name, entry in wanted.items():
            assert entry.spec is not None
            running = self._running.get(name)
            if running is not None and running.spec != entry.spec:
                self._end(name)
                running = None
            if running is None and self._may_start(entry.spec):
                running = self._start(catalog, entry.spec, entry)
            if running is not None and self._is_alive(running):
                if entry.rebuild != running.rebuild:
                    running.rebuild = entry.rebuild
                    running.run.rebuild(entry.rebuild)
                self._say(catalog, running)

    def _start(self, catalog: FollowCatalog, spec: Follow, entry: FollowEntry) -> _Running | None:
        """Starts a follower; None, and says why, if its target cannot be what it is declared to be."""
        try:
            target = open_target(spec)
        except HeadraceError as error:
            self._stop(catalog, spec, str(error))
            return None
        run = FollowRun(
            spec,
            target,
            self._connection,
            on_status=lambda status: setattr(made, "latest", status),
            on_message=self._on_message,
            request=entry.rebuild,
        )
        thread = threading.Thread(target=lambda: self._follow(made), daemon=True)
        made = _Running(spec, run, thread, rebuild=entry.rebuild)
        thread.start()
        self._running[spec.name] = made
        return made

    def _stop(self, catalog: FollowCatalog, spec: Follow, why: str) -> None:
        """Leaves a follower stopped until it is declared again."""
        self._left[spec.name] = spec
        now_ms = self._clock.now_ms()
        status = FollowStatus(name=spec.name, state="stopped", at_ms=now_ms, error=why, error_at_ms=now_ms)
        self._on_message(f"follower {spec.name}: stopped: {why}")
        catalog.say(spec.name, status.to_json())

    def _follow(self, running: _Running) -> None:
        """The thread of a follower."""
        try:
            running.run.run()
        except FencedError as error:
            self._left[running.spec.name] = running.spec
            running.ended = f"{error}; it is left to that one"
        except Exception as error:
            _log.exception("follower %s", running.spec.name)
            running.ended = f"{type(error).__name__}: {error}; it is started again"

    def _may_start(self, spec: Follow) -> bool:
        """Not if another process has taken it over, or its declaration is wrong; nor right after it died."""
        if self._left.get(spec.name) == spec:
            return False
        return self._clock.monotonic_ms() >= self._died_ms.get(spec.name, -_RESTART_MS) + _RESTART_MS

    def _is_alive(self, running: _Running) -> bool:
        """Whether its thread is still running; reports once if not."""
        if running.ended is None:
            return True
        self._on_message(f"follower {running.spec.name}: {running.ended}")
        self._died_ms[running.spec.name] = self._clock.monotonic_ms()
        del self._running[running.spec.name]
        return False

    def _say(self, catalog: FollowCatalog, running: _Running) -> None:
        latest, said, now_ms = running.latest, running.said, self._clock.now_ms()
        if latest is None or latest is said:
            return
        changed = said is None or (latest.state, latest.error) != (said.state, said.error)
        moved = said is None or latest.positions != said.positions
        if not changed and now_ms - running.said_ms < (_SAY_MS if moved else _ALIVE_MS):
            return
        if changed:
            problem = f": {latest.error}" if latest.state in ("reconnecting", "stopped") else ""
            self._on_message(f"follower {latest.name}: {latest.state}{problem}")
        catalog.say(latest.name, latest.to_json())
        running.said, running.said_ms = latest, now_ms

    def _end(self, name: str) -> None:
        running = self._running.pop(name)
        running.run.stop()
        running.thread.join()
