"""`headrace console` as a child process, as `headrace run` starts it."""

import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Self


class Console:
    """A console on a free loopback port, and what it asked of whoever started it."""

    def __init__(self, *, bootstrap: str, data: Path | None = None, flags: tuple[str, ...] = ()) -> None:
        self._command = [sys.executable, "-m", "headrace", "console", "--json", "--listen", "127.0.0.1:0"]
        self._command += ["--bootstrap", bootstrap, "--until-stdin-closes", "--commands", *flags]
        self._command += ["--data", str(data)] if data else []
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        self._commands: list[dict[str, Any]] = []
        self._heard = threading.Condition()
        self.url = ""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._messages
        )
        line = self._process.stdout.readline()
        assert line, f"the console did not start:\n{self.messages()}"
        self.url = json.loads(line)["url"].rstrip("/")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def _read(self) -> None:
        for line in self._process.stdout:
            with self._heard:
                self._commands.append(json.loads(line))
                self._heard.notify_all()

    def wait_for_command(self, name: str) -> None:
        """Until it has asked for this."""

        def asked() -> bool:
            return any(each.get("command") == name for each in self._commands)

        with self._heard:
            assert self._heard.wait_for(asked, 60), self._commands

    @property
    def pid(self) -> int:
        return self._process.pid

    def messages(self) -> str:
        """What it wrote to standard error."""
        self._messages.seek(0)
        return self._messages.read().decode(errors="replace")

    def __exit__(self, *_: object) -> None:
        self._process.stdin.close()
        self._process.wait(60)
        self._reader.join(10)
        self._process.stdout.close()
        self._messages.close()
