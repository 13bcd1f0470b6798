"""PostgreSQL to topics, beside `pg_recvlogical`, which writes the server's own stream to nowhere.

One load, three slots: each reader gets the same bytes of the same log, one after the other, so
that a shared machine changes its speed for all of them. The reader of our own is measured
twice: decoding alone, and all the way into topics in transactions, with cuts and state. The
snapshot is of the same rows. Debezium does the same on Kafka Connect and a real Kafka.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from headrace.capture import (
    CaptureRun,
    CaptureSpec,
    CaptureWriter,
    Catalog,
    Change,
    ChangeBlock,
    EncodedChanges,
    Position,
    Source,
)
from headrace.capture.change import Item
from headrace.capture.envelope import Envelope
from headrace.capture.postgres import PostgresAddress, PostgresSource
from headrace.capture.postgres.wire.connection import Connection as Postgres
from headrace.capture.postgres.wire.connection import format_lsn, parse_lsn
from headrace.client import Connection
from headrace.testing.broker import BrokerProcess
from headrace.testing.postgres_process import PASSWORD, PostgresProcess

__all__ = ["BAR_OF_SENDER", "Measured", "RunningCapture", "compare", "decoded"]

TABLE = (
    "CREATE TABLE orders (id bigint PRIMARY KEY, customer text, amount numeric(12,2), "
    "created timestamptz, note text)"
)
ROWS = (
    "INSERT INTO orders SELECT g, 'customer ' || g % 1000, g % 10000 / 100.0, now(), md5(g::text) "
    "FROM generate_series({first}, {last}) g"
)
BAR_OF_SENDER = 0.7
BAR_OF_DEBEZIUM, BAR_OF_DEBEZIUMS_SNAPSHOT = 8, 15
BAR_OF_LAG_MS = 50
LAG_S = 20


@dataclass(frozen=True)
class Measured:
    """What one reader took for all rows; `cpu_s` of its own process."""

    name: str
    rows: int
    wall_s: float
    cpu_s: float

    def __str__(self) -> str:
        return (
            f"{self.name:32} {self.rows / self.wall_s:>10,.0f} rows/s  "
            f"{self.rows / max(self.cpu_s, 1e-9):>10,.0f} rows per CPU second"
        )


def compare(rows: int, per_transaction: int) -> bool:
    """Prints all figures; whether every reader had every row once."""
    with PostgresProcess() as server, tempfile.TemporaryDirectory() as folder:
        address = PostgresAddress.parse(server.url())
        with Postgres(address, PASSWORD) as database, BrokerProcess(Path(folder)) as broker:
            print(f"PostgreSQL {server.version}, {rows:,} rows, {per_transaction} a transaction")
            return _compare(server, database, broker.bootstrap, rows, per_transaction)


def _compare(
    server: PostgresProcess, database: Postgres, bootstrap: str, rows: int, per_transaction: int
) -> bool:
    database.query(TABLE)
    start = _set_up(database, "decoder")
    _set_up(database, "sender")
    database.query("CREATE PUBLICATION debezium FOR TABLE orders")
    database.query("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")
    with RunningCapture(bootstrap, _source(database, "topics"), "topics") as capture:
        capture.wait_streaming()
    for first in range(1, rows + 1, per_transaction):
        database.query(ROWS.format(first=first, last=min(first + per_transaction - 1, rows)))
    end = parse_lsn(database.value("SELECT pg_current_wal_lsn()"))
    sender = _sender(server, end, rows)
    decoder = decoded(_source(database, "decoder"), start, rows)
    with RunningCapture(bootstrap, _source(database, "topics"), "topics") as capture:
        topics = capture.wait_changes(rows)
    with RunningCapture(bootstrap, _source(database, "snapshot"), "snapshot") as capture:
        snapshot = capture.wait_streaming()
    for each in (sender, decoder, topics, snapshot):
        print(each)
    for each in (decoder, topics):
        ratio = each.rows / each.wall_s / (sender.rows / sender.wall_s)
        print(f"{each.name}: {ratio:.2f} of the sender by the wall (bar {BAR_OF_SENDER})")
    _beside_debezium(database, topics, snapshot, rows)
    _print_lag(server, database, bootstrap, rows)
    return decoder.rows == topics.rows == snapshot.rows == rows


def _beside_debezium(database: Postgres, topics: Measured, snapshot: Measured, rows: int) -> None:
    from capture_debezium import Debezium, lags

    with tempfile.TemporaryDirectory() as folder, Debezium(Path(folder)) as debezium:
        with debezium.connector(database, "no_data"):
            streamed = debezium.measured("Debezium, changes to topics", rows)
            found = lags(
                debezium.bootstrap, "debezium.public.orders", database, first=rows + 1, seconds=LAG_S
            )
        with debezium.connector(database, "always"):
            read = debezium.measured("Debezium, a snapshot to topics", rows)
    print(streamed, read, sep="\n")
    _print_ratio(topics, streamed, BAR_OF_DEBEZIUM)
    _print_ratio(snapshot, read, BAR_OF_DEBEZIUMS_SNAPSHOT)
    _print_lags("Debezium", found)


def _print_ratio(ours: Measured, theirs: Measured, bar: int) -> None:
    wall = ours.rows / ours.wall_s / (theirs.rows / theirs.wall_s)
    cpu = ours.rows / ours.cpu_s / (theirs.rows / theirs.cpu_s)
    print(
        f"{ours.name}: {wall:.1f} times Debezium by the wall, {cpu:.1f} times by processor time (bar {bar})"
    )


def _print_lag(server: PostgresProcess, database: Postgres, bootstrap: str, rows: int) -> None:
    """From commit to topic, of `headrace capture run` in a process of its own."""
    from capture_debezium import lags

    first = rows + LAG_S * 1000 + 1
    spec = CaptureSpec(name="lag", url=server.url(), tables=("orders",))
    with contextlib.closing(Catalog(Connection(bootstrap_servers=bootstrap))) as catalog:
        catalog.add(spec)
        command = [str(Path(sys.executable).with_name("headrace")), "capture", "run", "-b", bootstrap]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            while (catalog.refresh()["lag"].status or {}).get("state") != "streaming":
                time.sleep(0.1)
            found = lags(bootstrap, "lag.public.orders", database, first=first, seconds=LAG_S)
            process.terminate()
    _print_lags("ours", found)


def _print_lags(name: str, found: list[float]) -> None:
    from capture_debezium import percentile

    p50, p99 = percentile(found, 0.5), percentile(found, 0.99)
    print(
        f"{name}, from commit to topic at 1,000 rows/s: p50 {p50:.1f} ms, p99 {p99:.1f} ms "
        f"({len(found):,} rows, bar {BAR_OF_LAG_MS} ms)"
    )


def _set_up(database: Postgres, name: str) -> Position:
    """Creates slot and publication; where to read on from."""
    source = _source(database, name)
    try:
        return source.connect(None)
    finally:
        source.close()


def _source(database: Postgres, name: str) -> PostgresSource:
    return PostgresSource(database.address, PASSWORD, name=name)


def _sender(server: PostgresProcess, end: int, rows: int) -> Measured:
    command = [
        str(server.programs / "pg_recvlogical"),
        "-h",
        "127.0.0.1",
        "-p",
        str(server.port),
        "-U",
        "postgres",
    ]
    command += ["-d", "postgres", "--slot", "headrace_sender", "--start", "-f", "/dev/null", "--no-loop"]
    command += [
        "--endpos",
        format_lsn(end),
        "-o",
        "proto_version=1",
        "-o",
        "publication_names=headrace_sender",
    ]
    began, before = time.perf_counter(), os.times()
    subprocess.run(command, check=True, env={**os.environ, "PGPASSWORD": PASSWORD}, capture_output=True)
    after = os.times()
    cpu_s = after.children_user + after.children_system - before.children_user - before.children_system
    return Measured("pg_recvlogical, to nowhere", rows, time.perf_counter() - began, cpu_s)


def decoded(source: Source, position: Position, rows: int) -> Measured:
    """Reads so many changes and encodes them as a run does, for nobody."""
    source.connect(position)
    envelope = Envelope(connector=source.connector, name="decoder", database=source.database, version="0")
    began, cpu, count, empty = time.perf_counter(), time.process_time(), 0, 0
    while count < rows and empty < 20:
        before = count
        for transaction in source.transactions(0.5):
            envelope.begin(transaction.id, transaction.committed_us)
            for item in transaction.changes:
                count += _count_encoded(item, envelope)
        empty = empty + 1 if count == before else 0
    measured = Measured(
        "ours, to changes in JSON", count, time.perf_counter() - began, time.process_time() - cpu
    )
    source.close()
    return measured


def _count_encoded(item: Item | ChangeBlock, envelope: Envelope) -> int:
    """Encodes changes as a run does; how many there were."""
    if isinstance(item, ChangeBlock):
        return sum(
            each.count if isinstance(each, EncodedChanges) else _count_encoded(each, envelope)
            for each in item.encoded(envelope, 0)
        )
    return len(envelope.value(item, 0)) > 0 if isinstance(item, Change) else 0


class RunningCapture:
    """A capture in a thread, which is all that this process does meanwhile."""

    def __init__(self, bootstrap: str, source: Source, name: str) -> None:
        writer = CaptureWriter(Connection(bootstrap_servers=bootstrap), name)
        self._run = CaptureRun(name, lambda: source, writer)
        self._thread = threading.Thread(target=self._run.run, daemon=True)

    def __enter__(self) -> Self:
        self._began, self._cpu = time.perf_counter(), time.process_time()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._run.stop()
        self._thread.join(30)

    def wait_streaming(self) -> Measured:
        while self._run.status.state != "streaming":
            time.sleep(0.02)
        read = sum(each.rows for each in self._run.status.tables.values())
        return self._measured("ours, a snapshot to topics", read)

    def wait_changes(self, rows: int) -> Measured:
        while self._run.status.changes < rows:
            time.sleep(0.02)
        return self._measured("ours, changes to topics", self._run.status.changes)

    def _measured(self, name: str, rows: int) -> Measured:
        return Measured(name, rows, time.perf_counter() - self._began, time.process_time() - self._cpu)
