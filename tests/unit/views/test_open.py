"""URLs of stores: what they name, and what is said of those that name nothing."""

import sqlite3
from decimal import Decimal

import pyarrow as pa
import pytest

import headrace.views
from headrace.errors import ConfigError, RequestError
from headrace.views import ViewBatch, ViewSchema, open_store, require_store_url


@pytest.mark.parametrize(
    ("url", "cause"),
    [
        ("views.db", "is not the URL of a view store"),
        ("redis://host", "is not the URL of a view store"),
        ("sqlite://", "names no path"),
        ("sqlite:///", "names no path"),
        ("parquet://folder", "names no path"),
        ("topic://", "names no topic"),
        ("topic://t?partitions=x", "partitions must be 1 or more"),
        ("topic://t?color=red", "color"),
    ],
)
def test_a_url_that_names_no_store_is_refused(url, cause):
    with pytest.raises(ConfigError, match=cause):
        require_store_url(url)
    with pytest.raises(ConfigError, match=cause):
        open_store(url)


def test_passwords_are_not_repeated():
    with pytest.raises(ConfigError) as raised:
        open_store("mysql://user:secret@host/db")
    assert "secret" not in str(raised.value)
    with pytest.raises(Exception, match="postgresql") as raised:
        open_store("postgresql://user:secret@127.0.0.1:1/db?connect_timeout=1")
    assert "secret" not in str(raised.value)


def test_a_file_that_is_no_database_is_refused(tmp_path):
    (tmp_path / "x.db").write_text("this is text " * 100)
    with pytest.raises(ConfigError, match=r"cannot keep views in .*x\.db"):
        open_store(f"sqlite:///{tmp_path}/x.db")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot keep views"):
        open_store(f"parquet:///{tmp_path}/file/views")


def test_the_public_names_are_there():
    assert sorted(headrace.views.__all__) == headrace.views.__all__
    for name in headrace.views.__all__:
        assert getattr(headrace.views, name)


def test_an_sqlite_view_is_a_table_that_people_can_read(tmp_path):
    fields = [("region", pa.string()), ("at", pa.timestamp("us", "UTC")), ("sum", pa.decimal128(9, 2))]
    columns = pa.schema(fields)
    store = open_store(f"sqlite:///{tmp_path}/views.db")
    store.prepare(ViewSchema("sales", ("region",), columns))
    store.begin("sales", "q")
    row = {"region": "north", "at": 1_000_000, "sum": Decimal("12.50")}
    after = pa.array([row], pa.struct(list(columns)))
    changes = pa.table({"after": after, "before": after, "kind": pa.array([0], pa.int8())})
    store.apply("sales", ViewBatch("q", 0, changes, watermark_us=0))
    with sqlite3.connect(tmp_path / "views.db") as plain:
        (shown,) = plain.execute('SELECT region, at, "sum" FROM sales').fetchall()
        assert shown == ("north", "1970-01-01 00:00:01.000000Z", "12.50")
        assert plain.execute("SELECT strftime('%s', at), sum * 2 FROM sales").fetchall() == [("1", 25.0)]
        ledger = plain.execute("SELECT view, query_id, batch_id, watermark FROM headrace_ledger").fetchall()
        assert ledger == [("sales", "q", 0, "1970-01-01 00:00:00.000000Z")]
        plain.execute("CREATE TABLE mine (x)")
    with pytest.raises(RequestError, match="called 'mine' already"):
        store.prepare(ViewSchema("Mine", ("region",), columns))
    store.close()
