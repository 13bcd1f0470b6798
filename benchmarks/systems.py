"""The systems that a benchmark compares: processes that stay for the whole run and answer requests.

A request is a line of JSON on a process's standard input, a reply one on its standard output.
"""

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psutil
from environments import PeerUnavailable
from measure import processor_s

__all__ = ["Command", "System", "started"]

MOST_BYTES = 8 << 30  # a system that needs more is ended before the machine swaps, and left out
Command = tuple[list[str], dict[str, str]]  # and its environment


class System:
    """One of the systems as a process that answers requests; `peak_bytes` of its whole process tree."""

    def __init__(self, name: str, command: list[str], surroundings: dict[str, str]) -> None:
        self.name = name
        self.peak_bytes = 0
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command,
            env=surroundings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )
        self._reply()

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        done = threading.Event()
        threading.Thread(target=self._watch, args=(done,), daemon=True).start()
        try:
            with contextlib.suppress(BrokenPipeError):  # it ended; what it said tells why
                self._process.stdin.write(json.dumps(request) + "\n")
                self._process.stdin.flush()
            return self._reply()
        finally:
            done.set()

    def processor_s(self) -> float:
        """Seconds of the processor that it and its children have used so far."""
        return processor_s(self._process.pid)

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _reply(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):  # a JVM may say a word of its own
                reply: dict[str, Any] = json.loads(line)
                return reply
        self._messages.seek(0)
        words = self._messages.read().decode(errors="replace").strip()[-1500:]
        memory = f" with {self.peak_bytes >> 30} GB of memory" if self.peak_bytes > MOST_BYTES else ""
        raise PeerUnavailable(f"{self.name} ended{memory}: {words}")

    def _watch(self, done: threading.Event) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            root = psutil.Process(self._process.pid)
            while not done.wait(1):
                tree = [root, *root.children(recursive=True)]
                self.peak_bytes = max(self.peak_bytes, sum(map(_resident, tree)))
                if self.peak_bytes > MOST_BYTES:
                    self._process.kill()


def _resident(process: psutil.Process) -> int:
    """Resident memory; what processes share is counted for each."""
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


@contextlib.contextmanager
def started(names: list[str], command_of: Callable[[str], Command]) -> Iterator[list[System]]:
    """Those systems that can be had here; of the others it says why not."""
    systems: list[System] = []
    try:
        for name in names:
            try:
                systems.append(System(name, *command_of(name)))
            except PeerUnavailable as error:
                print(f"  {name} is left out: {error}", file=sys.stderr)
        yield systems
    finally:
        for system in systems:
            system.close()
