"""The console beside a running application: `headrace console` in a process of its own, kept alive.

The application runs without it: a console that cannot be started is said and tried
again, ever more rarely, and stops nobody.
"""

import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from headrace.app.children import Child
from headrace.errors import ConfigError

__all__ = ["ConsoleProcess", "free_address"]

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


def free_address(listen: str) -> str:
    """The address if nobody listens there, else the same host with a port that is free."""
    host, _, port = listen.rpartition(":")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, int(port)))
        except OSError:
            return f"{host}:0"
    return listen


class ConsoleProcess:
    """The console of one run; `on_command` gets what it asks of the driver, from a thread."""

    def __init__(
        self,
        data: Path,
        bootstrap: str,
        listen: str,
        *,
        environment: Mapping[str, str],
        on_command: Callable[[dict[str, Any]], None],
    ) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self._next_try = 0.0
        self._child = Child(
            ["console", "--commands", "--data", str(data), "--bootstrap", bootstrap],
            name=f"the console on {listen}",
            listen=listen,
            messages=data / "console.messages",
            environment=environment,
            on_line=on_command,
        )
        self._started = time.monotonic()

    @property
    def url(self) -> str:
        return str(self._child.announced["url"])

    @property
    def pid(self) -> int:
        return self._child.pid

    def check(self, now: float | None = None) -> str | None:
        """Starts the console again if it died; what there is to tell, if anything."""
        now = time.monotonic() if now is None else now
        if self._child.is_alive or now < self._next_try:
            return None
        pause_s = _FIRST_PAUSE_S if now - self._started > _LONGEST_PAUSE_S else self._pause_s
        self._next_try = now + pause_s
        self._pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        try:
            self._child.check()
        except ConfigError as error:
            return f"{error}; it is tried again in {pause_s:.0f} seconds"
        self._started = time.monotonic()
        return f"the console had died and was started again: {self.url} (process {self.pid})"

    def end(self) -> None:
        """Stops it; harmless when repeated."""
        self._child.end()
