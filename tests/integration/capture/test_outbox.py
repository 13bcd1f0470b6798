"""Events that an application writes beside its rows: on their topics if, and only if, it has committed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import orjson
import pytest
from tests.integration.capture.conftest import running, wait_until
from tests.integration.capture.reading import read_topic

from headrace import outbox
from headrace.capture import Change
from headrace.capture.outbox import event_of
from headrace.capture.sqlite import SqliteSource
from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.errors import RequestError
from headrace.records import decode_columns


def source(path: Path) -> SqliteSource:
    return SqliteSource(path, ["outbox"], name="events")


def headers(bootstrap: str, topic: str) -> list:
    found = []
    with RawFetcher(Connection(bootstrap_servers=bootstrap)) as fetcher:
        ends = fetcher.offsets(topic, LATEST, committed=False)
        for partition, start in fetcher.offsets(topic, EARLIEST).items():
            for run in fetcher.fetch(topic, partition, start, ends[partition]):
                found += decode_columns(run, columns=("headers",))["headers"].to_pylist()
    return found


def test_events_go_to_their_topics_in_order_and_only_if_committed(bootstrap, tmp_path):
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        with database:
            outbox.create_table(database)
            first = outbox.write(database, "order", 7, "OrderPlaced", {"id": 7})
        with running(bootstrap, "events", lambda: source(path), outbox=["outbox"]) as run:
            wait_until(lambda: run.status.state == "streaming")
            with database:
                outbox.write(database, "order", 7, "OrderPaid", {"id": 7, "by": "card"})
                outbox.write(database, "customer", "a b", "Renamed", "plain text")
                database.execute("DELETE FROM outbox")
            with pytest.raises(ZeroDivisionError), database:
                outbox.write(database, "order", 7, "OrderLost", {})
                raise ZeroDivisionError
            with database:
                outbox.write(database, "order", 7, "OrderSent", {"id": 7})
            wait_until(
                lambda: run.status.lag.changes == 0 and len(headers(bootstrap, "outbox.event.order")) == 3
            )
    events = read_topic(bootstrap, "outbox.event.order")
    assert [each.key for each in events] == [b"7"] * 3
    assert [each.value for each in events] == [{"id": 7}, {"id": 7, "by": "card"}, {"id": 7}]
    told = [
        {each["key"]: each["value"] for each in some} for some in headers(bootstrap, "outbox.event.order")
    ]
    assert [each["eventType"] for each in told] == [b"OrderPlaced", b"OrderPaid", b"OrderSent"]
    assert told[0]["id"] == first.encode()


def test_a_table_that_is_no_outbox_is_named_with_what_it_lacks():
    change = Change("main.t", "c", None, None, orjson.dumps({"id": 1, "payload": 2}))
    with pytest.raises(RequestError, match="lacks aggregatetype, aggregateid, type"):
        event_of(change, 0)


def test_another_library_is_refused():
    with pytest.raises(RequestError, match="no connection of"):
        outbox.write(object(), "order", 1, "x", {})


def test_psycopg_writes_the_same_row(postgres):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres.url()) as connection:
        outbox.create_table(connection)
        outbox.write(connection, "order", 7, "OrderPaid", {"a": ":id %s"}, id="e1")
        rows = connection.execute('SELECT * FROM "outbox"').fetchall()
    assert rows == [("e1", "order", "7", "OrderPaid", '{"a": ":id %s"}')]


def test_sqlalchemy_writes_the_same_row():
    sqlalchemy = pytest.importorskip("sqlalchemy")
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.begin() as connection:
        outbox.create_table(connection)
        outbox.write(connection, "order", 7, "OrderPaid", {"a": 1}, id="e1")
        rows = connection.execute(sqlalchemy.text("SELECT * FROM outbox")).fetchall()
    assert [tuple(each) for each in rows] == [("e1", "order", "7", "OrderPaid", '{"a": 1}')]
