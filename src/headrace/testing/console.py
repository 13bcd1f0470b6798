"""A console for tests: `headrace console` in a process of its own, on a free loopback port."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from headrace.errors import HeadraceError

__all__ = ["ConsoleProcess"]


class ConsoleProcess:
    """The real thing, which a test may kill; the port is kept over restarts.

    Settings are the console's (`headrace.console.ConsoleSettings`). Everything it wrote
    to standard error is in `output`.
    """

    def __init__(self, bootstrap: str, *, data: Path | None = None, **settings: object) -> None:
        self.port = 0
        self._flags = ["--bootstrap", bootstrap, *(["--data", str(data)] if data is not None else [])]
        for name, value in settings.items():
            flag = "--" + name.replace("_", "-")
            self._flags += (
                [flag if value else f"--no-{flag[2:]}"] if isinstance(value, bool) else [flag, str(value)]
            )
        self._log = Path(tempfile.gettempdir()) / f"headrace-console-{os.getpid()}-{id(self):x}.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Without a slash at its end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the console was not started"
        return self._process.pid

    def start(self) -> Self:
        """Starts it and waits until it listens."""
        command = [sys.executable, "-m", "headrace", "console", "--json", *self._flags]
        command += ["--listen", f"127.0.0.1:{self.port}"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)  # noqa: S603 - our own
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], 60)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self.kill()
            raise HeadraceError(f"the console did not start:\n{self.output()}")
        self.port = int(json.loads(line)["port"])
        return self

    def output(self) -> str:
        """What it wrote to standard error."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, signum: int) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signum)
        try:
            return process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise HeadraceError(f"the console did not end within 30 s:\n{self.output()}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._log.unlink(missing_ok=True)
