"""SQLite's part of `capture.py`: what triggers cost the writer, and how fast changes reach the log."""

import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

from measure import Bar

from headrace.capture import CaptureRun, CaptureWriter
from headrace.capture.sqlite import SqliteSource
from headrace.client import Connection
from headrace.testing.broker import BrokerProcess

ROUNDS = 3
WRITER = Bar(factor=2.5, at_least=False)


def compare(rows: int, per_transaction: int) -> bool:
    """Prints what triggers cost an insert, and rows a second captured; False if rows are missing."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        ratios = []
        for number in range(ROUNDS):
            plain = _insert(place / f"plain{number}.db", rows, per_transaction, captured=False)
            captured = _insert(place / f"captured{number}.db", rows, per_transaction, captured=True)
            ratios.append(captured / plain)
            print(f"insert: plain {rows / plain:,.0f} rows/CPU-s, captured {rows / captured:,.0f}")
        ratio = sorted(ratios)[len(ratios) // 2]
        print(f"SQLite: writer with triggers / plain insert: {ratio:.2f} ({WRITER.verdict(ratio)})")
        return _capture(place, rows, per_transaction)


def _create(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        columns = "id INTEGER PRIMARY KEY, customer TEXT, amount REAL, created TEXT, note TEXT"
        database.execute(f"CREATE TABLE orders ({columns})")


def _insert(path: Path, rows: int, per_transaction: int, *, captured: bool, first: int = 0) -> float:
    """The processor time of inserting so many rows."""
    if first == 0:
        _create(path)
    if captured:
        source = SqliteSource(path, ["orders"], name="bench")
        source.connect(None)
        source.close()
    made = [
        (each, f"customer-{each % 10007}", each % 99999 / 100, "2026-01-01T00:00:00Z", f'note "{each}"')
        for each in range(first, first + rows)
    ]
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as database:
        database.execute("PRAGMA synchronous = NORMAL")
        began = time.thread_time()
        for start in range(0, rows, per_transaction):
            database.execute("BEGIN IMMEDIATE")
            some = made[start : start + per_transaction]
            database.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?)", some)
            database.execute("COMMIT")
        return time.thread_time() - began


def _capture(place: Path, rows: int, per_transaction: int) -> bool:
    """A snapshot of the rows, and as many changes that were waiting."""
    path = place / "shop.db"
    _insert(path, rows, per_transaction, captured=False)
    with BrokerProcess(place / "log") as broker:
        connection = Connection(bootstrap_servers=broker.bootstrap)
        seconds, cpu = _run(connection, path, lambda run: run.status.state == "streaming")
        print(f"SQLite: snapshot {rows / seconds:,.0f} rows/s, {rows / cpu:,.0f} rows/CPU-s")
        _insert(path, rows, per_transaction, captured=False, first=rows)
        seconds, cpu = _run(connection, path, lambda run: run.status.changes >= rows)
        print(f"SQLite: changes {rows / seconds:,.0f} rows/s, {rows / cpu:,.0f} rows/CPU-s")
        with closing(sqlite3.connect(path)) as database:
            return bool(database.execute("SELECT count(*) FROM orders").fetchone()[0] == 2 * rows)


def _run(connection: Connection, path: Path, is_done) -> tuple[float, float]:
    """Runs the capture until it is done: seconds, and processor time of this process."""
    writer = CaptureWriter(connection, "bench")
    run = CaptureRun("bench", lambda: SqliteSource(path, ["orders"], name="bench"), writer)
    thread = threading.Thread(target=run.run)
    began, cpu = time.perf_counter(), time.process_time()
    thread.start()
    while not is_done(run):
        time.sleep(0.01)
    spent = time.perf_counter() - began, time.process_time() - cpu
    run.stop()
    thread.join()
    return spent
