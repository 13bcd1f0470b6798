"""A capture of PostgreSQL that is killed, in a snapshot or in a transaction, tells every change once."""

import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import pytest
from tests.integration.capture.conftest import running, wait_until
from tests.integration.capture.postgres.conftest import started
from tests.integration.capture.postgres.databases import Database
from tests.integration.capture.reading import Read, folded, read_topic

from headrace.testing.broker import BrokerProcess

SCRIPT = Path(__file__).with_name("capturing_postgres.py")
TOPIC = "killed.public.accounts"


def write(database: Database, stopping: threading.Event, number: int) -> None:
    """Transactions of up to a few hundred rows, so that many a kill falls into one; now and then no rows."""
    chance, connection = random.Random(number), database.connect()
    while not stopping.is_set():
        size, first = chance.choice((1, 5, 300)), chance.randrange(2000)
        connection.query(
            f"INSERT INTO accounts SELECT g, {number}, 1 FROM generate_series({first}, {first + size}) g "
            "ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, amount = accounts.amount + 1"
        )
        connection.query(f"DELETE FROM accounts WHERE id = {chance.randrange(2000)}")
        if chance.random() < 0.02:
            connection.query("TRUNCATE accounts")
        time.sleep(chance.random() * 0.02)
    connection.close()


def each_change_once(records: list[Read]) -> None:
    """A change has its own place in the database's log; those of a key come in its order."""
    changes = [each for each in records if each.value is not None and each.value["op"] != "r"]
    places = [(each.value["source"]["lsn"], each.key, each.value["op"]) for each in changes]
    assert len(set(places)) == len(places), "a change was told twice"
    by_key = defaultdict(list)
    for each in changes:
        by_key[each.key].append(each.value["source"]["lsn"])
    assert all(lsns == sorted(lsns) for lsns in by_key.values()), "changes of a key are out of order"


def whole_transactions(records: list[Read]) -> None:
    """The changes of a transaction are numbered without a gap."""
    orders = defaultdict(list)
    for each in records:
        if each.value is not None and each.value["op"] != "r":
            orders[each.value["transaction"]["id"]].append(each.value["transaction"]["total_order"])
    assert all(sorted(each) == list(range(1, len(each) + 1)) for each in orders.values())


def run_and_kill(tmp_path: Path, kills: int) -> None:
    chance, stopping = random.Random(kills), threading.Event()
    with (
        started() as server,
        Database(server, "bank") as database,
        BrokerProcess(tmp_path / "log") as broker,
    ):
        database.run(
            "CREATE TABLE accounts (id int PRIMARY KEY, owner int, amount int)",
            "INSERT INTO accounts SELECT g, 0, 0 FROM generate_series(1, 2000) g",
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

        def source():
            return database.source("killed")

        wanted = sorted(database.rows("accounts", "id").values(), key=str)
        with running(broker.bootstrap, "killed", source) as run:
            wait_until(lambda: run.status.state == "streaming")
            wait_until(
                lambda: sorted(folded(read_topic(broker.bootstrap, TOPIC)).values(), key=str) == wanted
            )
        records = read_topic(broker.bootstrap, TOPIC)
        each_change_once(records)
        whole_transactions(records)


@pytest.mark.xdist_group("crash")
def test_a_capture_that_is_killed_tells_every_change_once(tmp_path):
    run_and_kill(tmp_path, kills=1)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_capture_that_is_killed_twenty_times_tells_every_change_once(tmp_path):
    run_and_kill(tmp_path, kills=20)
