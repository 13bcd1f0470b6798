"""PostgreSQL to topics of a real log; what is lost stops it with the reason, and one call mends it."""

import psycopg
import pytest
from tests.integration.capture.conftest import running, wait_until
from tests.integration.capture.postgres.databases import Database
from tests.integration.capture.reading import by_key, folded, read_topic

from headrace import outbox
from headrace.capture import CaptureRun
from headrace.testing.postgres_process import PASSWORD

pytestmark = pytest.mark.xdist_group("postgres")


def rows_of(bootstrap: str, topic: str) -> list[dict]:
    records = [each for each in read_topic(bootstrap, topic) if each.key is not None]
    return sorted(folded(records).values(), key=lambda row: row["id"])


def is_streaming(run: CaptureRun, changes: int) -> bool:
    return run.status.state == "streaming" and run.status.changes >= changes


def table_rows(database: Database, table: str = "t") -> list[dict]:
    return sorted(database.rows(table, "id").values(), key=lambda row: row["id"])


def test_tables_become_topics_with_cuts(bootstrap, database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    with running(bootstrap, "shop", database.source) as run:
        wait_until(lambda: is_streaming(run, 0))
        database.run("BEGIN; UPDATE t SET v = 'c' WHERE id = 1; INSERT INTO t VALUES (3, 'd'); COMMIT")
        database.run("DELETE FROM t WHERE id = 2")
        wait_until(lambda: is_streaming(run, 3))
        assert run.status.connector == "postgresql" and "password" not in run.status.url
    values = by_key(read_topic(bootstrap, "shop.public.t"))
    assert [each["op"] for each in values[b'{"id":1}']] == ["r", "u"]
    assert [each and each["op"] for each in values[b'{"id":2}']] == ["r", "d", None]
    update = values[b'{"id":1}'][1]
    assert update["source"]["connector"] == "postgresql" and update["source"]["lsn"] > 0
    assert update["transaction"]["id"].split(":")[0] == str(update["source"]["txId"])
    cuts = [each.value for each in read_topic(bootstrap, "shop.transaction")]
    assert sum(each["event_count"] for each in cuts) >= 3 and cuts[-1]["offsets"]["shop.public.t"]
    assert rows_of(bootstrap, "shop.public.t") == table_rows(database)


def test_topics_of_truncated_tables_are_empty(bootstrap, database):
    """Whole, several at once, in a transaction with other changes, and each partition of a table."""
    database.run(
        "CREATE TABLE t (id serial PRIMARY KEY, v text)",
        "CREATE TABLE child (id int PRIMARY KEY, of int REFERENCES t, v text)",
        "CREATE TABLE parts (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE part_1 PARTITION OF parts FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE part_2 PARTITION OF parts FOR VALUES FROM (10) TO (20)",
        "CREATE TABLE bare (v text)",
        "ALTER TABLE bare REPLICA IDENTITY FULL",
    )
    fill = (
        "INSERT INTO t (v) SELECT 'x' FROM generate_series(1, 40)", "INSERT INTO child VALUES (1, 1), (2, 2)",
        "INSERT INTO parts SELECT g, 'p' FROM generate_series(0, 19) g", "INSERT INTO bare VALUES ('b')",
    )  # fmt: skip
    database.run(*fill)
    name, tables = f"emptied-{database.server.version}", ("t", "child", "parts")

    def is_same() -> bool:
        return all(
            rows_of(bootstrap, f"{name}.public.{each}") == table_rows(database, each) for each in tables
        )

    def captured() -> CaptureRun:
        return running(bootstrap, name, lambda: database.source(tables=[*tables, "bare"]))

    with captured() as run:
        wait_until(lambda: is_streaming(run, 0) and is_same())
        database.run("BEGIN; INSERT INTO child VALUES (3, 3); TRUNCATE t, bare RESTART IDENTITY CASCADE; "
                     "INSERT INTO t (v) VALUES ('after'); TRUNCATE parts; COMMIT")  # fmt: skip
        wait_until(is_same)
        assert rows_of(bootstrap, f"{name}.public.t") == [{"id": 1, "v": "after"}]
        assert [each.value["op"] for each in read_topic(bootstrap, f"{name}.public.bare")] == ["t"]
        database.run(*fill[2:], "TRUNCATE child")
    with captured() as run:
        wait_until(lambda: is_streaming(run, 0) and is_same())
    database.run("TRUNCATE part_1")  # of which the stream does not tell
    with captured() as run:
        wait_until(lambda: is_streaming(run, 0) and is_same())
    assert len(rows_of(bootstrap, f"{name}.public.parts")) == 10


def test_a_run_goes_on_where_the_last_one_stopped(bootstrap, database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
    for number in range(3):
        with running(bootstrap, "again", database.source) as run:
            wait_until(lambda: is_streaming(run, 0))
            database.run(f"INSERT INTO t VALUES ({number}, 'x')")
            wait_until(lambda: is_streaming(run, 1))
        database.run(f"UPDATE t SET v = 'while it was away' WHERE id = {number}")
    with running(bootstrap, "again", database.source) as run:
        wait_until(lambda: is_streaming(run, 1))
    values = by_key(read_topic(bootstrap, "again.public.t"))
    assert [[each["op"] for each in changes] for changes in values.values()] == [["c", "u"]] * 3


def test_rows_of_an_outbox_are_events(bootstrap, database):
    """Those of committed transactions, each once, in their order; also what came while nobody captured."""
    where = database.address
    login = {"host": where.host, "port": where.port, "user": where.user, "dbname": where.database}
    kind, name = f"order_{database.name}", f"events-{database.server.version}"
    with psycopg.connect(**login, password=PASSWORD) as connection:
        outbox.create_table(connection)
        connection.commit()
        outbox.write(connection, kind, 6, "Placed", {"id": 6})
        connection.commit()  # there before the capture: an event, too
        for round_ in (0, 1):
            with running(
                bootstrap, name, lambda: database.source(tables=["outbox"]), outbox=["outbox"]
            ) as run:
                wait_until(lambda: is_streaming(run, 0))
                outbox.write(connection, kind, 7, "Paid", {"id": 7, "by": "% %s :id", "round": round_})
                connection.execute("DELETE FROM outbox")
                connection.commit()
                outbox.write(connection, kind, 7, "Lost", {})
                connection.rollback()
                wait_until(
                    lambda wanted=2 + 2 * round_: len(read_topic(bootstrap, f"outbox.event.{kind}")) == wanted
                )
            outbox.write(connection, kind, 7, "Sent", {"note": "漢" * 30_000})
            connection.commit()
        with running(bootstrap, name, lambda: database.source(tables=["outbox"]), outbox=["outbox"]):
            wait_until(lambda: len(read_topic(bootstrap, f"outbox.event.{kind}")) == 5)
    events = read_topic(bootstrap, f"outbox.event.{kind}")
    assert [each.key for each in events if each.value == {"id": 6}] == [b"6"]
    of_seven = [each.value for each in events if each.key == b"7"]
    sent = {"note": "漢" * 30_000}
    paid = [{"id": 7, "by": "% %s :id", "round": round_} for round_ in (0, 1)]
    assert of_seven == [paid[0], sent, paid[1], sent]


def test_lost_changes_stop_a_capture_and_a_resnapshot_converges(bootstrap, own_server):
    """A slot that was dropped, a log that was removed, a cluster that was replaced: one after the other."""
    with Database(own_server, "shop") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
        with running(bootstrap, "lost", lambda: database.source(tables=["t"])) as run:
            wait_until(lambda: is_streaming(run, 0))
        database.run(
            f"SELECT pg_drop_replication_slot('{database.idle_slot()}')", "DELETE FROM t WHERE id = 1"
        )
        with running(bootstrap, "lost", lambda: database.source(tables=["t"])) as run:
            wait_until(lambda: run.status.state == "stopped")
            assert "slot is gone" in (run.status.error or "") and "resnapshot" in (run.status.error or "")
            run.resnapshot()
            wait_until(lambda: is_streaming(run, 0))
            assert rows_of(bootstrap, "lost.public.t") == table_rows(database) == [{"id": 2, "v": "b"}]
        database.idle_slot()
        database.run("CREATE TABLE noise (v text)")
        for _ in range(5):  # files of the log, 16 MB each
            database.run("INSERT INTO noise VALUES ('x')", "SELECT pg_switch_wal()", "CHECKPOINT")
        database.run("INSERT INTO t VALUES (3, 'c')")
        assert database.run("SELECT wal_status FROM pg_replication_slots") == [("lost",)]
        with running(bootstrap, "lost", lambda: database.source(tables=["t"])) as run:
            wait_until(lambda: run.status.state == "stopped")
            assert "max_slot_wal_keep_size" in (run.status.error or "")
            run.resnapshot()
            wait_until(lambda: is_streaming(run, 0))
            assert rows_of(bootstrap, "lost.public.t") == table_rows(database)
        database.disconnect()
        own_server.stop()
        own_server.replace()
        own_server.start()
    with Database(own_server, "shop") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (7, 'new')")
        with running(bootstrap, "lost", lambda: database.source(tables=["t"])) as run:
            wait_until(lambda: run.status.state == "stopped")
            assert "another database cluster" in (run.status.error or "")
            run.resnapshot()
            wait_until(lambda: is_streaming(run, 0))
            assert rows_of(bootstrap, "lost.public.t") == [{"id": 7, "v": "new"}]


def test_a_server_that_restarts_is_waited_for(bootstrap, own_server):
    with Database(own_server, "shop") as database:
        database.run("CREATE TABLE t (id int PRIMARY KEY, v text)")
        with running(bootstrap, "restarted", database.source) as run:
            wait_until(lambda: is_streaming(run, 0))
            database.disconnect()
            own_server.stop(hard=True)
            wait_until(lambda: run.status.state == "reconnecting")
            own_server.start()
            database.run("INSERT INTO t VALUES (1, 'after')")
            wait_until(lambda: is_streaming(run, 1))
        assert rows_of(bootstrap, "restarted.public.t") == [{"id": 1, "v": "after"}]


def test_a_table_that_gets_other_columns_is_read_again_and_keeps_its_topic(bootstrap, database):
    database.run("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, '1'), (2, '2')")
    with running(bootstrap, "altered", database.source) as run:
        wait_until(lambda: is_streaming(run, 0))
        database.run("ALTER TABLE t ALTER v TYPE int USING v::int", "INSERT INTO t VALUES (3, 3)")
        wait_until(lambda: rows_of(bootstrap, "altered.public.t") == table_rows(database))
        wait_until(lambda: is_streaming(run, 1))
    schemas = [each.value for each in read_topic(bootstrap, "altered.schema")]
    assert schemas[-1]["columns"][1] == {
        "name": "v",
        "type": "integer",
        "spark_type": "int",
        "optional": True,
    }
