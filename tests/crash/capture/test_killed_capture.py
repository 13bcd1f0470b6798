"""A capture that is killed, in the middle of a snapshot or of a transaction, tells every change once.

Several connections write meanwhile. Another connection is the judge of the rows; the numbers of changes
say whether one was lost, told twice or told out of order.
"""

import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from tests.integration.capture.conftest import wait_until
from tests.integration.capture.reading import folded, read_topic

from headrace.capture import CaptureSpec, Catalog, absolute_url
from headrace.client import Connection
from headrace.testing.broker import BrokerProcess

TABLES = ("accounts", "entries")


def write(path: Path, seed: int, stop: threading.Event) -> None:
    """Transactions over both tables; some are rolled back, as a whole or to a savepoint."""
    numbers = random.Random(seed)
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as database:
        while not stop.is_set():
            database.execute("BEGIN IMMEDIATE")
            for _ in range(numbers.randint(1, 20)):
                key, table = numbers.randrange(400), numbers.choice(TABLES)
                if numbers.random() < 0.2:
                    database.execute("SAVEPOINT s")
                kind = numbers.random()
                if kind < 0.6:
                    database.execute(f"REPLACE INTO {table} VALUES (?, ?, ?)", (key, seed, numbers.random()))
                elif kind < 0.8:
                    database.execute(f"UPDATE {table} SET amount = amount + 1 WHERE id = ?", (key,))
                else:
                    database.execute(f"DELETE FROM {table} WHERE id = ?", (key,))
                if numbers.random() < 0.1 and database.in_transaction:
                    database.execute("SAVEPOINT t")
                    database.execute("ROLLBACK TO t")
            database.execute("ROLLBACK" if numbers.random() < 0.2 else "COMMIT")
            time.sleep(numbers.random() * 0.004)


def start(bootstrap: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "headrace", "capture", "run", "--json", "-b", bootstrap]
    return subprocess.Popen([*command, "--until-stdin-closes"], stdin=subprocess.PIPE)


def phases(catalog: Catalog) -> dict:
    status = catalog.refresh()["bank"].status or {}
    return {table: each["phase"] for table, each in status.get("tables", {}).items()}


def table_rows(path: Path, table: str) -> dict[bytes, dict]:
    with closing(sqlite3.connect(path)) as judge:
        found = judge.execute(f"SELECT id, owner, amount FROM {table}").fetchall()
    return {b'{"id":%d}' % row[0]: dict(zip(("id", "owner", "amount"), row, strict=True)) for row in found}


def run_and_kill(tmp_path: Path, *, kills: int, seed: int) -> None:
    numbers, path, stop = random.Random(seed), tmp_path / "bank.db", threading.Event()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        for table in TABLES:
            database.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, owner INT, amount REAL)")
            database.executemany(f"INSERT INTO {table} VALUES (?, 0, 0)", [(i,) for i in range(300)])
    with BrokerProcess(tmp_path / "log") as broker:
        catalog = Catalog(Connection(bootstrap_servers=broker.bootstrap))
        catalog.add(
            CaptureSpec(name="bank", url=absolute_url(f"sqlite:///{path}"), tables=TABLES, chunk_rows=5)
        )
        writers = [threading.Thread(target=write, args=(path, each, stop)) for each in (1, 2)]
        for each in writers:
            each.start()
        try:
            for _ in range(kills):
                process = start(broker.bootstrap)
                time.sleep(numbers.uniform(1.0, 3.0))
                process.send_signal(signal.SIGKILL)
                process.wait()
            process = start(broker.bootstrap)
            wait_until(
                lambda: phases(catalog) == dict.fromkeys([f"main.{each}" for each in TABLES], "done"), 120
            )
        finally:
            stop.set()
            for each in writers:
                each.join()
        try:
            wait_until(lambda: last_told(broker.bootstrap) == last_change(path), 120)
        finally:
            process.stdin.close()
            assert process.wait(60) == 0
        judge(broker.bootstrap, path)
        catalog.close()


def last_change(path: Path) -> int:
    with closing(sqlite3.connect(path)) as database:
        return database.execute("SELECT max(seq) FROM _headrace_bank_changes").fetchone()[0] or 0


def last_told(bootstrap: str) -> int:
    states = read_topic(bootstrap, "bank.state")
    return states[-1].value["position"]["seq"] if states else -1


def judge(bootstrap: str, path: Path) -> None:
    told = Counter()
    for table in TABLES:
        records = read_topic(bootstrap, f"bank.main.{table}")
        assert folded(records) == table_rows(path, table)
        order: dict = {}
        for record in records:
            if record.value is not None:
                told[table, record.value["source"].get("seq") or record.key] += 1
                seq = record.value["source"].get("seq", 0)
                assert seq == 0 or seq > order.get(record.key, 0), "out of order"
                order[record.key] = max(seq, order.get(record.key, 0))
    twice = [each for each, count in told.items() if count > 1]
    assert twice == [], "told twice"
    cuts = [each.value for each in read_topic(bootstrap, "bank.transaction")]
    changes = sum(1 for _, each in told if isinstance(each, int))
    assert sum(each["event_count"] for each in cuts) == changes
    assert orjson.dumps(cuts[-1]["offsets"])


def test_a_capture_killed_at_random_tells_every_change_once(tmp_path):
    run_and_kill(tmp_path, kills=2, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 4))
def test_a_capture_killed_many_times_tells_every_change_once(tmp_path, seed):
    run_and_kill(tmp_path, kills=20, seed=seed)
