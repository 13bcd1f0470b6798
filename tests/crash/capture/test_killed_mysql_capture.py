"""A capture of MariaDB or MySQL that is killed tells every change once."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from tests.crash.capture.test_killed_postgres_capture import whole_transactions
from tests.integration.capture.conftest import running, wait_until
from tests.integration.capture.mysql.conftest import started
from tests.integration.capture.mysql.databases import Database
from tests.integration.capture.reading import Read, folded, read_topic

from headrace.testing.broker import BrokerProcess

SCRIPT = Path(__file__).with_name("capturing_mysql.py")
TOPIC = "killed.bank.accounts"
NUMBERS = "WITH RECURSIVE g (n) AS (SELECT {first} UNION ALL SELECT n + 1 FROM g WHERE n < {last}) SELECT n"


def write(database: Database, stopping: threading.Event, number: int) -> None:
    """Transactions of up to a few hundred rows, so that many a kill falls into one."""
    chance, connection = random.Random(number), database.connect()
    connection.query("USE bank")
    connection.query("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    while not stopping.is_set():
        size, first = chance.choice((1, 5, 300)), chance.randrange(2000)
        numbers = NUMBERS.format(first=first, last=first + size)
        connection.query(
            f"INSERT INTO accounts (id, owner, amount) {numbers}, {number}, 1 FROM g "
            f"ON DUPLICATE KEY UPDATE owner = {number}, amount = accounts.amount + 1"
        )
        connection.query(f"DELETE FROM accounts WHERE id = {chance.randrange(2000)}")
        time.sleep(chance.random() * 0.02)
    connection.close()


def each_change_once(records: list[Read]) -> None:
    """A change has its own place in the server's log; those of a key come in its order."""
    changes = [each for each in records if each.value is not None and each.value["op"] != "r"]
    places = [(_place(each), each.key, each.value["op"]) for each in changes]
    assert len(set(places)) == len(places), "a change was told twice"
    by_key = defaultdict(list)
    for each in changes:
        by_key[each.key].append(_place(each))
    assert all(told == sorted(told) for told in by_key.values()), "changes of a key are out of order"


def _place(read: Read) -> tuple:
    source = read.value["source"]
    return source["file"], source["pos"], source["row"]


def run_and_kill(tmp_path: Path, product: str, kills: int) -> None:
    chance, stopping = random.Random(kills), threading.Event()
    with (
        started(product) as server,
        Database(server, "bank") as database,
        BrokerProcess(tmp_path / "log") as broker,
    ):
        database.run(
            "CREATE TABLE accounts (id int PRIMARY KEY, owner int, amount int)",
            "SET SESSION cte_max_recursion_depth = 5000" if product == "mysql" else "SELECT 1",
            f"INSERT INTO accounts {NUMBERS.format(first=1, last=2000)}, 0, 0 FROM g",
        )
        writers = [threading.Thread(target=write, args=(database, stopping, each)) for each in (1, 2)]
        for each in writers:
            each.start()
        try:
            for _ in range(kills):
                command = [sys.executable, SCRIPT, server.url("bank"), broker.bootstrap, "killed", "40"]
                process = subprocess.Popen([str(each) for each in command])
                time.sleep(chance.uniform(1.5, 3.0))
                process.send_signal(signal.SIGKILL)
                process.wait()
        finally:
            stopping.set()
            for each in writers:
                each.join(60)
        rows = database.run("SELECT id, owner, amount FROM accounts ORDER BY id")
        wanted = [dict(zip(("id", "owner", "amount"), map(int, row), strict=True)) for row in rows]  # type: ignore

        def found() -> list[dict]:
            return sorted(folded(read_topic(broker.bootstrap, TOPIC)).values(), key=lambda row: row["id"])

        with running(broker.bootstrap, "killed", lambda: database.source("killed")) as run:
            wait_until(lambda: run.status.state == "streaming")
            wait_until(lambda: found() == wanted)
        records = read_topic(broker.bootstrap, TOPIC)
        each_change_once(records)
        whole_transactions(records)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("product", ["mariadb", "mysql"])
def test_a_capture_that_is_killed_tells_every_change_once(tmp_path, product):
    run_and_kill(tmp_path, product, kills=20)
