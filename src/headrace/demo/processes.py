"""Supervised processes: restarted when they die, and ended with this one whatever happens."""

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.app.processes import error_in
from headrace.errors import RequestError

__all__ = ["SupervisedProcess", "Supervisor"]

Line = dict[str, Any]

_CHECK_S = 0.2
_END_S = 60
_MAX_FRUITLESS_STARTS = 3
_REFUSED = 2  # the exit code of `headrace` when a setting is wrong, or a checkpoint does not fit


class SupervisedProcess:
    """One process: every JSON object that it prints is passed to `on_line`, from a thread.

    It runs in a session of its own, so that Ctrl-C reaches only the parent, which then stops
    its children in order; its standard input is a pipe, which is closed to stop it. Its stderr
    goes to the file `messages`. A process that dies three times in a row without a line that
    `is_progress`, or that refuses to run, is not restarted; `when_refused` then says what to do.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        messages: Path,
        on_line: Callable[[Line], None],
        is_progress: Callable[[Line], bool] = lambda _: True,
        environment: Mapping[str, str] | None = None,
        when_refused: str = "",
    ) -> None:
        self.name = name
        self.restarts = 0
        self._command = list(command)
        self._messages = messages
        self._environment = {**os.environ, **(environment or {})}
        self._when_refused = f". {when_refused}" if when_refused else ""
        self._on_line = on_line
        self._is_progress = is_progress
        self._fruitless_starts = 0
        self._lock = threading.Lock()
        self._ended = False
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> str | None:
        """Restarts it if it has died, and says so; raises RequestError once that has become useless."""
        with self._lock:
            if self._ended or not self._has_exited():
                return None
            self._reap()
            self._fruitless_starts += 1
            how = self._how_it_ended()
            if self._process.returncode == _REFUSED:
                self._ended = True
                raise RequestError(f"{self.name} cannot run: {self.last_message()}{self._when_refused}")
            if self._fruitless_starts >= _MAX_FRUITLESS_STARTS:
                self._ended = True
                raise RequestError(f"{self.name} keeps failing: {how}")
            self._start()
            self.restarts += 1
            return f"{self.name} died ({how}) and was restarted (process {self.pid})"

    def finish(self, timeout_s: float = _END_S) -> int:
        """Closes its input and waits for it to end by itself; returns its exit code.

        Every line it printed has been passed to `on_line` by then.
        """
        self._stop_restarting()
        self._close_input()
        return self._wait(timeout_s)

    def end(self, timeout_s: float = _END_S) -> None:
        """Stops it, or kills it if it does not stop; harmless when repeated."""
        self._stop_restarting()
        self._process.terminate()
        self._close_input()
        self._wait(timeout_s)

    def last_message(self) -> str:
        """The last line of its stderr."""
        with contextlib.suppress(FileNotFoundError):
            said = self._messages.read_text(errors="replace").strip()
            if said:
                return error_in(said.rpartition("\n")[2])
        return "no message"

    def _stop_restarting(self) -> None:
        """No more restarts; `check` then returns at once, without waiting for the process to end."""
        with self._lock:
            self._ended = True

    def _start(self) -> None:
        with self._messages.open("ab") as messages:
            self._process = subprocess.Popen(  # noqa: S603 - our own commands
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                env=self._environment,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                try:
                    said = json.loads(line)
                except ValueError:  # output of a library, kept with the other messages
                    with self._messages.open("ab") as messages:
                        messages.write(line)
                    continue
                if self._is_progress(said):
                    self._fruitless_starts = 0
                self._on_line(said)

    def _has_exited(self) -> bool:
        """Without reaping it: until then its process id, which is also its group's, cannot be reused."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _reap(self) -> None:
        """Reaps it, and kills what it had started, before a successor opens the same files."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        self._close_input()
        self._reader.join(_END_S)

    def _wait(self, timeout_s: float) -> int:
        deadline = time.monotonic() + timeout_s
        while not self._has_exited() and time.monotonic() < deadline:
            time.sleep(_CHECK_S / 10)
        self._reap()
        return self._process.returncode

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _how_it_ended(self) -> str:
        code = self._process.returncode
        return f"signal {-code}" if code < 0 else f"exit code {code}: {self.last_message()}"


class Supervisor:
    """Checks child processes from a thread, so that they are restarted while the main thread waits.

    A check returns a message if it did anything; its error is raised by `wait`.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._checks: list[Callable[[], str | None]] = []
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)
        self._thread.start()

    def add(self, check: Callable[[], str | None]) -> None:
        """Adds a check."""
        self._checks.append(check)

    def wait(self, seconds: float) -> None:
        """Waits; raises the error of a check as soon as there is one."""
        self._stopping.wait(seconds)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Nothing is restarted from now on; harmless when repeated."""
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        try:
            while not self._stopping.wait(_CHECK_S):
                for check in tuple(self._checks):
                    said = check()
                    if said is not None:
                        self._say(said)
        except Exception as error:  # the thread's outer edge: `wait` raises it
            self._error = error
            self._stopping.set()
