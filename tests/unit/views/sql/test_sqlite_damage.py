"""Bits that flip in an SQLite file of views: what must not be guessed is refused by name."""

import sqlite3

import pyarrow as pa
import pytest

from headrace.errors import CorruptionError
from headrace.views import ViewBatch, ViewSchema
from headrace.views.sql.sqlite import SqliteStore

COLUMNS = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC"))])
SCHEMA = ViewSchema("v", ("k",), COLUMNS, keep_changes=10)
REMEDY = "restore it from a copy, or remove it and build its views anew"


@pytest.fixture
def file(tmp_path):
    """A file with a view of two rows, closed."""
    path = tmp_path / "views.db"
    store = SqliteStore(path)
    store.prepare(SCHEMA)
    store.begin("v", "q")
    after = pa.array([{"k": "täg", "at": 1_000_000}, {"k": "b", "at": 2_000_000}], pa.struct(list(COLUMNS)))
    changes = pa.table({"before": after, "after": after, "kind": pa.array([0, 0], pa.int8())})
    store.apply("v", ViewBatch("q", 0, changes, {"orders": {0: 17, 1: 23}}, 5, {"on_time": 2}))
    store.close()
    return path


def reflected(path):
    store = SqliteStore(path)
    try:
        return store.snapshot("v").reflected
    finally:
        store.close()


def test_every_flipped_bit_of_a_ledger_is_damage_that_is_named_with_what_to_do(file):
    right, data = reflected(file), file.read_bytes()
    with sqlite3.connect(file) as plain:
        (text,) = plain.execute("SELECT ledger FROM headrace_ledger").fetchone()
    plain.close()
    start = data.index(text.encode())
    assert data.count(text.encode()) == 1
    for position in range(start, start + len(text)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << (position % 8)
        file.write_bytes(flipped)
        with pytest.raises(CorruptionError) as damage:
            reflected(file)
        assert str(file) in str(damage.value)
        assert REMEDY in str(damage.value)
    file.write_bytes(data)
    assert reflected(file) == right


@pytest.mark.parametrize(
    ("was", "is_"),
    [
        ("täg".encode(), b"t\xff\xa4g"),
        (b"1970-01-01 00:00:01", b"1970-21-01 00:00:01"),
        (b'"k":"b"', b'"k";"b"'),
    ],
)
def test_a_value_that_none_can_be_is_damage_that_is_named_with_what_to_do(file, was, is_):
    data = file.read_bytes()
    assert was in data
    file.write_bytes(data.replace(was, is_))
    store = SqliteStore(file)
    with pytest.raises(CorruptionError) as damage:
        store.snapshot("v")
        store.changes("v")
    store.close()
    assert str(file) in str(damage.value)
    assert REMEDY in str(damage.value)


def test_a_ledger_of_an_earlier_version_has_no_checksum(file):
    right = reflected(file)
    store = SqliteStore(file)
    text = store._ledger("v").dumps()
    store.close()
    with sqlite3.connect(file) as plain:
        plain.execute("UPDATE headrace_ledger SET ledger = ?", (text,))
    plain.close()
    assert reflected(file) == right
