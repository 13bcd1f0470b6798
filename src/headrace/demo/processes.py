"""Processes that are kept alive: started again when they die, and ended with this one whatever happens."""

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

from headrace.errors import RequestError

__all__ = ["Keeper", "KeptProcess"]

Line = dict[str, Any]

_CHECK_S = 0.2
_END_S = 60
_MAX_FRUITLESS = 3
_REFUSED = 2  # the exit code of `headrace` when a setting is wrong, or a checkpoint does not fit


class KeptProcess:
    """One process: `on_line` gets every JSON object that it prints, from a thread.

    It runs in a session of its own, so that Ctrl-C reaches the parent alone, which then
    ends its children in order; its standard input is a pipe from here, whose end tells it
    to end. What it says on stderr goes to the file `messages`. A process that died three
    times in a row without a line that `is_fruit`, or refused to run, is not started again.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        messages: Path,
        on_line: Callable[[Line], None],
        is_fruit: Callable[[Line], bool] = lambda _: True,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.restarts = 0
        self._command = list(command)
        self._messages = messages
        self._environment = {**os.environ, **(environment or {})}
        self._on_line = on_line
        self._is_fruit = is_fruit
        self._fruitless = 0
        self._lock = threading.Lock()
        self._ended = False
        self._start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> str | None:
        """Starts it again if it died, and says so; raises RequestError when that is of no use any more."""
        with self._lock:
            if self._ended or not self._has_exited():
                return None
            self._bury()
            self._fruitless += 1
            how = self._how_it_ended()
            if self._fruitless >= _MAX_FRUITLESS or self._process.returncode == _REFUSED:
                self._ended = True
                raise RequestError(f"{self.name} does not run: {how}")
            self._start()
            self.restarts += 1
            return f"{self.name} had died ({how}) and was started again (process {self.pid})"

    def finish(self, timeout_s: float = _END_S) -> int:
        """Closes its input and waits for it to end by itself, which it must not be kept from: its exit code.

        Every line it printed has been given to `on_line` by then.
        """
        self._let_go()
        self._close_input()
        return self._wait(timeout_s)

    def end(self, timeout_s: float = _END_S) -> None:
        """Tells it to stop, and insists if it does not; harmless when repeated."""
        self._let_go()
        self._process.terminate()
        self._close_input()
        self._wait(timeout_s)

    def last_words(self) -> str:
        """The last line of what it said on stderr."""
        with contextlib.suppress(FileNotFoundError):
            said = self._messages.read_text(errors="replace").strip()
            if said:
                return _error_in(said.rpartition("\n")[2])
        return "it left no message"

    def _let_go(self) -> None:
        """It is not started again from here on; and nobody who checks on it has to wait for its end."""
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
                except ValueError:  # a library that talks; beside the other messages it does no harm
                    with self._messages.open("ab") as messages:
                        messages.write(line)
                    continue
                if self._is_fruit(said):
                    self._fruitless = 0
                self._on_line(said)

    def _has_exited(self) -> bool:
        """Without taking leave of it: until then its number, which is also its group's, is nobody else's."""
        if self._process.returncode is not None:
            return True
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None

    def _bury(self) -> None:
        """Whatever it had started goes with it at once, before a successor opens the same files."""
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
        self._bury()
        return self._process.returncode

    def _close_input(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _how_it_ended(self) -> str:
        code = self._process.returncode
        return f"signal {-code}" if code < 0 else f"exit code {code}: {self.last_words()}"


def _error_in(line: str) -> str:
    """The text of an error that was written as JSON, or the line as it is."""
    try:
        return str(json.loads(line)["error"])
    except (ValueError, KeyError, TypeError):
        return line


class Keeper:
    """Checks on children, from a thread, so that whoever waits for one of them does not keep it dead.

    `checks` say what they did, if anything; an error of theirs is raised by `wait`.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._checks: list[Callable[[], str | None]] = []
        self._stopping = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._watch, name="keeper", daemon=True)
        self._thread.start()

    def add(self, check: Callable[[], str | None]) -> None:
        """From now on, look after this one too."""
        self._checks.append(check)

    def wait(self, seconds: float) -> None:
        """Waits; raises the error of a check as soon as there is one."""
        self._stopping.wait(seconds)
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Nothing is started again from now on; harmless when repeated."""
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
