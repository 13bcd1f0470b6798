"""A SQLite database compared with its topics: while it changes, and after either side was tampered with."""

import json
import shutil
import sqlite3
import threading
import uuid
from contextlib import closing

import pytest
from confluent_kafka import Producer
from tests.integration.capture.hosted import hosted, kinds, once
from tests.integration.capture.reading import by_key, read_topic
from tests.integration.derived.conftest import wait_until

from headrace.capture import CaptureSpec
from headrace.cli.main import run
from headrace.errors import RequestError

ROWS = 300


@pytest.fixture
def shop(tmp_path, request):
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"PRAGMA journal_mode = {getattr(request, 'param', 'wal')}")
        database.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT, paid BOOLEAN, at REAL)")
        rows = [(each, f"customer {each}", each % 2, each / 3) for each in range(ROWS)]
        database.executemany("INSERT INTO customers VALUES (?, ?, ?, ?)", rows)
        database.execute("CREATE TABLE parts (a TEXT, b BLOB, n, PRIMARY KEY (b, a)) WITHOUT ROWID")
        database.executemany("INSERT INTO parts VALUES (?, ?, ?)", [("é", b"\0", None), ("z", b"\xff", 1.0)])
        database.execute("CREATE TABLE log (line TEXT)")
    return path


@pytest.fixture
def capture(bootstrap, shop):
    spec = CaptureSpec(name=f"shop-{uuid.uuid4().hex[:8]}", url=f"sqlite:///{shop}", chunk_rows=70)
    with hosted(bootstrap, spec) as made:
        yield made


def change(path, *statements, timeout=60):
    with closing(sqlite3.connect(path, isolation_level=None, timeout=timeout)) as database:
        for each in ("BEGIN IMMEDIATE", *statements, "COMMIT"):
            database.execute(each)


def bypassing(capture, path, *statements):
    """Changes that the triggers' table does not keep."""
    changes = f'"_headrace_{capture.spec.name}_changes"'
    forget = f"DELETE FROM {changes} WHERE seq > (SELECT last FROM temp.seen)"
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as database:
        database.execute("BEGIN IMMEDIATE")
        database.execute(f"CREATE TEMP TABLE seen AS SELECT max(seq) AS last FROM {changes}")
        for each in (*statements, forget, "COMMIT"):
            database.execute(each)


COMPARED = ("customers", "parts")


@pytest.mark.parametrize("shop", ["wal", "delete"], indirect=True)
def test_a_table_equals_its_topic_at_the_moment_at_which_it_was_read(capture, bootstrap, shop):
    topic = f"{capture.spec.name}.main.customers"

    def write():
        # Whoever reads the tables must not lock writers out.
        change(
            shop,
            "UPDATE customers SET name = 'later' WHERE id < 20",
            "DELETE FROM customers WHERE id BETWEEN 20 AND 30",
            "INSERT INTO customers VALUES (1000, 'later', 1, 1)",
            "UPDATE customers SET id = 2000 WHERE id = 40",
            timeout=0,
        )
        wait_until(lambda: b'{"id":2000}' in by_key(read_topic(bootstrap, topic)))

    found = capture.verified(once(write), tables=COMPARED)
    assert found.is_equal and [each.rows for each in found.tables] == [ROWS, 2]
    assert capture.verified(tables=["main.customers"]).tables[0].rows == ROWS - 10
    assert not capture.verified().is_equal  # a table without a key is not passed over in silence


def test_it_is_equal_again_and_again_while_others_write(capture, shop):
    stopping = threading.Event()

    def write():
        count = 0
        while not stopping.is_set():
            count += 1
            change(
                shop,
                f"UPDATE customers SET at = at + 1, name = '{count}' WHERE id % 7 = {count % 7}",
                f"INSERT OR REPLACE INTO parts VALUES ('{count % 5}', x'00', {count})",
                f"DELETE FROM parts WHERE a = '{(count + 2) % 5}'",
            )

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    try:
        for _ in range(3):
            assert kinds(capture.verified(tables=COMPARED)) == {}
    finally:
        stopping.set()
        writer.join(30)


def test_a_database_that_changed_behind_the_triggers_is_found(capture, bootstrap, shop, capsys):
    change(shop, "UPDATE customers SET name = 'seen' WHERE id = 0")
    bypassing(
        capture,
        shop,
        "UPDATE customers SET name = 'unseen\x1b[2J' WHERE id BETWEEN 101 AND 123",
        "DELETE FROM customers WHERE id = 7",
        "INSERT INTO customers VALUES (-1, 'unseen', 0, 0)",
    )
    arguments = ["capture", "verify", capture.spec.name, "-t", "customers", "-b", bootstrap]
    assert run([*arguments, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    (table,) = said["tables"]
    assert (said["equal"], table["differing"], len(table["differences"])) == (False, 25, 20)
    assert table["differences"][0] == {
        "key": '{"id":-1}',
        "kind": "missing",
        "database": {"id": -1, "name": "unseen", "paid": False, "at": 0.0},
        "topic": None,
    }
    assert table["differences"][1]["kind"] == "different"
    assert table["differences"][1]["topic"]["name"] == "customer 101"
    assert run(arguments) == 1
    shown = capsys.readouterr()
    assert "main.customers: 25 of 300 rows differ" in shown.out and "\x1b" not in shown.out
    assert "and 5 more" in shown.out and "all 300 rows read" in shown.err
    change(shop, "DELETE FROM customers WHERE id BETWEEN 101 AND 123 OR id = -1")
    assert kinds(capture.verified(tables=["customers"])) == {'{"id":7}': "extra"}
    assert run(["capture", "resnapshot", capture.spec.name, "-t", "customers", "-b", bootstrap]) == 0
    wait_until(lambda: capture.verified(tables=["customers"]).is_equal)


def tamper(bootstrap, topic, key, value):
    """Puts a record behind those of its key."""
    places = {each.key: each.partition for each in read_topic(bootstrap, topic)}
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value and json.dumps(value), key, partition=places.get(key, 0))
    assert producer.flush(60) == 0


def test_a_topic_that_others_have_written_to_is_found(capture, bootstrap):
    topic = f"{capture.spec.name}.main.customers"
    tamper(bootstrap, topic, b'{"id":3}', {"op": "u", "after": {"id": 3, "name": "forged"}})
    tamper(bootstrap, topic, b'{"id":4}', None)
    tamper(bootstrap, topic, b'{"id":999}', {"op": "c", "after": {"id": 999}, "source": {"seq": 0}})
    found = capture.verified(tables=COMPARED)
    assert kinds(found) == {'{"id":3}': "different", '{"id":4}': "missing", '{"id":999}': "extra"}
    assert [each.is_equal for each in found.tables] == [False, True]


def test_rows_of_which_the_log_may_have_had_more_to_tell_are_compared_again(capture, bootstrap, shop):
    topic = f"{capture.spec.name}.main.customers"

    def read_again():
        tamper(bootstrap, topic, b'{"id":5}', {"op": "r", "after": {"id": 5, "name": "of another moment"}})

    def settle():
        change(shop, "UPDATE customers SET name = 'settled' WHERE id = 5")

    first, second = once(read_again), once(settle, "compared once more")
    assert capture.verified(lambda said: (first(said), second(said)), tables=COMPARED).is_equal


def test_a_capture_that_cannot_get_there_says_so(capture, bootstrap, shop, capsys):
    name = capture.spec.name
    with pytest.raises(RequestError, match=r"no table 'nothing'; it has: main\.customers, main\.log"):
        capture.verified(tables=["nothing"])
    backup = shop.with_name("backup.db")
    with closing(sqlite3.connect(shop)) as database, closing(sqlite3.connect(backup)) as copy:
        database.backup(copy)
    assert run(["capture", "pause", name, "-b", bootstrap]) == 0
    wait_until(lambda: capture.state() == "paused")
    assert capture.verified(tables=COMPARED).is_equal  # it has written all there is
    change(shop, "DELETE FROM customers WHERE id = 1")
    arguments = ["capture", "verify", name, "-t", "customers", "-b", bootstrap]
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert "has not written everything that the database has, and it is paused: " in said
    assert f"`headrace capture resume {name}`" in said
    for each in ("-wal", "-shm"):
        shop.with_name(shop.name + each).unlink(missing_ok=True)
    shutil.copy(backup, shop)
    with closing(sqlite3.connect(shop)) as database, database:
        database.execute(f"UPDATE \"_headrace_{name}_meta\" SET value = 'of another database'")
    assert run(["capture", "resume", name, "-b", bootstrap]) == 0
    wait_until(lambda: capture.state() == "stopped")
    capsys.readouterr()
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert f"capture {name} cannot be compared, and it is stopped (" in said and "backup" in said


def test_mistakes_are_named(bootstrap, capsys):
    assert run(["capture", "verify", "nobody", "-b", bootstrap]) == 2
    assert "no capture 'nobody'" in capsys.readouterr().err
