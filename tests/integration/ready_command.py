"""`headrace …` in a process of its own, forked from one that has its imports behind it.

A command of the tests takes a tenth of a second instead of half of one. What it shows is
the same: its own process with pipes, environment and exit code, from `main()` on. What
the start itself does (`python -m headrace`, what is imported) has tests that start it.
"""

import contextlib
import functools
import importlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

COMMAND = [sys.executable, "-m", "headrace"]
TIMEOUT_S = 240
PIPE_BYTES = 65_536  # as much as a pipe takes from who does not wait for its reader


def run_command(arguments: Sequence[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs `headrace` with these arguments, in the folder and environment of the caller."""
    if len(stdin) > PIPE_BYTES:
        return subprocess.run([*COMMAND, *arguments], input=stdin, capture_output=True, timeout=TIMEOUT_S)
    return _ready().run(arguments, stdin)


class _Ready:
    """The process that forks. It ends with the process that started it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__)), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        ours.settimeout(TIMEOUT_S)
        self._socket, self._one_at_a_time = ours, threading.Lock()

    def run(self, arguments: Sequence[str], stdin: bytes) -> subprocess.CompletedProcess[bytes]:
        place = {"folder": str(Path.cwd()), "environment": dict(os.environ)}
        message = json.dumps({"arguments": list(arguments), **place}).encode()
        with self._one_at_a_time, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            read, write = os.pipe()
            try:
                os.write(write, stdin)
                os.close(write)
                socket.send_fds(
                    self._socket, [len(message).to_bytes(4, "big")], [read, out.fileno(), err.fileno()]
                )
                self._socket.sendall(message)
            finally:
                os.close(read)
            answer = self._socket.recv(4)
            assert answer, "the process that forks commands has ended"
            for file in (out, err):
                file.seek(0)
            code = int.from_bytes(answer, "big", signed=True)
            return subprocess.CompletedProcess([*COMMAND, *arguments], code, out.read(), err.read())


@functools.cache
def _ready() -> _Ready:
    return _Ready()


def _serve(orders: socket.socket) -> None:
    """Forks a process for each order and answers with its exit code; returns in the forked ones."""
    while True:
        size, files, *_ = socket.recv_fds(orders, 4, 3)
        if not size:
            os._exit(0)
        order = json.loads(_exactly(orders, int.from_bytes(size, "big")))
        child = os.fork()
        if child == 0:
            orders.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            os.environ.clear()
            os.environ.update(order["environment"])
            os.chdir(order["folder"])
            sys.argv = ["headrace", *order["arguments"]]
            return
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(BrokenPipeError):
            orders.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))


def _exactly(orders: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += orders.recv(size - len(found))
    return found


if __name__ == "__main__":
    from headrace.cli import main

    for each in ("headrace.cli.main", "typer._adapters", "rich.table"):  # what commands import
        importlib.import_module(each)
    _serve(socket.socket(fileno=int(sys.argv[1])))
    main()
