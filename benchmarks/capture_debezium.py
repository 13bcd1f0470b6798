"""Debezium's connector for PostgreSQL on Kafka Connect and a real Kafka: the peer of our own reader.

Connect and Debezium run as they come, without exactly-once support, in one process of Java. Its rate
is that between the tenth and the last row, so that neither its start nor the first run of cold
code counts; its processor time is that of its process meanwhile.
"""

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from capture_postgres import ROWS, Measured

from headrace.capture.connect import ConnectSettings, ConnectWorker
from headrace.capture.postgres.wire.connection import Connection as Postgres
from headrace.client import LATEST, Connection, RawFetcher, consumer
from headrace.errors import HeadraceError
from headrace.testing.kafka import KafkaServer
from headrace.testing.postgres_process import PASSWORD

__all__ = ["Debezium", "lags", "percentile"]

TOPIC = "debezium.public.orders"
_SKIPPED = 0.1
_PATIENCE_S = 600
_SENT = re.compile(rb'"note":"at ([0-9.]+)"')
_TICKS = os.sysconf("SC_CLK_TCK")


class Debezium:
    """A Kafka and a Connect worker on it, for as long as the `with` block."""

    def __init__(self, folder: Path) -> None:
        self._log = (folder / "connect.log").open("wb")

    def __enter__(self) -> "Debezium":
        with contextlib.ExitStack() as opened:
            self.bootstrap = opened.enter_context(KafkaServer()).bootstrap
            settings = ConnectSettings(
                bootstrap_servers=self.bootstrap,
                heap_mb=1024,
                properties={"exactly.once.source.support": "disabled"},
            )
            self._worker = opened.enter_context(ConnectWorker(settings, log=self._log))
            self._opened = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
        self._log.close()

    @contextlib.contextmanager
    def connector(self, database: Postgres, snapshot_mode: str) -> Iterator[None]:
        """The connector, from its start to its end; its slot is there before and after."""
        address = database.address
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "tasks.max": "1",
            "topic.prefix": "debezium",
            "database.hostname": "127.0.0.1",
            "database.port": str(address.port),
            "database.user": address.user,
            "database.password": PASSWORD,
            "database.dbname": address.database,
            "plugin.name": "pgoutput",
            "slot.name": "debezium",
            "publication.name": "debezium",
            "publication.autocreate.mode": "disabled",
            "table.include.list": "public.orders",
            "snapshot.mode": snapshot_mode,
            "decimal.handling.mode": "string",
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "4",
        }
        self._worker.put(f"orders-{snapshot_mode}", config)
        try:
            yield
        finally:
            self._worker.remove(f"orders-{snapshot_mode}")

    def measured(self, name: str, rows: int) -> Measured:
        """From the tenth of so many further rows in the topic to the last."""
        before = self.written()
        skipped = int(rows * _SKIPPED)
        _wait(lambda: self.written() - before >= skipped)
        began, cpu, first = time.perf_counter(), self._cpu_s(), self.written() - before
        _wait(lambda: self.written() - before >= rows)
        took, used = time.perf_counter() - began, self._cpu_s() - cpu
        return Measured(name, rows - first, took, used)

    def written(self) -> int:
        """Records in the topic."""
        with RawFetcher(Connection(bootstrap_servers=self.bootstrap)) as fetcher:
            try:
                return sum(fetcher.offsets(TOPIC, LATEST).values())
            except HeadraceError:  # there is no topic yet
                return 0

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self._worker.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


def lags(bootstrap: str, topic: str, database: Postgres, *, first: int, seconds: float) -> list[float]:
    """Milliseconds from before a statement to when each of its rows is read, at 1,000 rows a second."""
    found: list[float] = []
    done = threading.Event()
    reader = consumer(
        Connection(bootstrap_servers=bootstrap), "lags", isolation_level="read_committed",
        auto_offset_reset="latest", fetch_wait_max_ms=5,
    )  # fmt: skip
    joined = threading.Event()
    reader.subscribe([topic], on_assign=lambda *_: joined.set())

    def read() -> None:
        while not done.is_set():
            message = reader.poll(0.1)
            sent = (
                _SENT.search(message.value() or b"") if message is not None and not message.error() else None
            )
            if sent is not None:
                found.append(time.time() * 1000 - float(sent[1]))

    thread = threading.Thread(target=read)
    thread.start()
    _wait(joined.is_set)
    statement = ROWS.replace("md5(g::text)", "'at {note}'")
    due = time.monotonic()
    for number in range(int(seconds * 100)):
        start = first + number * 10
        database.query(statement.format(first=start, last=start + 9, note=f"{time.time() * 1000:.3f}"))
        due += 0.01
        time.sleep(max(due - time.monotonic(), 0))
    with contextlib.suppress(TimeoutError):
        _wait(lambda: len(found) >= int(seconds * 1000), 30)
    done.set()
    thread.join()
    reader.close()
    return found


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(len(values) * share), len(values) - 1)] if values else float("nan")


def _wait(holds: Callable[[], bool], patience_s: float = _PATIENCE_S) -> None:
    until = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError("it did not come")
        time.sleep(0.02)
