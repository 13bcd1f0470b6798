"""Records of tables into rows: upserts, deletes, and changes in Debezium's envelope."""

import base64
import json

import pyarrow as pa

from headrace.records import Places
from headrace.streams.decode.table_values import PLACEHOLDER, parse_table

FIELDS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))])


def parsed(records, *, style="debezium", fields=FIELDS):
    """The rows of (key, value) pairs: values by column, whether deleted, and the fields left unchanged."""
    keys, values = (
        Places.of(
            pa.array([None if each is None else json.dumps(each).encode() for each in column], pa.binary())
        )
        for column in zip(*records, strict=True)
    )
    found = parse_table(keys, values, fields, ["id"], style=style)
    rows = zip(*(column.to_pylist() for column in found.parsed.columns), strict=True)
    unchanged = [
        None
        if each is None
        else [name for at, name in enumerate(fields.names) if each[at // 8] >> at % 8 & 1]
        for each in found.unchanged.to_pylist()
    ]
    return list(zip(rows, found.deleted.tolist(), unchanged, found.parsed.reasons.to_pylist(), strict=True))


def change(op, row, **more):
    side = "before" if op == "d" else "after"
    return {"op": op, side: row, **more}


def test_a_null_value_is_a_delete_and_never_an_empty_row():
    for style in ("upserts", "debezium"):
        assert parsed([({"id": 7}, None)], style=style) == [((7, None, None), True, None, None)]


def test_a_key_change_is_a_delete_of_the_old_key_and_a_row_of_the_new():
    old, new = {"id": 1, "name": "ada", "tags": []}, {"id": 2, "name": "ada", "tags": []}
    found = parsed([({"id": 1}, change("d", old)), ({"id": 1}, None), ({"id": 2}, change("c", new))])
    assert [(row[0], deleted) for row, deleted, _, _ in found] == [(1, True), (1, True), (2, False)]


def test_placeholders_are_null_and_marked_whatever_their_type():
    fields = pa.schema([*FIELDS, ("photo", pa.binary())])
    photo = base64.b64encode(PLACEHOLDER.encode()).decode()
    row = {"id": 1, "name": PLACEHOLDER, "tags": [PLACEHOLDER], "photo": photo}
    plain = {"id": 1, "name": f"not {PLACEHOLDER}", "tags": [PLACEHOLDER, "b"], "photo": None}
    found = parsed([({"id": 1}, change("u", row)), ({"id": 1}, change("u", plain))], fields=fields)
    assert found[0] == ((1, None, None, None), False, ["name", "tags", "photo"], None)
    assert found[1] == ((1, plain["name"], plain["tags"], None), False, None, None)


def test_fields_that_a_change_names_as_unchanged_are_marked_too():
    left_out = change("u", {"id": 1, "tags": ["a"]}, unchanged=["name", "of another table"])
    found = parsed([({"id": 1}, left_out), ({"id": 1}, {"payload": left_out})])
    assert found == [((1, None, ["a"]), False, ["name"], None)] * 2


def test_a_delete_leaves_nothing_unchanged():
    found = parsed([({"id": 1}, change("d", {"id": 1, "name": PLACEHOLDER}, unchanged=["tags"]))])
    assert [(deleted, unchanged) for _, deleted, unchanged, _ in found] == [(True, None)]


def test_upserts_know_no_placeholders():
    found = parsed([({"id": 1}, {"id": 1, "name": PLACEHOLDER})], style="upserts")
    assert found == [((1, PLACEHOLDER, None), False, None, None)]
