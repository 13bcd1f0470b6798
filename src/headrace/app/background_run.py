"""An application that runs in a thread of somebody else's process, such as a notebook's."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, Self

from headrace.client import Connection

__all__ = ["BackgroundRun", "Started"]


class Started(Protocol):
    """What has been started, and is supervised by `wait`; `stop` may be called from any thread."""

    connection: Connection

    def wait(self) -> Any: ...
    def stop(self) -> None: ...


class BackgroundRun:
    """An application that runs in a thread of this process, until it has ended or `stop` is called."""

    def __init__(self, name: str, run: Callable[[], AbstractContextManager[Started]]) -> None:
        self._run = run
        self._started: Started | None = None
        self._failure: BaseException | None = None
        self._is_decided = threading.Event()  # it runs, or has failed to
        self._thread = threading.Thread(target=self._supervise, name=f"headrace-{name}", daemon=True)

    @classmethod
    def begin(cls, name: str, run: Callable[[], AbstractContextManager[Started]]) -> Self:
        """Starts what `run` gives; returns once it runs, or raises what kept it from that."""
        begun = cls(name, run)
        begun._thread.start()
        begun._is_decided.wait()
        if begun._started is None:
            begun.wait()
        return begun

    @property
    def is_running(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread.is_alive()

    @property
    def bootstrap(self) -> str:
        """Where its log is."""
        assert self._started is not None
        return self._started.connection.bootstrap_servers

    def wait(self, seconds: float | None = None) -> bool:
        """Waits until it has ended, or the time is up; whether it has ended. Raises what it failed with."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        """Stops it in order, and returns when it has ended; harmless when repeated."""
        if self._started is not None:
            self._started.stop()
        self.wait()

    def _supervise(self) -> None:
        try:
            with self._run() as started:
                self._started = started
                self._is_decided.set()
                started.wait()
        except BaseException as error:  # the outer edge of a thread; `wait` raises it
            self._failure = error
        finally:
            self._is_decided.set()
