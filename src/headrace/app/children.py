"""Processes of ours beside the driver, kept alive: the embedded log, the console, the deliverer.

Each is a `headrace` command that announces itself with one line of JSON, ends when its
standard input does, and so ends with this process, however that ends.
"""

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError

__all__ = ["Child", "Companion"]

_START_TIMEOUT_S = 60
_END_TIMEOUT_S = 40
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class Child:
    """`headrace COMMAND …`, listening on a port that stays its own over restarts, or on none.

    What it writes to standard error goes to the file `messages`. Lines on its standard
    output behind the first are given to `on_line`, from a thread. Raises ConfigError if
    it does not start. `check` and `end` may be called from any thread.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        name: str,
        listen: str | None,
        messages: Path,
        environment: Mapping[str, str] | None = None,
        on_line: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._command = command
        self._name = name
        self._messages = messages
        self._environment = environment
        self._on_line = on_line
        self._lock = threading.Lock()
        self._ended = False
        self.restarts = 0
        self._process = self._start(listen)
        self.announced = self._wait_for_announcement()
        host, _, _ = (listen or "").rpartition(":")
        self.address = f"{host}:{self.announced['port']}" if listen is not None else ""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def check(self) -> bool:
        """Starts it again if it died; whether it had."""
        with self._lock:
            if self._ended or self.is_alive:
                return False
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process = self._start(self.address or None)
            self.announced = self._wait_for_announcement()
            self.restarts += 1
            return True

    def end(self) -> None:
        """Stops it cleanly, and insists if it does not; harmless when repeated."""
        with self._lock:
            self._ended = True
            if self.is_alive:
                self._process.terminate()
            try:
                self._process.wait(timeout=_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _start(self, listen: str | None) -> "subprocess.Popen[bytes]":
        arguments = [*self._command, "--json", "--until-stdin-closes"]
        arguments += [] if listen is None else ["--listen", listen]
        self._messages.parent.mkdir(parents=True, exist_ok=True)
        # A session of its own: Ctrl-C reaches this process alone, which then ends its children in order.
        with self._messages.open("ab") as messages:
            return subprocess.Popen(  # noqa: S603 - this very interpreter
                [sys.executable, "-m", "headrace", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                env=None if self._environment is None else {**os.environ, **self._environment},
                start_new_session=True,
            )

    def _wait_for_announcement(self) -> dict[str, Any]:
        process = self._process
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _START_TIMEOUT_S)
        line = process.stdout.readline() if ready else b""
        if not line:
            process.kill()
            process.wait()
            said = self._messages.read_text(errors="replace").strip().rpartition("\n")[2]
            raise ConfigError(f"{self._name} did not start: {said or 'no message'}")
        announced: dict[str, Any] = json.loads(line)
        if self._on_line is not None:
            threading.Thread(target=self._listen, args=(process,), name=self._name, daemon=True).start()
        return announced

    def _listen(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None and self._on_line is not None
        for line in process.stdout:
            try:
                said = json.loads(line)
            except ValueError:
                continue  # not for us
            if isinstance(said, dict):
                self._on_line(said)


class Companion:
    """A child that the application can do without: one that keeps dying is tried ever more rarely."""

    def __init__(self, child: Child, name: str) -> None:
        self.child = child
        self._name = name
        self._pause_s = _FIRST_PAUSE_S
        self._next_try = 0.0
        self._started = time.monotonic()

    def check(self, now: float | None = None) -> str | None:
        """Starts it again if it died; what there is to tell, if anything."""
        now = time.monotonic() if now is None else now
        if self.child.is_alive or now < self._next_try:
            return None
        pause_s = _FIRST_PAUSE_S if now - self._started > _LONGEST_PAUSE_S else self._pause_s
        self._next_try = now + pause_s
        self._pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        try:
            self.child.check()
        except ConfigError as error:
            return f"{error}; it is tried again in {pause_s:.0f} seconds"
        self._started = time.monotonic()
        return f"{self._name} had died and was started again (process {self.child.pid})"

    def end(self) -> None:
        """Stops it; harmless when repeated."""
        self.child.end()
