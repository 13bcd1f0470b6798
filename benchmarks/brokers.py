"""The brokers that `log.py` compares, each in a process of its own, started one way."""

import compileall
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import headrace
from headrace.testing.broker import BrokerProcess
from headrace.testing.kafka import KafkaServer, wait_for_metadata

__all__ = ["BROKERS", "KAFKA", "KAFKA_SYNCING", "OURS", "RunningBroker"]

OURS, KAFKA, KAFKA_SYNCING = "ours", "kafka", "kafka-syncing"


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
    # Its controller must not take it for dead when both were held for a while (`turns.py`).
    with KafkaServer({"broker.session.timeout.ms": "600000", **settings}) as kafka:
        yield RunningBroker(bootstrap=kafka.bootstrap, pid=kafka.pid, start_seconds=kafka.start_seconds)


BROKERS: dict[str, Callable[[], AbstractContextManager[RunningBroker]]] = {
    OURS: _ours,
    KAFKA: lambda: _kafka({}),  # its defaults: acknowledges before it syncs
    KAFKA_SYNCING: lambda: _kafka({"log.flush.interval.messages": "1"}),  # promises what we promise
}
