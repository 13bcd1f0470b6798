"""A capture that an earlier version began, gone on with by this one."""

import sqlite3
import time
from contextlib import closing

import pytest
from tests.integration.capture.reading import folded, read_topic
from tests.integration.upgrade.earlier import TIMEOUT_S, WITH_CAPTURES, started

from headrace.errors import HeadraceError
from headrace.testing.broker import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.xdist_group("upgrade")]

TOPIC = "shop.main.customers"


def test_a_capture_goes_on_where_an_earlier_version_stopped(earlier, tmp_path):
    version, path = earlier(WITH_CAPTURES), tmp_path / "shop.db"
    _change(path, "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
    _change(path, "INSERT INTO customers VALUES (?, 'before')", range(30))
    with BrokerProcess(tmp_path / "data") as broker:
        log = broker.bootstrap
        version.run("capture", "add", "shop", f"sqlite:///{path}", "--table", "customers", "-b", log)
        with version.chosen(), started("capture", "run", "-b", log):
            _wait_for(log, 30)
            _change(path, "UPDATE customers SET name = 'changed' WHERE id = ?", range(10))
            before = _wait_for(log, 40)
        _change(path, "DELETE FROM customers WHERE id = ?", range(5))
        _change(path, "INSERT INTO customers VALUES (?, 'while it was down')", range(100, 110))
        with started("capture", "run", "-b", log):
            _wait_for(log, 55)
            _change(path, "UPDATE customers SET name = 'with this version' WHERE id = ?", range(20, 30))
            after = _wait_for(log, 65)
    assert len(after) == 65, "no change is repeated, and nothing is read again"
    assert {(each.partition, each.offset) for each in before} < {
        (each.partition, each.offset) for each in after
    }
    with closing(sqlite3.connect(path)) as database:
        rows = database.execute("SELECT id, name FROM customers").fetchall()
    found = [(row["id"], row["name"]) for row in folded(after).values()]
    assert sorted(found) == sorted(rows)


def _change(path, statement, ids=None):
    with closing(sqlite3.connect(path, timeout=60)) as database, database:
        database.execute(statement) if ids is None else database.executemany(
            statement, [(each,) for each in ids]
        )


def _wait_for(log, count):
    """The records of the table without tombstones, once there are so many."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        try:
            found = [each for each in read_topic(log, TOPIC) if each.value is not None]
        except HeadraceError:
            found = []  # the topic is not there yet
        if len(found) >= count:
            return found
        time.sleep(0.2)
    raise AssertionError(f"there are {len(found)} of {count} records")
