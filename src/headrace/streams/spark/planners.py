"""A process that has imported what Spark's planners need, and forks them.

Beside its workers Spark starts Python processes that only plan: daemons that look for data sources
and make one, and for each query a process that says what its batches read. Each spent a third of a
second or more of processor time on imports. On one machine `python.sh` therefore starts
`planner.py` in their place, which has this process fork one.

It listens in a folder of its own that only this user can enter, imports while Java starts, and ends
with its standard input, however the driver ends. A forked planner is what Spark would have started:
it has the files, the environment and the arguments of the process that Spark did start, talks to
Spark by itself, and ends when Spark closes their connection.
"""

import contextlib
import functools
import gc
import importlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

__all__ = ["planners"]

_ADDRESS = "HEADRACE_PLANNERS"  # where python.sh finds it
_DAEMON = "pyspark.daemon"
_IMPORTED = (
    _DAEMON,
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "headrace.streams.feed.feed",
    "headrace.streams.source.source",
)
_WAITING = 64  # who may ask before the first is answered
_LOOK_S = 5.0  # for planners that have ended

_started: list[subprocess.Popen[bytes]] = []  # kept, and with it the standard input


@functools.cache
def planners() -> Mapping[str, str]:
    """Starts the process, once, and gives the variables by which `python.sh` finds it; none if it cannot."""
    folder = Path(tempfile.mkdtemp(prefix="headrace-planners-"))
    address = str(folder / "orders")
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(address)
            listening.listen(_WAITING)
            process = subprocess.Popen(  # noqa: S603 - our own command line
                [sys.executable, "-m", __name__, str(folder), str(listening.fileno())],
                pass_fds=[listening.fileno()],
                stdin=subprocess.PIPE,
            )
    except OSError:  # for example, the folder's name is too long for an address
        shutil.rmtree(folder, ignore_errors=True)
        return {}
    _started.append(process)
    return {_ADDRESS: address}


def _serve(folder: str, listening: socket.socket) -> list[str]:
    """Forks until standard input ends; in the forked processes it returns what each is to run."""
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [], _LOOK_S)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if sys.stdin in ready:
            shutil.rmtree(folder, ignore_errors=True)
            os._exit(0)
        if listening in ready:
            orders, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                return _become(orders)
            orders.close()


def _become(orders: socket.socket) -> list[str]:
    """Takes over the files and the environment of who asks; the connection ends with this process."""
    size, files, *_ = socket.recv_fds(orders, 4, 3)
    order = b""
    while len(order) < int.from_bytes(size, "big"):
        order += orders.recv(1 << 16)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    orders.detach()
    arguments, _, variables = order.partition(b"\0\0")
    os.environb.clear()
    os.environb.update(dict(each.split(b"=", 1) for each in variables.split(b"\0")))
    sys.path[1:1] = [each for each in os.environ.get("PYTHONPATH", "").split(":") if each not in sys.path]
    return arguments.decode().split("\0")


def _run(module: str, *arguments: str) -> None:
    """What `python -m` does with these."""
    sys.argv = [module, *arguments]
    planner = importlib.import_module(module)
    if module == _DAEMON:
        planner.manager()
        return
    from pyspark.worker_util import get_sock_file_to_executor

    # Between what Spark asks of a query's planner lies a micro-batch, however long that takes.
    with get_sock_file_to_executor(timeout=None) as file:
        planner.main(file, file)


def _main(folder: str, listening: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark's Java has it, and what that starts
    for each in _IMPORTED:
        importlib.import_module(each)
    gc.collect()
    gc.freeze()
    _run(*_serve(folder, socket.socket(fileno=int(listening))))


if __name__ == "__main__":
    _main(*sys.argv[1:])
