"""A client's history on disk: JSON lines, one event each, which a kill cuts off but never spoils.

    {"at": NS, "process": "t1.0", "type": "invoke", "f": "send", …}

`type`: `invoke` before something is attempted, then `ok` (it happened), `fail` (it certainly did
not) or `info` (nobody knows). `at` is the machine's monotonic clock, the same for all
processes. A line is written at once, so that what was attempted is known of a killed client.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Event", "Recorder", "read_events"]

Event = dict[str, Any]


class Recorder:
    """Appends events of one process to its file."""

    def __init__(self, path: Path, process: str) -> None:
        self.process = process
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def invoke(self, f: str, **what: object) -> None:
        self._write("invoke", f, what)

    def ok(self, f: str, **what: object) -> None:
        self._write("ok", f, what)

    def fail(self, f: str, **what: object) -> None:
        self._write("fail", f, what)

    def info(self, f: str, **what: object) -> None:
        self._write("info", f, what)

    def _write(self, kind: str, f: str, what: dict[str, object]) -> None:
        event = {"at": time.monotonic_ns(), "process": self.process, "type": kind, "f": f, **what}
        os.write(self._file, json.dumps(event).encode() + b"\n")


def read_events(path: Path) -> Iterator[Event]:
    """The events of a file; a last line that a kill cut off is none."""
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):
                yield json.loads(line)
