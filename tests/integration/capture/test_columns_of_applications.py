"""A captured table that is changed while an application reads it: new columns are carried, others stop it.

One test for each cell of the matrix in docs/guides/capture.md whose consumer is an application.
"""

import sqlite3
import time
import uuid
from contextlib import closing, contextmanager
from dataclasses import replace

import pytest
from tests.integration.capture.conftest import running, wait_until

from headrace import App
from headrace.capture.sqlite import SqliteSource
from headrace.client import Connection, RawFetcher
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.client.write import BatchProducer, OutputRecord
from headrace.errors import RequestError
from headrace.streams.feed.captured_columns import column_readers, why_other
from headrace.streams.feed.cuts import CutReader
from headrace.streams.feed.joint import JointPlanner
from headrace.streams.feed.options import FeedOptions
from headrace.streams.feed.planner import FeedPlanner
from headrace.streams.spec import CapturedColumns

SECOND = "CREATE TABLE other (id INTEGER PRIMARY KEY, name {name}, age INTEGER)"
REBUILT = ["INSERT INTO other SELECT * FROM customers", "DROP TABLE customers",
           "ALTER TABLE other RENAME TO customers"]  # fmt: skip
CHANGES = {
    "added": (["ALTER TABLE customers ADD COLUMN note TEXT"], ""),
    "added with values": (["ALTER TABLE customers ADD COLUMN vip INTEGER DEFAULT 1"], ""),
    "longer text": ([SECOND.format(name="VARCHAR(80)"), *REBUILT], ""),
    "renamed": (["ALTER TABLE customers RENAME COLUMN age TO years"],
                r"main\.customers has no column age any longer \(renamed or dropped, and new: years\)"),
    "dropped": (["ALTER TABLE customers DROP COLUMN age"], "no column age any longer"),
    "retyped": ([SECOND.format(name="BLOB"), *REBUILT], "type in column name: BLOB, which was VARCHAR"),
    "another key": ([SECOND.format(name="VARCHAR(40)").replace(" PRIMARY KEY", "").replace(
        "age INTEGER", "age INTEGER PRIMARY KEY"), *REBUILT], r"has the key \(age\), which was \(id\)"),
}  # fmt: skip


def write(path, *statements):
    """In one transaction; a column is dropped once no trigger names it."""
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("BEGIN IMMEDIATE")
        if any("DROP COLUMN" in each for each in statements):
            for (name,) in database.execute(
                "SELECT name FROM sqlite_master WHERE type = 'trigger'"
            ).fetchall():
                database.execute(f'DROP TRIGGER "{name}"')
        for each in statements:
            database.execute(each)


@pytest.fixture
def shop(tmp_path):
    path = tmp_path / "shop.db"
    write(path, "CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(40), age INTEGER)",
          "INSERT INTO customers VALUES (1, 'Ann', 30), (2, 'Ben', 40)")  # fmt: skip
    return path


class Reading:
    """The feed of an application that was started now, as its query plans micro-batches."""

    def __init__(self, bootstrap, path, name):
        app, connection = App("shop"), Connection(bootstrap_servers=bootstrap)
        captured = app.capture(f"sqlite:///{path}", table="customers", name=name)
        spec = app.table("customers", source=captured).spec
        self.columns = dict(spec.captured.columns)
        self._planner = JointPlanner(
            [FeedPlanner(spec, FeedOptions(connection=connection))],
            [CutReader(RawFetcher(connection), spec.transactions)],
            column_readers([spec], connection),
        )
        self._position = self._planner.first()

    def read(self, records):
        """Reads on until there were so many records in all."""
        wait_until(lambda: self._following() >= records, 30)

    def _following(self):
        self._position = self._planner.following(self._position, self._planner.latest(), beating=False)
        return sum(self._position.inputs[0].position.next.values())

    def close(self):
        self._planner.close()


@contextmanager
def captured(bootstrap, path):
    name = f"columns{uuid.uuid4().hex[:8]}"
    with running(bootstrap, name, lambda: SqliteSource(path, ["customers"], name=name)) as run:
        wait_until(lambda: run.status.state == "streaming")
        yield name


@pytest.mark.parametrize("change", CHANGES)
def test_columns_that_an_application_would_misread_stop_it_and_the_next_start_reads_them(
    bootstrap, shop, change
):
    statements, said = CHANGES[change]
    with captured(bootstrap, shop) as name, closing(Reading(bootstrap, shop, name)) as reading:
        reading.read(2)
        write(shop, *statements, "INSERT INTO customers (id, name) VALUES (3, 'Cleo')")
        if said:
            with pytest.raises(RequestError, match=said) as refused:
                reading.read(4)
            assert "start it again with --rebuild" in str(refused.value)
        else:
            reading.read(4)
        with closing(Reading(bootstrap, shop, name)) as again:
            again.read(4)
            with closing(sqlite3.connect(shop)) as database:
                there = {each[1]: each[2] for each in database.execute("PRAGMA table_info(customers)")}
            assert again.columns == there


def test_an_application_reads_no_row_behind_columns_whose_commit_is_under_way(bootstrap):
    connection, name = Connection(bootstrap_servers=bootstrap), f"under-way-{uuid.uuid4().hex[:8]}"
    ensure_topics(connection, {name: TopicSettings(partitions=1, configs={"cleanup.policy": "compact"})})
    known = CapturedColumns(topic=name, table="t", columns=(("id", "int"),), key=("id",), read_ms=0)
    described = b'{"table":"t","columns":[{"name":"id","type":"text"}],"key":["id"]}'
    spec = App("shop").table("rows", key="id", schema="id int").spec
    (reader,) = column_readers([replace(spec, captured=known)], connection)
    writer = BatchProducer(connection, name)
    writer.take_over()
    settled = []

    def records():
        yield OutputRecord(name, b"t", described, partition=0)
        writer.flush()
        settled.append(reader.is_settled())

    with closing(reader):
        assert reader.is_settled()
        writer.transact(records(), lambda _: ())
        assert settled == [False]
        with pytest.raises(RequestError, match="another type in column id: text, which was int"):
            wait_until(reader.is_settled, 10)
    writer.close()


def test_what_was_described_before_the_application_read_the_columns_does_not_count(bootstrap, shop):
    with captured(bootstrap, shop) as name:
        pass
    write(shop, "ALTER TABLE customers RENAME COLUMN age TO years")
    time.sleep(0.002)
    with closing(Reading(bootstrap, shop, name)) as reading:
        reading.read(2)


@pytest.mark.parametrize(
    ("before", "now", "differs"),
    [
        ("varchar(10)", "text", False),
        ("character varying(10)", "character varying(20)", False),
        ("enum('a')", "enum('a','b')", False),
        ("varbinary(10)", "varbinary(20)", False),
        ("timestamp(3) without time zone", "timestamp(6) without time zone", True),
        ("integer", "bigint", True),
        ("bytea", "text", True),
        ("numeric(10,2)", "numeric(12,4)", True),
    ],
)
def test_types_whose_values_are_written_otherwise_differ(before, now, differs):
    known = CapturedColumns(topic="s", table="t", columns=(("v", before),), key=("v",), read_ms=0)
    said = {"columns": [{"name": "v", "type": now}], "key": ["v"]}
    assert bool(why_other(known, said)) is differs
