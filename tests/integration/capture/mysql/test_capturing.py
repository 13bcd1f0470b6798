"""MariaDB and MySQL to topics of a real log; what is lost stops it with the reason, and one call mends it."""

import pytest
from tests.integration.capture.conftest import running, wait_until
from tests.integration.capture.mysql.databases import Database
from tests.integration.capture.reading import by_key, folded, read_topic

from headrace import outbox
from headrace.capture import CaptureRun

pytestmark = pytest.mark.xdist_group("mysql")


def rows_of(bootstrap: str, topic: str) -> list[dict]:
    records = [each for each in read_topic(bootstrap, topic) if each.key is not None]
    return sorted(folded(records).values(), key=lambda row: row["id"])


def is_streaming(run: CaptureRun, changes: int) -> bool:
    return run.status.state == "streaming" and run.status.changes >= changes


def table_rows(database: Database) -> list[dict]:
    return [{"id": int(row[0] or 0), "v": row[1]} for row in database.run("SELECT id, v FROM t ORDER BY id")]


class Driver:
    """As PyMySQL's connection, over the connection of the test."""

    __module__ = "pymysql.connections"

    def __init__(self, database: Database) -> None:
        self._database = database

    def cursor(self) -> "Driver":
        return Cursor(self._database)

    def close(self) -> None:
        pass


class Cursor(Driver):
    """As PyMySQL's cursor: values by name, put into the statement."""

    __module__ = "pymysql.cursors"

    def execute(self, statement: str, values: dict) -> None:
        texts = {name: f"_utf8mb4 0x{value.encode().hex()}" for name, value in values.items()}
        self._database.run(statement % texts if values else statement)


def test_the_topic_of_a_truncated_table_is_empty(bootstrap, database):
    """Between other transactions, and again of the partition of a table."""
    name = f"emptied-{database.server.product}"
    topic = f"{name}.{database.name}.t"
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text) PARTITION BY RANGE (id) "
        "(PARTITION a VALUES LESS THAN (10), PARTITION b VALUES LESS THAN (100))",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (20, 'c')",
    )
    with running(bootstrap, name, database.source) as run:
        wait_until(lambda: is_streaming(run, 0) and rows_of(bootstrap, topic) == table_rows(database))
        database.run(
            "INSERT INTO t VALUES (3, 'd')", "TRUNCATE t", "INSERT INTO t VALUES (2, 'e'), (30, 'f')"
        )
        wait_until(lambda: is_streaming(run, 7))
        assert (
            rows_of(bootstrap, topic) == table_rows(database) == [{"id": 2, "v": "e"}, {"id": 30, "v": "f"}]
        )
        database.run("ALTER TABLE t TRUNCATE PARTITION a")
        wait_until(lambda: rows_of(bootstrap, topic) == table_rows(database) == [{"id": 30, "v": "f"}])
    values = by_key(read_topic(bootstrap, topic))
    assert [each and each["op"] for each in values[b'{"id":3}']] == ["c", "d", None]


def test_tables_become_topics_with_cuts_and_runs_go_on_where_the_last_stopped(bootstrap, database):
    name = f"shop-{database.server.product}"
    topic = f"{name}.{database.name}.t"
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    with running(bootstrap, name, database.source) as run:
        wait_until(lambda: is_streaming(run, 0))
        database.run("BEGIN", "UPDATE t SET v = 'c' WHERE id = 1", "INSERT INTO t VALUES (3, 'd')", "COMMIT")
        database.run("DELETE FROM t WHERE id = 2")
        wait_until(lambda: is_streaming(run, 3))
        assert run.status.connector == database.server.product and "password" not in run.status.url
    database.run("UPDATE t SET v = 'while it was away' WHERE id = 3")
    with running(bootstrap, name, database.source) as run:
        wait_until(lambda: is_streaming(run, 1))
        wait_until(lambda: run.status.lag.bytes == 0)
    values = by_key(read_topic(bootstrap, topic))
    assert [each["op"] for each in values[b'{"id":1}']] == ["r", "u"]
    assert [each and each["op"] for each in values[b'{"id":2}']] == ["r", "d", None]
    assert [each["op"] for each in values[b'{"id":3}']] == ["c", "u"]
    update = values[b'{"id":1}'][1]
    assert update["source"]["file"].startswith("binlog.") and update["source"]["pos"] > 0
    assert update["transaction"]["id"] == update["source"]["gtid"]
    assert update["before"] == {"id": 1, "v": "a"}
    cuts = [each.value for each in read_topic(bootstrap, f"{name}.transaction")]
    assert sum(each["event_count"] for each in cuts) >= 4 and cuts[-1]["offsets"][topic]
    assert rows_of(bootstrap, topic) == table_rows(database)


def test_rows_of_an_outbox_are_events(bootstrap, database):
    name = f"events-{database.server.product}"
    driver = Driver(database)
    outbox.create_table(driver)
    open_source = lambda: database.source(tables=["outbox"])  # noqa: E731
    kind = f"order_{database.name}"
    with running(bootstrap, name, open_source, outbox=["outbox"]) as run:
        wait_until(lambda: is_streaming(run, 0))
        database.run("BEGIN")
        outbox.write(driver, kind, 7, "Paid", {"id": 7, "by": "% %s :id"})
        database.run("DELETE FROM outbox", "COMMIT", "BEGIN")
        outbox.write(driver, kind, 7, "Lost", {})
        database.run("ROLLBACK")
        outbox.write(driver, kind, 7, "Sent", {"id": 7, "note": "漢" * 30_000})
        wait_until(lambda: run.status.lag.bytes == 0 and kind in str(run._writer._event_topics))
        wait_until(lambda: len(read_topic(bootstrap, f"outbox.event.{kind}")) == 2)
    events = read_topic(bootstrap, f"outbox.event.{kind}")
    assert [each.key for each in events] == [b"7"] * 2
    assert events[0].value == {"id": 7, "by": "% %s :id"} and len(events[1].value["note"]) == 30_000


@pytest.mark.slow
def test_lost_changes_stop_a_capture_and_a_resnapshot_converges(bootstrap, own_server):
    """A log that was removed, a server that was replaced: one after the other."""
    name = f"lost-{own_server.product}"
    with Database(own_server, "shop") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        with running(bootstrap, name, database.source) as run:
            wait_until(lambda: is_streaming(run, 0))
        database.run("DELETE FROM t WHERE id = 1", "FLUSH BINARY LOGS", "INSERT INTO t VALUES (3, 'c')")
        while len(files := database.run("SHOW BINARY LOGS")) > 1:
            database.run(f"PURGE BINARY LOGS TO '{files[-1][0]}'")
        with running(bootstrap, name, database.source) as run:
            wait_until(lambda: run.status.state == "stopped")
            assert "purged" in (run.status.error or "") or "removed" in (run.status.error or "")
            run.resnapshot()
            wait_until(lambda: is_streaming(run, 0))
            assert rows_of(bootstrap, f"{name}.shop.t") == table_rows(database)
        database.disconnect()
        own_server.stop()
        own_server.replace()
        own_server.start()
    with Database(own_server, "shop") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (7, 'new')")
        with running(bootstrap, name, database.source) as run:
            wait_until(lambda: run.status.state == "stopped")
            assert f"resnapshot {'test'}" in (run.status.error or "")
            run.resnapshot()
            wait_until(lambda: is_streaming(run, 0))
            assert rows_of(bootstrap, f"{name}.shop.t") == [{"id": 7, "v": "new"}]


@pytest.mark.slow
def test_a_server_that_restarts_is_waited_for(bootstrap, own_server):
    name = f"restarted-{own_server.product}"
    with Database(own_server, "shop") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        with running(bootstrap, name, database.source) as run:
            wait_until(lambda: is_streaming(run, 0))
            database.disconnect()
            own_server.stop(hard=True)
            wait_until(lambda: run.status.state == "reconnecting")
            own_server.start()
            database.run("INSERT INTO t VALUES (1, 'after')")
            wait_until(lambda: is_streaming(run, 1))
        assert rows_of(bootstrap, f"{name}.shop.t") == [{"id": 1, "v": "after"}]
