"""The embedded log: a broker in a process of its own, kept alive."""

import json
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path

from headrace.errors import ConfigError

__all__ = ["EmbeddedLog", "running_address"]

_START_TIMEOUT_S = 60
_END_TIMEOUT_S = 40


def running_address(data: Path) -> str | None:
    """Where the embedded log of this folder listens, if it runs now."""
    try:
        address = _address_file(data).read_text()
        host, _, port = address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=2):
            return address
    except (OSError, ValueError):
        return None


def _address_file(data: Path) -> Path:
    return data.with_name("log.address")


class EmbeddedLog:
    """`headrace broker` on a free loopback port, started again on the same port should it die.

    It ends with this process, however that ends: its standard input is a pipe from here.
    """

    def __init__(self, data: Path) -> None:
        self._data = data
        self._messages = data.with_name("log.messages")
        self._address = _address_file(data)
        self._lock = threading.Lock()
        self._ended = False
        self.restarts = 0
        self._process = self._start("127.0.0.1:0")
        self.bootstrap = f"127.0.0.1:{self._wait_for_port()}"
        self._address.write_text(self.bootstrap)

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> bool:
        """Starts the broker again if it died; whether it had."""
        with self._lock:
            if self._ended or self._process.poll() is None:
                return False
            self._process = self._start(self.bootstrap)
            self._wait_for_port()
            self.restarts += 1
            return True

    def end(self) -> None:
        """Stops it cleanly, and insists if it does not; harmless when repeated."""
        with self._lock:
            self._ended = True
            self._address.unlink(missing_ok=True)
            if self._process.poll() is None:
                self._process.terminate()
            try:
                self._process.wait(timeout=_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _start(self, listen: str) -> "subprocess.Popen[bytes]":
        arguments = ["--json", "--until-stdin-closes", "--data", str(self._data), "--listen", listen]
        self._data.parent.mkdir(parents=True, exist_ok=True)
        # A session of its own: Ctrl-C reaches this process alone, which then ends its children in order.
        with self._messages.open("ab") as messages:
            return subprocess.Popen(  # noqa: S603 - this very interpreter
                [sys.executable, "-m", "headrace", "broker", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=messages,
                start_new_session=True,
            )

    def _wait_for_port(self) -> int:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], _START_TIMEOUT_S)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self._process.kill()
            self._process.wait()
            said = self._messages.read_text(errors="replace").strip().rpartition("\n")[2]
            raise ConfigError(f"the log in {self._data} did not start: {said or 'no message'}")
        return int(json.loads(line)["port"])
