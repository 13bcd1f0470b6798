"""What an application whose state is at a URL tells others there, and a copy of it for who reads.

The driver publishes the files that it writes for other processes, `app.json`, `status.json` and
`state.json`, and a beat that changes as long as it runs. A reader follows them into a folder of its
own, and holds the lock of that folder while the beat changes, so that everything which reads a data
folder reads this one as it is: also `is_running`.
"""

import contextlib
import itertools
import secrets
import threading
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.app.status.lock import locked
from headrace.app.status.state import FILE as STATE
from headrace.app.status.stop_request import forget_request, requested_at
from headrace.errors import ConfigError, FencedError, HeadraceError
from headrace.objects import open_objects

__all__ = ["FollowedFolder", "Publisher"]

FILES = ("app.json", "status.json", STATE)
_BEAT = "beat"
_STOPPED = b"stopped"
_PUBLISH_S = 3.0
_FOLLOW_S = 2.0
_SILENT_S = 15.0  # without a new beat: the driver is gone


class Publisher:
    """Publishes the files of a run's data folder; in a thread, from `start` until `stop`."""

    def __init__(self, url: str, data: Path) -> None:
        self._objects = open_objects(url)
        self._data = data
        self._put: dict[str, bytes] = {}
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_owner = True
        self._beats = (f"{secrets.token_hex(8)}.{number}".encode() for number in itertools.count())

    def start(self, require_owner: Callable[[], None]) -> None:
        """Begins; it ends by itself when this run no longer owns the application."""
        forget_request(self._data, self._objects)
        self._thread = threading.Thread(
            target=self._keep_publishing, args=(require_owner,), name="publisher", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread; harmless when repeated."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def close(self) -> None:
        """Publishes how the run has ended, unless another has taken over, or it never began."""
        self.stop()
        if self._thread is not None and self._is_owner:
            forget_request(self._data, self._objects)
            with contextlib.suppress(HeadraceError):  # for onlookers
                self.publish(_STOPPED)

    def publish(self, beat: bytes) -> None:
        """Puts the files that have changed, and the beat."""
        for name in FILES:
            path = self._data / name
            found = path.read_bytes() if path.is_file() else None
            if found is not None and found != self._put.get(name):
                self._objects.put(name, [found])
                self._put[name] = found
        self._objects.put(_BEAT, [beat])

    def _keep_publishing(self, require_owner: Callable[[], None]) -> None:
        while True:
            try:
                require_owner()
                self.publish(next(self._beats))
                requested_at(self._objects, self._data)
            except FencedError:
                self._is_owner = False
                return
            except HeadraceError:  # the log or the store is away: the next time, maybe
                pass
            if self._ending.wait(_PUBLISH_S):
                return


class FollowedFolder:
    """A folder with what the application at a URL has published; `refresh` brings it up to date.

    With `follow` it is refreshed in a thread. Raises ConfigError if there is no application.
    """

    def __init__(self, url: str, *, now: Callable[[], float] = time.monotonic) -> None:
        self._objects = open_objects(url)
        self._folder = TemporaryDirectory(prefix="headrace-")
        self.path = Path(self._folder.name)
        self._now = now
        self._beat: tuple[bytes | None, float | None] = (None, None)
        self._held = contextlib.ExitStack()
        self._is_held = False
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self.refresh()
        if not (self.path / FILES[0]).exists():
            self.close()
            raise ConfigError(f"there is no application at {url}; start one with `headrace run --data`")

    def refresh(self) -> None:
        """Fetches what has been published, and whether a driver is alive."""
        for name in FILES:
            found = self._objects.get(name)
            path = self.path / name
            if found and (not path.exists() or path.read_bytes() != found):
                beside = path.with_name(f".{name}.new")
                beside.write_bytes(found)
                beside.replace(path)
        self._hold(self._is_alive(self._objects.get(_BEAT)))

    def follow(self) -> None:
        """Keeps it up to date from now on."""
        self._thread = threading.Thread(target=self._keep_refreshing, name="followed", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        self._hold(False)
        self._folder.cleanup()

    def _is_alive(self, beat: bytes | None) -> bool:
        """A beat that has just been seen for the first time is taken for one of a driver that is alive."""
        now = self._now()
        if beat != self._beat[0]:
            self._beat = (beat, None if beat in (None, _STOPPED) else now)
        seen = self._beat[1]
        return seen is not None and now - seen < _SILENT_S

    def _hold(self, is_alive: bool) -> None:
        if is_alive and not self._is_held:
            self._held.enter_context(locked(self.path))
            self._is_held = True
        elif not is_alive and self._is_held:
            self._held.close()
            self._is_held = False

    def _keep_refreshing(self) -> None:
        while not self._ending.wait(_FOLLOW_S):
            with contextlib.suppress(HeadraceError):  # the store is away: the copy stays as it is
                self.refresh()
