"""The demonstration's own processes: the log and the producer."""

import json
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError

__all__ = ["Child", "LogProcess", "ProducerProcess"]

_START_TIMEOUT_S = 60
_END_TIMEOUT_S = 40


class Child:
    """A process that this one started and ends, by its own id.

    In a session of its own, so that Ctrl-C reaches the parent alone, which then ends
    its children in order.
    """

    def __init__(self, *arguments: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-m", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        """Asks it to end, and insists if it does not; harmless when repeated."""
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(timeout=_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class LogProcess(Child):
    """`headrace broker` on a free loopback port."""

    def __init__(self, data: Path) -> None:
        super().__init__("headrace", "broker", "--json", "--data", str(data), "--listen", "127.0.0.1:0")
        self.bootstrap = f"127.0.0.1:{self._wait_for_port()}"

    def _wait_for_port(self) -> int:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_TIMEOUT_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self.end()
            raise ConfigError("the log did not start; its own message stands above")
        return int(json.loads(line)["port"])


class ProducerProcess(Child):
    """The shop; `on_progress` is called, from a thread, with the number of acknowledged orders."""

    def __init__(
        self, *, bootstrap: str, topic: str, rate: int, seed: int, on_progress: Callable[[int], None]
    ) -> None:
        where = ("--bootstrap", bootstrap, "--topic", topic)
        super().__init__("headrace.demo.produce", *where, "--rate", str(rate), "--seed", str(seed))
        self._on_progress = on_progress
        self._last: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def finish(self) -> dict[str, Any]:
        """Lets it send what it has, and returns its last word: what was acknowledged, minute by minute."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=_END_TIMEOUT_S)
        self._reader.join()
        if "minutes" not in self._last:
            raise ConfigError("the producer ended before its time; its own message stands above")
        return self._last

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._last = json.loads(line)
            self._on_progress(self._last["acknowledged"])
