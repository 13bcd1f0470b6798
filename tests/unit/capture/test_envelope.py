"""Debezium's envelope, and what a capture knows again after a crash: pure values."""

import orjson
import pytest

from headrace.capture import Change, Column, TableSchema
from headrace.capture.envelope import Envelope, cut, schema_value
from headrace.capture.state import CaptureState, TableState, parse_state
from headrace.errors import CorruptionError


def test_a_change_has_debeziums_fields_and_its_place_in_the_transaction():
    envelope = Envelope(connector="sqlite", name="shop", database="shop", version="1")
    envelope.begin("7", 5_000_001)
    first = Change("main.a", "c", b'{"id":1}', None, b'{"id":1}', b'"seq":3')
    envelope.value(first, 9)
    said = orjson.loads(envelope.value(first._replace(table="main.b", unchanged=("photo",)), 9))
    assert said == {
        "before": None,
        "after": {"id": 1},
        "source": {
            "version": "1",
            "connector": "sqlite",
            "name": "shop",
            "db": "shop",
            "schema": "main",
            "table": "b",
            "snapshot": "false",
            "ts_ms": 5000,
            "ts_us": 5_000_001,
            "seq": 3,
        },
        "op": "c",
        "ts_ms": 9,
        "transaction": {"id": "7", "total_order": 2, "data_collection_order": 1},
        "unchanged": ["photo"],
    }
    assert envelope.counts == {"main.a": 1, "main.b": 1}


def test_a_row_of_a_snapshot_belongs_to_no_transaction():
    envelope = Envelope(connector="sqlite", name="shop", database="shop", version="1")
    said = orjson.loads(envelope.snapshot_value(Change("main.a", "r", b"{}", None, b"{}"), 2_000, 3))
    assert (said["transaction"], said["source"]["snapshot"], said["source"]["ts_ms"]) == (None, "true", 2)


def test_a_cut_counts_the_changes_of_each_table():
    key, value = cut("7", 5_000, {"main.a": 2, "main.b": 1}, {"shop.main.a": {"0": 4}})
    said = orjson.loads(value)
    assert orjson.loads(key) == {"id": "7"}
    assert (said["status"], said["event_count"], said["offsets"]) == ("END", 3, {"shop.main.a": {"0": 4}})


def test_a_schema_names_columns_with_both_types():
    column = Column(name="id", type="INTEGER", spark_type="bigint", optional=False)
    table = TableSchema(table="main.a", columns=(column,), key=("id",))
    assert orjson.loads(schema_value(table))["columns"][0]["spark_type"] == "bigint"
    assert table.spark_ddl == "`id` bigint"


def test_a_state_survives_being_written():
    state = CaptureState(
        position={"seq": 3},
        tables={"main.a": TableState(cursor=[["v", 1]], rows=9), "main.b": TableState(phase="done")},
        offsets={"t": {"0": 4}},
        request="r",
    )
    assert parse_state(state.to_json()) == state
    with pytest.raises(CorruptionError):
        parse_state(b"{}")


def test_a_snapshot_taken_again_looks_for_keys_that_are_gone_and_a_first_one_does_not():
    first = CaptureState().with_tables(["a", "b"], known=["b"])
    assert first.advanced("a", None, 3).tables["a"] == TableState(phase="done", rows=3)
    assert first.advanced("b", None, 3).tables["b"].phase == "gone"
    assert first.advanced("b", None, 3).advanced("b", None, 1).tables["b"] == TableState(
        phase="done", rows=3, again=True
    )
    assert first.next_snapshot() == "a"
