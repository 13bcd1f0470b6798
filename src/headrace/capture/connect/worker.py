"""The parent's side of a Connect worker: started, asked, watched over, ended.

A thread waits for the process and starts it again when it ends without having
been told to, sooner at first and later if it goes on. Nothing is handed to the new
process but the settings: its connectors and their positions are on the log.
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO, Any, Self

from headrace.capture.connect.settings import ConnectSettings, worker_properties
from headrace.errors import ConfigError, RequestError, RetriableError

__all__ = ["ConnectWorker", "ConnectorStatus", "TaskStatus"]

_log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
_RETRY_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStatus:
    """One task as Connect sees it; `trace` is the cause where it failed."""

    id: int
    state: str
    trace: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectorStatus:
    """A connector and its tasks, in Connect's own words: UNASSIGNED, RUNNING, PAUSED, FAILED, …"""

    state: str
    trace: str | None
    tasks: tuple[TaskStatus, ...]

    @property
    def is_running(self) -> bool:
        """Whether the connector and at least one task run, and none does anything else."""
        return self.state == "RUNNING" and {task.state for task in self.tasks} == {"RUNNING"}

    @property
    def failure(self) -> str | None:
        """The trace of what failed: of the connector, or of the first task that did."""
        all_of_it: tuple[ConnectorStatus | TaskStatus, ...] = (self, *self.tasks)
        failed = (each.trace or "it gave no reason" for each in all_of_it if each.state == "FAILED")
        return next(failed, None)


class ConnectWorker:
    """A Connect worker in a process of its own, for as long as the `with` block.

    Calls may come from any thread, one is carried out at a time. While the worker
    is down they wait, up to `start_timeout_s`, for it to be up again; a call that
    was under way when it died raises RetriableError, since nobody knows whether it
    was carried out. `stop` lets the tasks finish what they are at. What it says goes to
    `log`, or line by line to `on_line`, in a thread.
    """

    def __init__(
        self,
        settings: ConnectSettings,
        *,
        log: IO[bytes] | None = None,
        on_line: Callable[[str], None] | None = None,
    ) -> None:
        self.settings = settings
        self.starts = 0
        self._stderr = log
        self._on_line = on_line
        self._process: subprocess.Popen[str] | None = None
        self._calling = threading.Lock()
        self._ready = threading.Event()
        self._stopping = threading.Event()
        self._failure: str | None = None
        self._watch = threading.Thread(target=self._run, name="headrace-connect", daemon=True)

    @property
    def pid(self) -> int:
        """The process that runs now; raises RetriableError between two."""
        process = self._process
        if process is None or process.poll() is not None:
            raise RetriableError("the Connect worker is not running at this moment; it is being started")
        return process.pid

    @property
    def is_ready(self) -> bool:
        """Whether it answers at this moment."""
        return self._ready.is_set()

    def start(self) -> Self:
        """Starts it and waits until it answers; raises ConfigError with its own words if it cannot."""
        self._watch.start()
        try:
            self._wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends it in good order, and by force after `stop_timeout_s`; harmless when repeated."""
        self._stopping.set()
        process = self._process
        if process is not None:
            _end(process, self.settings.stop_timeout_s)
        if self._watch.ident is not None:
            self._watch.join()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- what it can be asked

    def put(self, name: str, config: Mapping[str, str]) -> bool:
        """Creates a connector, or changes it; True if it is new. Repeated until Connect is ready for it."""
        return bool(self._call_until_accepted("put", name, dict(config)))

    def remove(self, name: str) -> None:
        """Ends a connector and forgets its configuration; its positions stay on the log."""
        self._call_until_accepted("remove", name)

    def restart(self, name: str) -> None:
        """Starts again what failed of a connector."""
        self._call_until_accepted("restart", name)

    def pause(self, name: str) -> None:
        self._call_until_accepted("pause", name)

    def resume(self, name: str) -> None:
        self._call_until_accepted("resume", name)

    def read_again(self, name: str) -> None:
        """Has a connector forget its positions, so that it begins with a snapshot."""
        self._call_until_accepted("stop_connector", name)
        self._call_until_accepted("read_again", name)
        self._call_until_accepted("resume", name)

    def progress(self) -> dict[str, Any]:
        """What Debezium's connector here says of its snapshot, and of how far it is behind; may be empty."""
        return dict(self._call("progress"))

    def names(self) -> list[str]:
        """The connectors there are."""
        return list(self._call("names"))

    def status(self, name: str) -> ConnectorStatus:
        """How a connector is; raises RequestError if there is none (or none yet) of that name."""
        found = self._call("status", name)
        tasks = tuple(TaskStatus(**task) for task in found["tasks"])
        return ConnectorStatus(state=found["state"], trace=found["trace"], tasks=tasks)

    def _call_until_accepted(self, name: str, *arguments: Any) -> Any:
        deadline = time.monotonic() + self.settings.start_timeout_s
        while True:
            try:
                return self._call(name, *arguments)
            except RetriableError:
                if time.monotonic() > deadline or self._stopping.wait(_RETRY_PAUSE_S):
                    raise

    def _call(self, name: str, *arguments: Any) -> Any:
        self._wait_ready()
        with self._calling:
            process = self._process
            assert process is not None
            try:
                _send(process, {"call": name, "arguments": arguments})
                return _result(_receive(process))
            except OSError as error:
                raise RetriableError(f"the Connect worker died under `{name}`; ask again") from error

    # -- its life

    def _wait_ready(self) -> None:
        if not self._ready.wait(self.settings.start_timeout_s) or self._stopping.is_set():
            raise ConfigError(f"the Connect worker did not start: {self._failure or 'it gave no reason'}")

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._stopping.is_set():
            if self._run_once():
                pause_s = _FIRST_PAUSE_S
            elif self.starts == 1:  # it has never worked, and will not by itself
                self._stopping.set()
                self._ready.set()
            if self._stopping.wait(pause_s):
                return
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def _run_once(self) -> bool:
        """One process from its start to its end; whether it had become ready."""
        process = self._process = self._spawn()
        was_ready = False
        try:
            _send(process, self._order())
            _result(_receive(process))
            was_ready = True
            self._ready.set()
        except (OSError, RequestError, RetriableError) as error:
            self._failure = str(error)
        if self._stopping.is_set() or not was_ready:
            _end(process, self.settings.stop_timeout_s)
        code = process.wait()
        self._ready.clear()
        if not self._stopping.is_set():
            why = "" if was_ready else f" before it was ready ({self._failure})"
            _log.warning("the Connect worker ended with %d%s; it is started again", code, why)
        return was_ready

    def _order(self) -> dict[str, Any]:
        return {
            "heap_mb": self.settings.heap_mb,
            "kind": self.settings.kind,
            "secrets": dict(self.settings.secrets),
            "properties": worker_properties(self.settings),
        }

    def _spawn(self) -> subprocess.Popen[str]:
        """In a session of its own, so that Ctrl-C reaches the parent alone."""
        self.starts += 1
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.capture.connect.host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr if self._on_line is None else subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        if self._on_line is not None:
            assert process.stderr is not None
            threading.Thread(target=_hear, args=(process.stderr, self._on_line), daemon=True).start()
        return process


def _hear(lines: IO[str], on_line: Callable[[str], None]) -> None:
    for line in lines:
        on_line(line.rstrip("\n"))


def _send(process: subprocess.Popen[str], order: Mapping[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(order) + "\n")
    process.stdin.flush()


def _receive(process: subprocess.Popen[str]) -> dict[str, Any]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.endswith("\n"):
        raise ConnectionError("it ended without an answer; its own words are in its log")
    answer: dict[str, Any] = json.loads(line)
    return answer


def _result(answer: dict[str, Any]) -> Any:
    if "error" not in answer:
        return answer["result"]
    raise (RetriableError if answer["retriable"] else RequestError)(answer["error"])


def _end(process: subprocess.Popen[str], timeout_s: float) -> None:
    """Closes its input, which it takes as the order to finish, and insists if it does not."""
    with contextlib.suppress(OSError, ValueError):
        assert process.stdin is not None
        process.stdin.close()
    try:
        process.wait(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
