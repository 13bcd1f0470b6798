"""The brokers that `log.py` compares, each in a process of its own, started one way."""

import compileall
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import headrace
from headrace.testing.broker import BrokerProcess
from headrace.testing.kafka import KafkaServer, free_ports, wait_for_metadata

__all__ = ["BROKERS", "FLOOR", "KAFKA", "KAFKA_SYNCING", "OURS", "RunningBroker", "floor"]

OURS, KAFKA, KAFKA_SYNCING, FLOOR = "ours", "kafka", "kafka-syncing", "floor"
_FLOOR_SOURCE = Path(__file__).with_name("floor.c")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningBroker:
    """Where it is reached, its process, and the seconds from its start to its first metadata answer."""

    bootstrap: str
    pid: int
    start_seconds: float


@contextmanager
def _ours() -> Iterator[RunningBroker]:
    # As pip leaves what it installs; where Python may write no bytecode it would compile us at each start.
    compileall.compile_dir(Path(headrace.__file__).parent, quiet=1)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        started = time.monotonic()
        with BrokerProcess(Path(folder) / "data") as broker:
            if not wait_for_metadata(broker.bootstrap, broker.is_alive, 30):
                raise SystemExit(f"our broker ended at once:\n{broker.output()}")
            seconds = time.monotonic() - started
            yield RunningBroker(bootstrap=broker.bootstrap, pid=broker.pid, start_seconds=seconds)


@contextmanager
def _kafka(settings: dict[str, str]) -> Iterator[RunningBroker]:
    # Its controller must not take it for dead when both were held for a while (`turns.py`). And the
    # memory of what was deleted is to be free for whoever comes next, as ours is (see README.md).
    turns = {"broker.session.timeout.ms": "600000", "log.segment.delete.delay.ms": "1000"}
    with KafkaServer({**turns, **settings}) as kafka:
        yield RunningBroker(bootstrap=kafka.bootstrap, pid=kafka.pid, start_seconds=kafka.start_seconds)


BROKERS: dict[str, Callable[[], AbstractContextManager[RunningBroker]]] = {
    OURS: _ours,
    KAFKA: lambda: _kafka({}),  # its defaults: acknowledges before it syncs
    KAFKA_SYNCING: lambda: _kafka({"log.flush.interval.messages": "1"}),  # promises what we promise
}


@contextmanager
def floor() -> Iterator[RunningBroker]:
    """No broker but the least of one (`floor.c`), compiled by the compiler that `make setup` has."""
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        program, data = Path(folder) / "floor", Path(folder) / "data"
        data.mkdir()
        environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": folder, "ZIG_LOCAL_CACHE_DIR": folder}
        compiler = [sys.executable, "-m", "ziglang", "cc", "-std=gnu11", "-O2", "-o", program, _FLOOR_SOURCE]
        subprocess.run(compiler, check=True, env=environment)
        (port,) = free_ports(1)
        started = time.monotonic()
        with subprocess.Popen([program, str(port), data]) as process:
            try:
                bootstrap = f"127.0.0.1:{port}"
                if not wait_for_metadata(bootstrap, lambda: process.poll() is None, 30):
                    raise SystemExit(f"{program} ended at once")
                yield RunningBroker(
                    bootstrap=bootstrap, pid=process.pid, start_seconds=time.monotonic() - started
                )
            finally:
                process.kill()  # SIGKILL, since it may be stopped (`turns.py`)
