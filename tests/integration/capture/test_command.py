"""`headrace capture`, as people use it: every command, in this process; the runner in a thread."""

import json
import random
import socket
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from tests.integration.capture.conftest import wait_until
from tests.integration.capture.reading import folded, read_topic

from headrace.capture import CaptureHost, CaptureSpec, Catalog
from headrace.cli.main import run
from headrace.client import Connection
from headrace.clock import SystemClock
from headrace.testing.broker import running_broker


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
        database.executemany("INSERT INTO customers VALUES (?, 'x')", [(each,) for each in range(30)])
    return path


@pytest.fixture
def headrace(bootstrap, capsys):
    """Runs a command; its exit code, and what it printed: JSON as data."""

    def call(*arguments: str):
        code = run(["capture", *arguments, *(() if arguments[0] == "check" else ("-b", bootstrap))])
        said = capsys.readouterr()
        return code, json.loads(said.out) if "--json" in arguments and said.out else said.out + said.err

    return call


@pytest.fixture
def host(bootstrap):
    made = CaptureHost(Connection(bootstrap_servers=bootstrap))
    thread = threading.Thread(target=made.run)
    thread.start()
    yield made
    made.stop()
    thread.join()


def test_check_says_what_is_missing(headrace, shop):
    assert headrace("check", f"sqlite:///{shop}", "-t", "customers") == (0, "ready to be captured\n")
    code, said = headrace("check", f"sqlite:///{shop}", "-t", "nobody", "--json")
    assert code == 1 and "no table nobody" in said["lacks"][0]["what"]


def test_a_capture_is_added_watched_paused_read_again_and_removed(headrace, host, bootstrap, shop):
    def state() -> str:
        return headrace("status", "shop", "--json")[1]["state"]

    code, said = headrace("add", "shop", f"sqlite:///{shop}", "--table", "customers", "--json")
    assert code == 0 and said["lacks"] == []
    wait_until(lambda: state() == "streaming")
    assert "main.customers" in headrace("status", "shop")[1]
    assert "streaming" in headrace("list")[1]
    headrace("pause", "shop")
    wait_until(lambda: state() == "paused")
    with closing(sqlite3.connect(shop)) as database, database:
        database.execute("DELETE FROM customers WHERE id = 1")
    headrace("resume", "shop")
    wait_until(lambda: len(folded(read_topic(bootstrap, "shop.main.customers"))) == 29)
    code, said = headrace("resnapshot", "shop", "-t", "nobody")
    assert code != 0 and "it has: main.customers" in said
    before = len(read_topic(bootstrap, "shop.main.customers"))
    assert headrace("resnapshot", "shop", "-t", "customers")[0] == 0
    wait_until(lambda: len(read_topic(bootstrap, "shop.main.customers")) == before + 29)
    wait_until(lambda: state() == "streaming")
    assert headrace("remove", "shop")[0] == 0
    assert headrace("list", "--json")[1] == {"captures": []}
    with closing(sqlite3.connect(shop)) as database:
        assert database.execute("SELECT name FROM sqlite_master").fetchall() == [("customers",)]


def test_mistakes_are_named(headrace, shop):
    assert "no capture 'nobody'" in headrace("status", "nobody")[1]
    said = headrace("add", "x", "postgresql://me:planted@localhost/shop")[1]
    assert "password does not belong in a URL" in said and "planted" not in said
    assert "a URL begins with" in headrace("add", "x", "oracle://here")[1]


def test_a_file_that_is_no_database_is_not_ready(headrace, tmp_path):
    junk = tmp_path / "junk.db"
    junk.write_bytes(random.Random(1).randbytes(5000))
    code, said = headrace("check", f"sqlite:///{junk}")
    assert code != 0 and "junk.db: file is not a database" in said
    assert len(said.splitlines()) == 1
    code, said = headrace("add", "junk", f"sqlite:///{junk}")
    assert code != 0 and "file is not a database" in said
    assert "junk" not in headrace("list")[1]


def test_removing_says_what_could_not_be_cleaned_up(headrace, shop):
    assert headrace("add", "spoilt", f"sqlite:///{shop}")[0] == 0
    shop.write_bytes(random.Random(1).randbytes(5000))
    code, said = headrace("remove", "spoilt")
    assert code == 1 and "capture spoilt: removed\ncould not be cleaned up: what it has set up in" in said
    assert "file is not a database" in said
    assert "spoilt" not in headrace("list")[1]


def test_a_runner_says_which_captures_it_waits_for_and_starts_them_later(headrace, bootstrap, shop):
    assert headrace("add", "here", f"sqlite:///{shop}")[0] == 0
    notes: list[str] = []
    made = CaptureHost(Connection(bootstrap_servers=bootstrap), ["later", "here"], on_message=notes.append)
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        waiting = "no capture later yet; waiting for it to be added (the captures are: here)"
        wait_until(lambda: waiting in notes)
        assert not any("no capture here" in each for each in notes)
        assert headrace("add", "later", f"sqlite:///{shop}")[0] == 0
        wait_until(lambda: "capture later: streaming" in notes)
    finally:
        for each in ("here", "later"):
            headrace("remove", each)
        made.stop()
        thread.join()


def test_a_runner_waits_for_a_log_that_is_not_there_yet(tmp_path):
    notes: list[str] = []
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    connection = Connection(bootstrap_servers=f"127.0.0.1:{port}", retry_timeout_ms=500)
    host, is_ready = CaptureHost(connection, on_message=notes.append), threading.Event()
    thread = threading.Thread(target=host.run, args=(is_ready.set,))
    thread.start()
    try:
        wait_until(lambda: any(each.startswith("waiting for the log") for each in notes))
        with running_broker(tmp_path, listen=f"127.0.0.1:{port}"):
            assert is_ready.wait(60)
            host.stop()
            thread.join(60)
    finally:
        host.stop()
        thread.join(60)
    assert not thread.is_alive()


class HandClock(SystemClock):
    """The time, and however much later the test says it is."""

    later_ms = 0

    def now_ms(self):
        return super().now_ms() + self.later_ms


def test_a_capture_that_waits_or_has_stopped_is_reported_for_as_long_as_somebody_runs_it(bootstrap, shop):
    connection, clock = Connection(bootstrap_servers=bootstrap), HandClock()
    host = CaptureHost(connection, ["ended"], clock=clock)
    thread = threading.Thread(target=host.run)

    def said():
        return catalog.refresh()["ended"].status or {}

    with closing(Catalog(connection)) as catalog:
        catalog.add(CaptureSpec(name="ended", url=f"sqlite:///{shop}", tables=("customers",)))
        catalog.pause("ended")
        thread.start()
        try:
            wait_until(lambda: said().get("state") == "paused")
            for hours in (1, 2):
                clock.later_ms = hours * 3_600_000
                wait_until(lambda: said()["at_ms"] >= clock.now_ms() - 60_000)
                assert said()["state"] == "paused"
        finally:
            catalog.remove("ended")
            host.stop()
            thread.join()
