"""A real Redis, or Valkey, on a loopback port, which a test may stop hard, start again and empty."""

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from headrace.derived.targets import RedisAddress, RespConnection
from headrace.errors import RetriableError
from headrace.testing.kafka import PeerUnavailable

__all__ = ["RedisProcess"]

_PROGRAMS = ("redis-server", "valkey-server")
_START_TIMEOUT_S = 60


class RedisProcess:
    """One server, its data in a temporary folder; use as a context manager.

    With `durable`, what it confirmed survives `stop`; without, it comes back empty. Raises
    PeerUnavailable where no such server is installed.
    """

    def __init__(self, *, durable: bool = False, password: str = "") -> None:
        found = next((path for each in _PROGRAMS if (path := shutil.which(each))), None)
        if found is None:
            raise PeerUnavailable("no Redis or Valkey server here; apt-get install redis-server")
        self._program = found
        self._durable = durable
        self._password = password
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    def url(self, database: int = 0) -> str:
        return f"redis://127.0.0.1:{self.port}/{database}"

    def connect(self, database: int = 0) -> RespConnection:
        return RespConnection(RedisAddress(port=self.port, database=database))

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-redis-"))
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Starts it and waits until it answers."""
        command = [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += ["--dir", str(self._folder), "--databases", "1000"]
        if self._durable:
            command += ["--appendonly", "yes", "--appendfsync", "always"]
        if self._password:
            command += ["--requirepass", self._password]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
        deadline = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PeerUnavailable(f"Redis does not start: {(self._folder / 'log').read_text()[-500:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Kills it, as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as opened:
                opened.sendall(b"PING\r\n")
                return opened.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except (OSError, RetriableError):
            return False
