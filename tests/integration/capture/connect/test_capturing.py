"""Databases captured by Debezium's connectors on our log, as `headrace capture run` does it."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from tests.integration.capture.conftest import wait_until
from tests.integration.capture.hosted import hosted
from tests.integration.capture.reading import folded, read_topic

from headrace import App
from headrace.capture import CaptureHost, CaptureSpec, check_database, own_topics, release_database
from headrace.capture.connect import DATABASES
from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.errors import ConfigError, HeadraceError
from headrace.testing import mysql_process, postgres_process

pytestmark = [pytest.mark.timeout(600), pytest.mark.xdist_group("connect")]

PATIENCE_S = 240
ROWS = 40


@pytest.fixture
def spec(database, url) -> CaptureSpec:
    database.run(
        "CREATE TABLE customers (id int PRIMARY KEY, name varchar(20), spent numeric(10,2))",
        *(f"INSERT INTO customers VALUES ({each}, 'é{each}', {each}.5)" for each in range(ROWS)),
        "CREATE TABLE secrets (id int PRIMARY KEY)",
        "INSERT INTO secrets VALUES (1)",
    )
    return CaptureSpec(name=database.name, url=url, tables=("customers",))


def worker_of(spec: CaptureSpec) -> int:
    """The process of the capture's Connect worker: the child that runs its module."""
    said = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "headrace.capture.connect.host"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    pids = said.stdout.split()
    assert len(pids) == 1, pids
    return int(pids[0])


def current(database) -> dict[bytes, dict]:
    """The table as the database has it, as the topic's keys and rows."""
    rows = database.run("SELECT id, name, spent FROM customers")
    return {
        b'{"id":%d}' % int(key): {"id": int(key), "name": name, "spent": spent} for key, name, spent in rows
    }


def test_each_change_is_written_once_while_the_worker_is_killed(
    database, spec, schema, bootstrap, monkeypatch, caplog
):
    """The rows there were, then every change in order; and the password is nowhere."""
    caplog.set_level(logging.DEBUG)
    topic = f"{spec.name}.{schema}.customers"

    def written() -> list[str]:
        records = read_topic(bootstrap, topic)
        return [each.value["after"]["name"] for each in records if each.value and each.value["op"] == "u"]

    with hosted(bootstrap, spec, PATIENCE_S) as capture:
        wait_until(lambda: len(folded(read_topic(bootstrap, topic))) == ROWS, PATIENCE_S)
        named = [f"n{each}" for each in range(120)]
        for number, name in enumerate(named):
            database.run(f"UPDATE customers SET name = '{name}' WHERE id = 7")
            if number == 50:
                wait_until(lambda: len(written()) > 10, PATIENCE_S)
                command_line = Path(f"/proc/{worker_of(spec)}/cmdline").read_text()
                os.kill(worker_of(spec), signal.SIGKILL)
        database.run("UPDATE customers SET id = 1007 WHERE id = 8", "DELETE FROM customers WHERE id = 9")
        wait_until(lambda: folded(read_topic(bootstrap, topic)) == current(database), PATIENCE_S)
        assert written() == named
        wait_until(lambda: capture.state() == "streaming", PATIENCE_S)
        status = capture.catalog.refresh()[spec.name].status
        assert status["tables"] == {} or set(status["tables"]) == {f"{schema}.customers"}
        assert_nowhere(bootstrap, spec, caplog.text + command_line + orjson.dumps(status).decode())


def assert_nowhere(bootstrap: str, spec: CaptureSpec, said: str) -> None:
    """Neither what was said nor what Connect keeps on the log contains a password."""
    kept = b""
    with RawFetcher(Connection(bootstrap_servers=bootstrap)) as fetcher:
        for topic in ("headrace-captures", *own_topics(spec)):
            try:
                starts = fetcher.offsets(topic, EARLIEST)
            except HeadraceError:
                assert topic.endswith(".schema-history"), topic
                continue
            ends = fetcher.offsets(topic, LATEST)
            for partition, start in starts.items():
                kept += b"".join(
                    bytes(run) for run in fetcher.fetch(topic, partition, start, ends[partition])
                )
    assert b"database.password" in kept, "the configuration is kept, with a placeholder"
    for password in (postgres_process.PASSWORD, mysql_process.PASSWORD):
        assert password.encode() not in kept
        assert password not in said


@pytest.mark.slow
def test_a_capture_is_paused_read_again_and_removed(database, spec, schema, bootstrap):
    topic = f"{spec.name}.{schema}.customers"

    def snapshots() -> int:
        return sum(1 for each in read_topic(bootstrap, topic) if each.value and each.value["op"] == "r")

    with hosted(bootstrap, spec, PATIENCE_S) as capture:
        capture.catalog.pause(spec.name)
        wait_until(lambda: capture.state() == "paused", PATIENCE_S)
        with pytest.raises(AssertionError):
            worker_of(spec)
        database.run("DELETE FROM customers WHERE id = 1")
        capture.catalog.resume(spec.name)
        wait_until(lambda: len(folded(read_topic(bootstrap, topic))) == ROWS - 1, PATIENCE_S)
        before = snapshots()
        capture.catalog.resnapshot(spec.name, [])
        wait_until(lambda: snapshots() == before + ROWS - 1, PATIENCE_S)
        assert folded(read_topic(bootstrap, topic)) == current(database)
    release_database(spec)
    if schema == "public":
        assert database.run("SELECT slot_name FROM pg_replication_slots") == []


@contextmanager
def another_host(bootstrap: str, spec: CaptureSpec) -> Iterator[list[str]]:
    """A second process that runs the same capture; what it says."""
    said: list[str] = []
    host = CaptureHost(Connection(bootstrap_servers=bootstrap), [spec.name], on_message=said.append)
    thread = threading.Thread(target=host.run, daemon=True)
    thread.start()
    try:
        yield said
    finally:
        host.stop()
        thread.join(60)


@pytest.mark.slow
def test_the_newer_of_two_processes_takes_the_capture_over(database, spec, schema, bootstrap):
    topic = f"{spec.name}.{schema}.customers"
    with hosted(bootstrap, spec, PATIENCE_S), another_host(bootstrap, spec) as said:
        wait_until(lambda: any("streaming" in each for each in said), PATIENCE_S)
        for number in range(20):
            database.run(f"UPDATE customers SET name = 'm{number}' WHERE id = 3")
        wait_until(lambda: folded(read_topic(bootstrap, topic)) == current(database), PATIENCE_S)
        worker_of(spec)  # one of them, not two


@pytest.mark.slow
def test_a_database_that_is_stopped_hard_is_waited_for(database, spec, schema, bootstrap):
    topic = f"{spec.name}.{schema}.customers"
    with hosted(bootstrap, spec, PATIENCE_S) as capture:
        for number in range(3):
            database.disconnect()
            database.server.stop(hard=True)
            wait_until(lambda: capture.state() == "reconnecting", PATIENCE_S)
            assert capture.catalog.entries[spec.name].status["error"]
            database.server.start()
            database.run(f"UPDATE customers SET name = 'after {number}' WHERE id = 5")
            wait_until(lambda: folded(read_topic(bootstrap, topic)) == current(database), PATIENCE_S)
            wait_until(lambda: capture.state() == "streaming", PATIENCE_S)


def test_an_application_knows_the_table_and_a_check_what_is_wrong(database, spec, url, monkeypatch):
    app = App("shop")
    captured = app.capture(url, table="customers")
    customers = app.table("customers", source=captured)
    assert captured.topic.endswith(".customers") and customers.key == ("id",)
    assert customers.spec.transactions == "", "Debezium's connectors do not write where transactions end"
    with pytest.raises(ConfigError, match=r"no table .*\.nobody"):
        app.capture(url, table="nobody")
    assert check_database(spec) == []
    monkeypatch.setenv("WRONG_PASSWORD", "planted")
    reference = url.partition("password=")[2]
    wrong = CaptureSpec(name="shop", url=url.replace(reference, "env:WRONG_PASSWORD"))
    lacks = check_database(wrong)
    assert lacks and "planted" not in str(lacks)


# Settings that no connector declares: those of drivers, and of the history of statements.
PASSED_ON = (
    "database.applicationIntent",
    "database.encrypt",
    "database.hostNameInCertificate",
    "database.sslConnection",
    "database.sslTrustStore",
    "database.trust",
    "schema.history.internal.",
)


def test_what_may_be_set_is_known_to_the_connectors():
    """Each key of the list is a setting of the connector, or goes on to the driver."""
    script = (
        "import json; from headrace.capture.connect.herder import start_jvm; start_jvm(256); import jpype\n"
        "from headrace.capture.connect import DATABASES\n"
        "print(json.dumps({kind: [str(each) for each in jpype.JClass(of.connector)().config().names()]"
        " for kind, of in DATABASES.items() if kind != 'mariadb'}))"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    known = orjson.loads(said.stdout.splitlines()[-1])
    for kind, names in known.items():
        unknown = DATABASES[kind].keys - set(names)
        assert [each for each in unknown if not each.startswith(PASSED_ON)] == [], kind
