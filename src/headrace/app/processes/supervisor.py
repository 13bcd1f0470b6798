"""Supervised child processes of the driver: the embedded log, the console, the deliverer.

Each is a `headrace` command that announces itself with one line of JSON and ends when its
standard input closes, and so ends with this process, however that ends. Children ignore
signals: one that is sent to all processes at once is meant for this one, which stops its
children in order.
"""

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError
from headrace.stopping import STOPPED_BY_INPUT

__all__ = ["ChildProcess", "error_in"]

_START_TIMEOUT_S = 60
_END_TIMEOUT_S = 40


class ChildProcess:
    """`headrace COMMAND …`, listening on a port that it keeps over restarts, or on none.

    Its standard error goes to the file `messages`. JSON lines on its standard output, after
    the first, are passed to `on_line`, from a thread. Raises ConfigError if it does not
    start. `check` and `end` may be called from any thread.
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
        self._environment = environment or {}
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
        """Restarts it if it has died; True if it had."""
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
        """Stops it cleanly, or kills it if it does not stop; harmless when repeated."""
        with self._lock:
            self._ended = True
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(timeout=_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _start(self, listen: str | None) -> "subprocess.Popen[bytes]":
        arguments = [*self._command, "--json", "--until-stdin-closes"]
        arguments += [] if listen is None else ["--listen", listen]
        self._messages.parent.mkdir(parents=True, exist_ok=True)
        # In a session of its own: Ctrl-C reaches this process alone, which then stops its children in order.
        with self._messages.open("ab") as messages:
            return subprocess.Popen(  # noqa: S603 - this very interpreter
                [sys.executable, "-m", "headrace", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                env={**os.environ, **self._environment, STOPPED_BY_INPUT: "1"},
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
            raise ConfigError(f"{self._name} did not start: {error_in(said) or 'no message'}")
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


def error_in(line: str) -> str:
    """The text of an error that a `headrace` command wrote as JSON, or the line as it is."""
    try:
        return str(json.loads(line)["error"])
    except (ValueError, KeyError, TypeError):
        return line
