"""`headrace follow`, as people use it: a captured table, two derived systems, every command."""

import contextlib
import json
import random
import sqlite3
import threading
from contextlib import closing

import pytest
from tests.integration.derived.conftest import wait_until

from headrace.app import load_app
from headrace.capture import CaptureHost, Catalog
from headrace.cli.main import run
from headrace.client import Connection
from headrace.derived import Follow, FollowCatalog, FollowHost, TargetSpec

APPLICATION = """
from headrace import App
from headrace.derived import search, table

app = App("bank")
accounts = app.capture("sqlite:///{folder}/bank.db", table="accounts")
app.follow(accounts, into=table("sqlite:///{folder}/reports.db", "accounts"), name="reports")
app.follow(accounts, into=search("sqlite:///{folder}/search.db", "accounts", fields=["owner"]), name="search")
"""
ACCOUNTS, TOTAL = 20, 2_000


@pytest.fixture
def bank(tmp_path):
    path = tmp_path / "bank.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE accounts (id INTEGER PRIMARY KEY, owner TEXT, amount INTEGER)")
        owned = [(each, f"owner {each}", TOTAL // ACCOUNTS) for each in range(ACCOUNTS)]
        database.executemany("INSERT INTO accounts VALUES (?, ?, ?)", owned)
    (tmp_path / "app.py").write_text(APPLICATION.format(folder=tmp_path))
    return path


@pytest.fixture
def headrace(bootstrap, capsys):
    def call(*arguments: str):
        code = run(["follow", *arguments, "-b", bootstrap])
        said = capsys.readouterr()
        return code, json.loads(said.out) if "--json" in arguments and said.out else said.out + said.err

    return call


@pytest.fixture
def hosts(bootstrap, bank):
    """The captures and followers of the application, run beside the test."""
    connection, app = Connection(bootstrap_servers=bootstrap), load_app(bank.parent / "app.py")
    with closing(Catalog(connection)) as captures, closing(FollowCatalog(connection)) as followers:
        for each in app.captures.values():
            captures.add(each)
        for each in app.followers.values():
            followers.add(each)
    made = [CaptureHost(connection), FollowHost(connection)]
    threads = [threading.Thread(target=each.run) for each in made]
    for each in threads:
        each.start()
    yield
    for each in made:
        each.stop()
    for each in threads:
        each.join()


def transfer(path, count):
    """Moves money between two accounts, in a transaction each."""
    chance = random.Random(1)
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as database:
        for _ in range(count):
            source, sink = chance.sample(range(ACCOUNTS), 2)
            database.execute("BEGIN IMMEDIATE")
            database.execute("UPDATE accounts SET amount = amount - 1 WHERE id = ?", (source,))
            database.execute("UPDATE accounts SET amount = amount + 1 WHERE id = ?", (sink,))
            database.execute("COMMIT")


def query(path, sql):
    with closing(sqlite3.connect(path, timeout=60)) as database:
        return database.execute(sql).fetchall()


def total_of(path):
    """What all accounts have; None as long as the table has no such column."""
    with contextlib.suppress(sqlite3.OperationalError):
        return query(path, "SELECT sum(amount) FROM accounts")[0][0]


def test_derived_systems_follow_a_database_in_whole_transactions(headrace, hosts, bank):
    reports, found = bank.parent / "reports.db", set()

    def states():
        return {each["follower"]: each["state"] for each in headrace("list", "--json")[1]["followers"]}

    wait_until(lambda: states() == {"reports": "following", "search": "following"})
    wait_until(lambda: total_of(reports) == TOTAL)
    writer = threading.Thread(target=transfer, args=(bank, 300))
    writer.start()
    while writer.is_alive():
        found |= set(query(reports, "SELECT sum(amount) FROM accounts"))
    writer.join()
    wanted = "SELECT id, owner, amount FROM accounts ORDER BY id"
    wait_until(lambda: query(reports, wanted) == query(bank, wanted))
    found |= set(query(reports, "SELECT sum(amount) FROM accounts"))
    assert found == {(TOTAL,)}
    entry = query(bank.parent / "search.db", "SELECT row FROM accounts WHERE accounts MATCH 'owner: 7'")
    assert json.loads(entry[0][0])["id"] == 7
    code, said = headrace("verify")
    assert (code, said) == (0, "reports: equal, 20 rows\nsearch: equal, 20 rows\n")
    with closing(sqlite3.connect(reports, timeout=60)) as tampered, tampered:
        tampered.execute("UPDATE accounts SET amount = 7 WHERE id = 3")
    code, said = headrace("verify", "reports")
    assert code == 1 and '{"id":3}: different' in said and "follow rebuild reports" in said
    assert headrace("rebuild", "reports")[0] == 0
    wait_until(lambda: headrace("status", "reports", "--json")[1]["status"]["repairs"] == 1)
    wait_until(lambda: headrace("verify", "reports")[0] == 0)
    assert "reflects: 0:" in headrace("status", "reports")[1]
    assert headrace("remove", "search")[0] == 0
    wait_until(lambda: list(states()) == ["reports"])
    code, said = headrace("status", "search")
    assert code == 1 and "the followers are: reports" in said


def test_a_follower_that_makes_no_sense_is_stopped_with_the_reason(bootstrap, headrace):
    messages = []
    connection = Connection(bootstrap_servers=bootstrap)
    spec = TargetSpec(kind="postgres", url="postgresql://u@h/d?nonsense=1", options={"table": "t"})
    with closing(FollowCatalog(connection)) as catalog:
        catalog.add(Follow(name="bad", topic="t", into=spec))
        host = FollowHost(connection, ["bad"], on_message=messages.append)
        thread = threading.Thread(target=host.run)
        thread.start()
        wait_until(lambda: len(messages) == 1)
        assert "unknown in a PostgreSQL URL: nonsense" in messages[0]
        wait_until(lambda: headrace("status", "bad", "--json")[1]["state"] == "stopped")
        assert thread.is_alive()
        host.stop()
        thread.join()
        catalog.remove("bad")
