"""The traffic as a process of its own."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

from headrace.errors import ConfigError

__all__ = ["TrafficProcess"]

_END_TIMEOUT_S = 90


class TrafficProcess:
    """Sends the shop's events until told to finish; `on_progress` gets each of its lines, from a thread.

    In a session of its own, so that Ctrl-C reaches the parent alone, which then ends
    its children in order.
    """

    def __init__(
        self,
        *,
        bootstrap: str,
        rate: int,
        seed: int,
        seconds: float,
        on_progress: Callable[[dict[str, Any]], None],
    ) -> None:
        arguments = ("--bootstrap", bootstrap, "--rate", str(rate), "--seed", str(seed))
        self._process = subprocess.Popen(  # noqa: S603 - this very interpreter
            [sys.executable, "-m", "headrace.demo.produce", *arguments, "--seconds", str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._on_progress = on_progress
        self._last: dict[str, Any] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def finish(self) -> dict[str, Any]:
        """Lets it send what it has, and returns its last word: what was acknowledged, and what was not."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=_END_TIMEOUT_S)
        self._reader.join()
        if not self._last:
            raise ConfigError("the traffic ended before its time; its own message stands above")
        return self._last

    def end(self) -> None:
        """Ends it, whatever it does; harmless when repeated."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait(timeout=_END_TIMEOUT_S)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._last = json.loads(line)
            self._on_progress(self._last)
