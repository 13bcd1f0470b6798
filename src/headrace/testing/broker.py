"""A broker for tests: a process of its own, or a thread in this one.

`BrokerProcess` is the real thing, which a test may kill; `running_broker` is
the in-process form, for tests that want speed or the broker's insides.
"""

import asyncio
import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from headrace.broker import Broker, BrokerSettings
from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.event_loop import new_loop
from headrace.groups import GroupSettings
from headrace.storage import Disk

__all__ = ["BrokerProcess", "held_port", "running_broker"]


class BrokerProcess:
    """`headrace broker` as a child process on a free loopback port.

    The port is kept over restarts, so that clients find it again. `kill` is
    SIGKILL, `stop` is SIGTERM. Everything it printed is in `log_path`. However the
    process that started it ends, it ends too.
    """

    def __init__(self, data: Path, *, port: int = 0, start_timeout_s: float = 90, **settings: object) -> None:
        self.data = Path(data)
        self.port = port
        self.settings = settings
        self.start_timeout_s = start_timeout_s
        self.start_seconds = 0.0
        self.metrics_port: int | None = None
        self.log_path = Path(tempfile.gettempdir()) / f"headrace-broker-{os.getpid()}-{id(self):x}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._held: socket.socket | None = None

    @property
    def bootstrap(self) -> str:
        """Where clients connect."""
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def start(self) -> Self:
        """Starts it and waits until it listens."""
        if self.port == 0 and sys.platform == "linux":
            self._held = held_port()
            self.port = self._held.getsockname()[1]
        command = [sys.executable, "-m", "headrace", "broker", "--json", "--until-stdin-closes"]
        command += ["--data", str(self.data), "--listen", f"127.0.0.1:{self.port}"]
        for name, value in self.settings.items():
            command += _flag(name, value)
        began = time.monotonic()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command line
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            )
        self.port = self._wait_listening()
        self.start_seconds = time.monotonic() - began
        return self

    def _wait_listening(self) -> int:
        assert self._process is not None and self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], self.start_timeout_s)
        line = self._process.stdout.readline() if ready else b""
        if not line:
            self.kill()
            raise HeadraceError(f"the broker did not start:\n{self.output()}")
        announced = json.loads(line)
        self.metrics_port = announced.get("metrics_port")
        return int(announced["port"])

    def output(self) -> str:
        """What it wrote to standard error."""
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, signum: int) -> None:
        os.kill(self.pid, signum)

    def kill(self) -> None:
        """SIGKILL: what a power cut leaves of a process."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        return self._end(signal.SIGTERM)

    def restart(self) -> Self:
        """Stops it cleanly if it runs, and starts it on the same data and port."""
        if self.is_alive():
            self.stop()
        return self.start()

    def _end(self, signum: int) -> int:
        process = self._process
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(signum)
        try:
            code = process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise HeadraceError(f"the broker did not end within 60 s:\n{self.output()}") from None
        finally:
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
        self._process = None
        return code

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.is_alive():
            with contextlib.suppress(HeadraceError):
                self.signal(signal.SIGCONT)
                self.stop()
        if self._held is not None:
            self._held.close()
        self.log_path.unlink(missing_ok=True)


def held_port() -> socket.socket:
    """Binds a loopback port without listening: a server may have it too, and nobody else meanwhile."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


def _flag(name: str, value: object) -> list[str]:
    flag = "--" + name.replace("_", "-")
    if isinstance(value, bool):
        return [flag if value else "--no-" + name.replace("_", "-")]
    return [flag, str(value)]


@contextlib.contextmanager
def running_broker(
    data: Path,
    *,
    groups: GroupSettings | None = None,
    disk: Disk | None = None,
    clock: Clock | None = None,
    **settings: object,
) -> Iterator[Broker]:
    """A broker on an event loop in a thread of its own, stopped cleanly at the end of the block."""
    chosen = BrokerSettings(data=str(data), **{"listen": "127.0.0.1:0", **settings})  # type: ignore[arg-type]
    broker = Broker(chosen, group_settings=groups, disk=disk, clock=clock)
    started, failure, stop = threading.Event(), [], asyncio.Event()
    loop = new_loop()  # the same that a broker of its own has

    async def serve() -> None:
        async with broker.serving():
            started.set()
            await stop.wait()

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve())
        except BaseException as error:
            failure.append(error)
        finally:
            started.set()

    thread = threading.Thread(target=run, name="headrace-broker", daemon=True)
    thread.start()
    started.wait()
    try:
        if failure:
            raise failure[0]
        yield broker
    finally:
        if thread.is_alive():
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(stop.set)
        thread.join(30)
    if failure:
        raise failure[0]
