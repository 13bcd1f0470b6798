"""Records of the three formats as changes of rows."""

import orjson
import pytest

from headrace.derived.changes import RowChange, UnreadableChange, canonical, merged, read_change
from headrace.views.topic import LEDGER_KEY

KEY = b'{"id":1}'


def read(value, style="upserts", key=KEY):
    return read_change(
        key, value if value is None or isinstance(value, bytes) else orjson.dumps(value), style
    )


def test_an_upsert_is_its_row_and_a_tombstone_its_end():
    assert read({"id": 1}) == RowChange(KEY, {"id": 1})
    assert read(None) == RowChange(KEY, None)


@pytest.mark.parametrize("op", ["c", "r", "u"])
def test_a_change_in_debeziums_envelope_brings_the_row_after_it(op):
    assert read({"op": op, "before": None, "after": {"id": 1}}, "debezium") == RowChange(KEY, {"id": 1})
    assert read({"payload": {"op": op, "after": {"id": 1}}}, "debezium") == RowChange(KEY, {"id": 1})


def test_a_delete_in_debeziums_envelope_and_its_tombstone_end_the_row():
    assert read({"op": "d", "before": {"id": 1}, "after": None}, "debezium") == RowChange(KEY, None)
    assert read(None, "debezium") == RowChange(KEY, None)


def test_a_change_of_a_view_brings_its_row_and_a_retraction_ends_it():
    assert read({"kind": "update", "after": {"n": 2}}, "changelog") == RowChange(KEY, {"n": 2})
    assert read({"kind": "retract", "before": {"n": 2}}, "changelog") == RowChange(KEY, None)
    assert read(b"{}", "changelog", key=LEDGER_KEY) is None


@pytest.mark.parametrize(
    ("value", "style", "key", "why"),
    [
        (b"nonsense", "upserts", KEY, "not JSON"),
        (b"\xff", "upserts", KEY, "not JSON"),
        (b"7", "upserts", KEY, "not an object"),
        ({"id": 1}, "upserts", None, "no key"),
        (None, "upserts", None, "without a key"),
        ({"op": "t"}, "debezium", None, "names no keys"),
        ({"op": "x"}, "debezium", KEY, "op is missing or unknown"),
        ({"op": "u", "after": None}, "debezium", KEY, "no row"),
        ({"op": "u", "after": {}}, "debezium", None, "no key"),
        ({"id": 1}, "changelog", KEY, "not a change of a view"),
    ],
)
def test_what_is_no_change_says_why(value, style, key, why):
    found = read(value, style, key)
    assert isinstance(found, UnreadableChange) and why in found.reason


def test_fields_that_a_change_left_as_they_were_keep_their_values():
    named = read({"op": "u", "after": {"id": 1, "n": 2}, "unchanged": ["big"]}, "debezium")
    placed = read({"op": "u", "after": {"id": 1, "n": 2, "big": "__debezium_unavailable_value"}}, "debezium")
    for change in (named, placed):
        assert merged(change, {"id": 1, "n": 1, "big": "x"}) == {"id": 1, "n": 2, "big": "x"}
        assert merged(change, None) == {"id": 1, "n": 2}


def test_equal_rows_have_one_text():
    assert canonical({"a": 1.0, "b": None, "c": {"y": 1, "x": [2.0]}}) == canonical(
        {"c": {"x": [2], "y": 1}, "a": 1}
    )
    assert canonical({"a": 1}) != canonical({"a": "1"}) != canonical({"a": True})
    assert canonical({"a": 2.0**60}) != canonical({"a": 2**60 + 1})
