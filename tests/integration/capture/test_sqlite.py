"""A SQLite database on the log: what its file holds is what its topic folds to."""

import sqlite3
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from tests.integration.capture.conftest import running, wait_until
from tests.integration.capture.reading import by_key, folded, read_topic

from headrace.capture import CaptureRun
from headrace.capture.sqlite import SqliteSource
from headrace.capture.sqlite.install import meta
from headrace.capture.sqlite.triggers import Names


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute(
            "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, vip BOOLEAN, raw)"
        )
        database.execute("CREATE TABLE log (line TEXT)")
        database.executemany(
            "INSERT INTO customers VALUES (?, ?, 1, NULL)", [(i, f"c{i}") for i in range(50)]
        )
        database.execute("INSERT INTO log VALUES ('first'), ('first')")
    return path


def is_through(run: CaptureRun) -> bool:
    return run.status.state == "streaming" and run.status.lag.changes == 0


def source(path: Path, name: str, *tables: str):
    return lambda: SqliteSource(path, tables or ["customers"], name=name)


def ids(path: Path) -> set[int]:
    with closing(sqlite3.connect(path)) as database:
        return {each for (each,) in database.execute("SELECT id FROM customers")}


def topic_ids(bootstrap: str, name: str) -> set[int]:
    return {orjson.loads(each)["id"] for each in folded(read_topic(bootstrap, f"{name}.main.customers"))}


def test_values_come_as_they_are_stored(bootstrap, shop):
    with running(bootstrap, "values", source(shop, "values"), chunk_rows=20) as run:
        wait_until(lambda: is_through(run))
        with closing(sqlite3.connect(shop)) as database, database:
            database.execute("DELETE FROM customers")
            stored = [2**53 + 1, -(2**63), 1.5, float("inf"), float("nan"), b"\x00\xff", "ü\n", None]
            for number, value in enumerate(stored):
                database.execute(
                    "INSERT INTO customers VALUES (?, 'x', ?, ?)", (100 + number, number % 2, value)
                )
        wait_until(lambda: run.status.changes == 58)
    rows = folded(read_topic(bootstrap, "values.main.customers"))
    told = [rows[b'{"id":%d}' % (100 + number)] for number in range(8)]
    wanted = [2**53 + 1, -(2**63), 1.5, "Infinity", None, "AP8=", "ü\n", None]
    assert [each["raw"] for each in told] == wanted
    assert [each["vip"] for each in told] == [False, True] * 4


def test_the_change_of_a_key_is_a_delete_and_a_create(bootstrap, shop):
    with running(bootstrap, "keys", source(shop, "keys")) as run:
        wait_until(lambda: is_through(run))
        with closing(sqlite3.connect(shop)) as database, database:
            database.execute("UPDATE customers SET id = 500 WHERE id = 7")
        wait_until(lambda: run.status.changes == 2)
    values = by_key(read_topic(bootstrap, "keys.main.customers"))
    assert [each and each["op"] for each in values[b'{"id":7}']] == ["r", "d", None]
    assert [each["op"] for each in values[b'{"id":500}']] == ["c"]


@pytest.mark.parametrize("kind", ["", " WITHOUT ROWID"])
def test_a_row_that_replaces_one_whose_key_is_written_otherwise_takes_its_place(bootstrap, tmp_path, kind):
    path, name = tmp_path / "cased.db", f"cased{len(kind)}"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute(f"CREATE TABLE t (id TEXT PRIMARY KEY COLLATE NOCASE NOT NULL, v){kind}")
        database.execute("INSERT INTO t VALUES ('a', 1), ('b', 1)")
        with running(bootstrap, name, source(path, name, "t")) as run:
            wait_until(lambda: is_through(run))
            database.execute("REPLACE INTO t VALUES ('A', 2)")
            database.execute("UPDATE OR REPLACE t SET id = 'B' WHERE id = 'A'")
            database.execute("INSERT INTO t VALUES ('c', 1) ON CONFLICT DO UPDATE SET v = 2")
            database.execute("REPLACE INTO t VALUES ('c', 3)")
            rows = {tuple(each) for each in database.execute("SELECT id, v FROM t")}
            wait_until(lambda: is_through(run) and run.status.changes > 0)
    found = folded(read_topic(bootstrap, f"{name}.main.t")).values()
    assert {(each["id"], each["v"]) for each in found} == rows == {("B", 2), ("c", 3)}


def test_a_table_without_a_key_comes_whole_and_without_keys(bootstrap, shop):
    with running(bootstrap, "keyless", source(shop, "keyless", "log")) as run:
        wait_until(lambda: is_through(run))
        with closing(sqlite3.connect(shop)) as database, database:
            database.execute("INSERT INTO log VALUES ('second')")
            database.execute("DELETE FROM log WHERE line = 'second'")
        wait_until(lambda: run.status.changes == 2)
    records = read_topic(bootstrap, "keyless.main.log")
    assert {each.key for each in records} == {None}
    assert sorted(each.value["op"] for each in records) == ["c", "d", "r", "r"]


def test_a_database_restored_from_a_backup_stops_it_until_it_is_read_again(bootstrap, shop, tmp_path):
    with running(bootstrap, "backup", source(shop, "backup")) as run:
        wait_until(lambda: is_through(run))
        with (
            closing(sqlite3.connect(shop)) as database,
            closing(sqlite3.connect(tmp_path / "b.db")) as backup,
        ):
            database.backup(backup)
            with database:
                database.execute("DELETE FROM customers WHERE id < 10")
                database.execute("INSERT INTO customers (id, name) VALUES (900, 'late')")
            wait_until(lambda: run.status.changes == 11)
            backup.backup(database)
        wait_until(lambda: run.status.state == "stopped")
        assert "restored from a backup" in (run.status.error or "")
        run.resnapshot()
        wait_until(lambda: is_through(run))
    assert topic_ids(bootstrap, "backup") == ids(shop) == set(range(50))


def test_a_backup_that_has_had_more_changes_since_is_noticed(bootstrap, shop, tmp_path):
    """Its changes have the numbers of those that were lost, and go further."""

    def token(path: Path) -> str:
        with closing(sqlite3.connect(path)) as database:
            return meta(database, Names("ahead"), "token")

    def change(first: int, count: int) -> None:
        with closing(sqlite3.connect(shop)) as database, database:
            database.executemany(
                "INSERT INTO customers (id, name) VALUES (?, 'x')", [(first + n,) for n in range(count)]
            )

    with running(bootstrap, "ahead", source(shop, "ahead")) as run:
        wait_until(lambda: is_through(run))
        with closing(sqlite3.connect(shop)) as database, closing(sqlite3.connect(tmp_path / "b.db")) as kept:
            database.backup(kept)
        change(100, 5)
        wait_until(lambda: run.status.changes == 5 and token(shop) != token(tmp_path / "b.db"))
    with closing(sqlite3.connect(shop)) as database, closing(sqlite3.connect(tmp_path / "b.db")) as kept:
        kept.backup(database)
    change(200, 20)
    with running(bootstrap, "ahead", source(shop, "ahead")) as run:
        wait_until(lambda: run.status.state == "stopped")
        assert "restored from a backup" in (run.status.error or "")
        run.resnapshot()
        wait_until(lambda: is_through(run))
    assert topic_ids(bootstrap, "ahead") == ids(shop) == {*range(50), *range(200, 220)}


def test_a_file_that_takes_the_place_of_the_database_is_noticed(bootstrap, shop, tmp_path):
    with closing(sqlite3.connect(shop)) as database:  # no write-ahead log that would be taken for the other's
        database.execute("PRAGMA journal_mode = DELETE")
    with running(bootstrap, "other", source(shop, "other")) as run:
        wait_until(lambda: is_through(run))
        other = tmp_path / "other.db"
        with closing(sqlite3.connect(other)) as database, database:
            database.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
            database.execute("INSERT INTO customers VALUES (3, 'x')")
        other.replace(shop)
        wait_until(lambda: run.status.state == "stopped")
        run.resnapshot()
        wait_until(lambda: is_through(run))
    assert topic_ids(bootstrap, "other") == {3}


def test_a_table_that_is_dropped_is_waited_for(bootstrap, shop):
    with running(bootstrap, "dropped", source(shop, "dropped")) as run:
        wait_until(lambda: is_through(run))
        with closing(sqlite3.connect(shop)) as database, database:
            database.execute("DROP TABLE customers")
        wait_until(lambda: run.status.state == "reconnecting")
        assert "customers" in (run.status.error or "")
        with closing(sqlite3.connect(shop)) as database, database:
            database.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT)")
            database.execute("INSERT INTO customers VALUES (1, 'again')")
        wait_until(lambda: is_through(run) and topic_ids(bootstrap, "dropped") == {1})


def test_a_new_column_comes_with_the_values_it_has(bootstrap, shop):
    with running(bootstrap, "column", source(shop, "column")) as run:
        wait_until(lambda: is_through(run))
        with closing(sqlite3.connect(shop)) as database, database:
            database.execute("ALTER TABLE customers ADD COLUMN city DEFAULT 'Bern'")
            database.execute("UPDATE customers SET city = 'Basel' WHERE id = 1")
        wait_until(lambda: run.status.changes == 1 and is_through(run))
    rows = folded(read_topic(bootstrap, "column.main.customers"))
    assert {each["city"] for key, each in rows.items() if key != b'{"id":1}'} == {"Bern"}
    assert rows[b'{"id":1}']["city"] == "Basel"
    schemas = [each.value for each in read_topic(bootstrap, "column.schema")]
    assert [each["name"] for each in schemas[-1]["columns"]] == ["id", "name", "vip", "raw", "city"]


@pytest.mark.parametrize(
    ("name", "corrected"),
    [("unclear_deleted", "DELETE FROM t WHERE v = 'bad'"), ("unclear_mended", "UPDATE t SET k = v")],
)
def test_a_row_whose_key_is_unclear_stops_it_until_it_is_corrected_and_read_again(
    bootstrap, tmp_path, name, corrected
):
    path = tmp_path / "keys.db"

    def write(*statements: str) -> None:
        with closing(sqlite3.connect(path)) as database, database:
            for each in statements:
                database.execute(each)

    def keys(table: str) -> set[str]:
        return {orjson.loads(each)["k"] for each in folded(read_topic(bootstrap, f"{name}.main.{table}"))}

    write("CREATE TABLE t (k TEXT PRIMARY KEY, v)", "CREATE TABLE u (k TEXT PRIMARY KEY)")
    write("INSERT INTO t VALUES ('a', 'a'), ('b', 'b')")
    with running(bootstrap, name, source(path, name, "t", "u")) as run:
        wait_until(lambda: is_through(run))
        for unclear in ("NULL", "CAST(x'ff' AS TEXT)"):
            write(f"UPDATE t SET k = {unclear}, v = 'bad' WHERE k = 'b'")
            wait_until(lambda: run.status.state == "stopped")
            assert "table t" in run.status.error and f"capture resnapshot {name}" in run.status.error
            write(corrected, "INSERT OR IGNORE INTO t VALUES ('b', 'b')", "INSERT INTO u VALUES ('a')")
            run.resnapshot()
            wait_until(lambda: is_through(run))
            write("DELETE FROM t WHERE v = 'bad'", "DELETE FROM u", "INSERT INTO u VALUES ('later')")
            wait_until(lambda: is_through(run) and keys("u") == {"later"})
            assert keys("t") == {"a", "b"}
            write("DELETE FROM u")


def test_an_event_whose_key_is_unclear_is_not_passed_over(bootstrap, tmp_path):
    path = tmp_path / "outbox.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(
            "CREATE TABLE outbox (id TEXT PRIMARY KEY, aggregatetype, aggregateid, type, payload)"
        )
    with running(bootstrap, "passed", source(path, "passed", "outbox"), outbox=["outbox"]) as run:
        wait_until(lambda: is_through(run))
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("INSERT INTO outbox VALUES (NULL, 'order', '1', 'Paid', '{}')")
            database.execute("DELETE FROM outbox")
        wait_until(lambda: run.status.state == "stopped")
        assert "table outbox: a row with NULL in column id" in run.status.error
        assert "add the capture again" in run.status.error
