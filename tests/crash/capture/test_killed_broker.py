"""The broker is killed under a capture and a follower of its topic, and so is the database."""

import random
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.crash.capture.test_killed_mysql_capture import each_change_once as each_mysql_change_once
from tests.crash.capture.test_killed_postgres_capture import each_change_once as each_postgres_change_once
from tests.crash.capture.test_killed_postgres_capture import whole_transactions
from tests.integration.capture.conftest import running, wait_until
from tests.integration.capture.mysql import conftest as mysql
from tests.integration.capture.mysql.databases import Database as MysqlDatabase
from tests.integration.capture.postgres import conftest as postgres
from tests.integration.capture.postgres.databases import Database as PostgresDatabase
from tests.integration.capture.reading import Read, folded, read_topic
from tests.integration.derived.conftest import following

from headrace.capture import CaptureRun, Source
from headrace.capture.sqlite import SqliteSource
from headrace.client import Connection
from headrace.derived import Follow, table, verify_follow
from headrace.errors import HeadraceError
from headrace.testing.broker import BrokerProcess

ROWS = 400
CREATE = "CREATE TABLE accounts (id int PRIMARY KEY, owner int, amount int)"
SELECT = "SELECT id, owner, amount FROM accounts"


class Bank:
    """A database with accounts; `server` may be stopped hard, where there is one."""

    schema = "public"

    def __init__(self, database: PostgresDatabase | MysqlDatabase) -> None:
        self._database, self.server = database, database.server

    def source(self) -> Source:
        return self._database.source("bank")

    def connect(self) -> tuple[Callable[[str], Any], Callable[[], None]]:
        connection = self._database.connect()
        if isinstance(self._database, MysqlDatabase):
            connection.query("USE bank")
        return connection.query, connection.close

    def rows(self) -> list[list[int]]:
        execute, close = self.connect()
        try:
            return sorted([int(each) for each in row] for row in execute(SELECT))
        finally:
            close()

    def check(self, records: list[Read]) -> None:
        each_postgres_change_once(records)


class MariaBank(Bank):
    schema = "bank"

    def check(self, records: list[Read]) -> None:
        each_mysql_change_once(records)


class FileBank(Bank):
    """The same in a SQLite file."""

    schema, server = "main", None

    def __init__(self, path: Path) -> None:
        self._path = path

    def source(self) -> Source:
        return SqliteSource(self._path, ["accounts"], name="bank")

    def connect(self) -> tuple[Callable[[str], Any], Callable[[], None]]:
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=60)
        return connection.execute, connection.close

    def check(self, records: list[Read]) -> None:
        told = [each.value["source"]["seq"] for each in records if each.value and each.value["op"] != "r"]
        assert len(set(told)) == len(told), "a change was told twice"


@contextmanager
def opened(kind: str, tmp_path: Path) -> Iterator[Bank]:
    if kind == "postgres":
        with postgres.started() as server, PostgresDatabase(server, "bank") as database:
            yield Bank(database)
    elif kind == "mariadb":
        durable = {
            "innodb_flush_log_at_trx_commit": "2"
        }  # or a commit in the log may be gone from the tables
        with mysql.started(**durable) as server, MysqlDatabase(server, "bank") as database:
            yield MariaBank(database)
    else:
        with closing(sqlite3.connect(tmp_path / "bank.db")) as database:
            database.execute("PRAGMA journal_mode = WAL")
        yield FileBank(tmp_path / "bank.db")


def write(bank: Bank, seed: int, stop: threading.Event) -> None:
    """Transactions of up to a hundred changes; connects again while the server is away."""
    chance = random.Random(seed)
    while not stop.is_set():
        try:
            execute, close = bank.connect()
            while not stop.is_set():
                execute("BEGIN")
                first = chance.randrange(ROWS)
                last = first + chance.choice((1, 5, 100))
                execute(f"UPDATE accounts SET owner = {seed}, amount = amount + 1 "
                        f"WHERE id BETWEEN {first} AND {last}")  # fmt: skip
                execute(f"DELETE FROM accounts WHERE id = {first}")
                if chance.random() < 0.7:
                    execute(f"INSERT INTO accounts VALUES ({first}, {seed}, 0)")
                execute("ROLLBACK" if chance.random() < 0.2 else "COMMIT")
                time.sleep(chance.random() * 0.02)
            close()
        except (HeadraceError, OSError):
            time.sleep(0.05)  # it is away, or the other writer was in the way


def run_and_kill(tmp_path: Path, kind: str, kills: int) -> None:
    chance, stop = random.Random(kind), threading.Event()
    with opened(kind, tmp_path) as bank, BrokerProcess(tmp_path / "log") as broker:
        execute, close = bank.connect()
        execute(CREATE)
        for each in range(ROWS):
            execute(f"INSERT INTO accounts VALUES ({each}, 0, 0)")
        close()
        topic = f"bank.{bank.schema}.accounts"
        follow = Follow(
            name="copy",
            topic=topic,
            into=table(f"sqlite:///{tmp_path / 'copy.db'}", "copy"),
            format="debezium",
        )
        writers = [threading.Thread(target=write, args=(bank, seed, stop)) for seed in (1, 2)]
        with running(broker.bootstrap, "bank", bank.source, chunk_rows=20) as run:
            wait_until(lambda: run.status.state == "streaming")
            for each in writers:
                each.start()
            with following(broker.bootstrap, follow) as copy:
                for number in range(kills):
                    time.sleep(chance.uniform(0.5, 1.5))
                    if number % 2 and bank.server is not None:
                        bank.server.stop(hard=True)
                        bank.server.start()
                    else:
                        broker.kill()
                        time.sleep(chance.uniform(0, 1))
                        broker.start()
                stop.set()
                for each in writers:
                    each.join(60)
                wanted = bank.rows()
                wait_until(lambda: has_told(run, accounts_on(broker, topic), wanted), 120)
                wait_until(lambda: copy.status.behind == 0 and copy.status.state == "following", 120)
            assert run.status.state == "streaming"
        found = verify_follow(follow, Connection(bootstrap_servers=broker.bootstrap))
        assert found.is_equal and found.rows == len(wanted)
        records = read_topic(broker.bootstrap, topic)
        bank.check(records)
        whole_transactions(records)


def has_told(run: CaptureRun, told: list[list[int]], wanted: list[list[int]]) -> bool:
    assert run.status.state != "stopped", run.status.error
    differs = [each for each in wanted if each not in told], [each for each in told if each not in wanted]
    print(run.status.state, run.status.error, run.status.lag, differs)
    return told == wanted


def accounts_on(broker: BrokerProcess, topic: str) -> list[list[int]]:
    rows = folded(read_topic(broker.bootstrap, topic)).values()
    return sorted([each["id"], each["owner"], each["amount"]] for each in rows)


@pytest.mark.xdist_group("crash")
def test_a_broker_that_is_killed_under_a_capture_and_a_follower_loses_nothing(tmp_path):
    run_and_kill(tmp_path, "sqlite", kills=2)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", ["sqlite", "postgres", "mariadb"])
def test_brokers_and_databases_that_are_killed_in_turn_twenty_times_lose_nothing(tmp_path, kind):
    run_and_kill(tmp_path, kind, kills=20)
