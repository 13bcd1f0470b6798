"""Keys of SQLite's rows: no two of a table are the same JSON."""

import sqlite3
from contextlib import closing
from itertools import combinations

import pytest

from headrace.capture import Column
from headrace.capture.sqlite.keys import UnclearKey, key_encoder
from headrace.capture.sqlite.tables import spark_type
from headrace.capture.sqlite.values import text

VALUES = (
    *("''", "x''", "'MQ=='", "CAST('1' AS BLOB)", "'1'", "1", "1.5", "0", "'true'", "'0'"),
    *("'Infinity'", "9e999", "'-Infinity'", "-9e999", "x'2277e29e2b72'", "NULL"),
    *("CAST(x'ff' AS TEXT)", "CAST(x'fe' AS TEXT)", "char(65533)", "'a' || char(0)", "'a'"),
)
TYPES = ("", "TEXT", "BLOB", "INTEGER", "REAL", "NUMERIC", "BOOLEAN", "BINARY(16)")


def encoder(declared):
    columns = [Column(name="k", type=declared, spark_type=spark_type(declared))]
    return key_encoder(columns, ["k"], where="shop.db: table t", capture="shop")


def stored(declared, expression):
    """The value as a column of this type keeps it."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.text_factory = text
        database.execute(f"CREATE TABLE t (k {declared})")
        database.execute(f"INSERT INTO t VALUES ({expression})")
        return database.execute("SELECT k FROM t").fetchone()[0]


def are_equal(declared, one, other):
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute(f"CREATE TABLE t (k {declared})")
        database.execute(f"INSERT INTO t VALUES ({one}), ({other})")
        return database.execute("SELECT count(DISTINCT k) FROM t").fetchone()[0] == 1


@pytest.mark.parametrize("declared", TYPES)
def test_keys_that_differ_are_told_apart_or_refused(declared):
    encode, keys = encoder(declared), {}
    for expression in VALUES:
        try:
            keys[expression] = encode([stored(declared, expression)])
        except UnclearKey:
            continue
    assert len(keys) > 5
    for one, other in combinations(keys, 2):
        assert keys[one] != keys[other] or are_equal(declared, one, other), (one, other)


@pytest.mark.parametrize(
    ("declared", "value", "key"),
    [
        ("BLOB", b"1", b'{"k":"MQ=="}'),
        ("VARBINARY(16)", b"1", b'{"k":"MQ=="}'),
        ("BLOB", 7, b'{"k":7}'),
        ("", "", b'{"k":""}'),
        ("", 1.5, b'{"k":1.5}'),
        ("UUID", "a\ufffd", '{"k":"a\ufffd"}'.encode()),
        ("BOOLEAN", 1, b'{"k":true}'),
    ],
)
def test_what_a_key_column_is_declared_for_goes_on_as_before(declared, value, key):
    assert encoder(declared)([value]) == key


@pytest.mark.parametrize(
    ("declared", "value", "reason"),
    [
        ("TEXT", None, "NULL"),
        ("TEXT", text(b"\xff"), "text that is not UTF-8"),
        ("", b"", "a BLOB"),
        ("BLOB", "1", "text"),
        ("REAL", float("inf"), "an infinite number"),
        ("REAL", float("-inf"), "an infinite number"),
    ],
)
def test_a_key_that_is_refused_is_named_with_what_to_do(declared, value, reason):
    with pytest.raises(UnclearKey) as refused:
        encoder(declared)([value])
    said = str(refused.value)
    assert f"shop.db: table t: a row with {reason}" in said and "column k" in said
    assert "`headrace capture resnapshot shop`" in said
