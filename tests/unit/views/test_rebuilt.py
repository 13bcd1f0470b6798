"""What a rebuilt view would change, row by row, and the decision to show it."""

import pyarrow as pa
import pytest

from headrace.cli.show.views import render_comparison
from headrace.errors import RequestError
from headrace.views import ViewSchema
from headrace.views.rebuilt import Comparison, Rebuilds, compare_versions

SCHEMA = ViewSchema("counts", ("place",), pa.schema([("place", pa.string()), ("n", pa.int64())]))
WIDER = ViewSchema(
    "counts", ("place",), pa.schema([("place", pa.string()), ("n", pa.int64()), ("total", pa.float64())])
)
OTHER_KEY = ViewSchema("counts", ("n",), SCHEMA.columns)


def version(schema, rows, end=10):
    names = schema.columns.names
    made = [dict(zip(names, each, strict=True)) for each in rows]
    return schema, pa.Table.from_pylist(made, schema=schema.columns), {"orders": {0: end}}


def counts(found):
    return found.changed, found.added, found.removed


def test_every_row_that_differs_is_named_once():
    found = compare_versions(
        version(SCHEMA, [("a", 1), ("b", 2), ("c", 3)]), version(SCHEMA, [("c", 4), ("a", 1), ("d", None)])
    )
    assert counts(found) == (1, 1, 1) and not found.is_equal
    assert [(each.key["place"], each.shown, each.rebuilt) for each in found.differences] == [
        ("b", {"place": "b", "n": 2}, None),
        ("c", {"place": "c", "n": 3}, {"place": "c", "n": 4}),
        ("d", None, {"place": "d", "n": None}),
    ]


def test_equal_rows_in_another_order_do_not_differ():
    found = compare_versions(
        version(SCHEMA, [("a", 1), ("b", 2)]), version(SCHEMA, [("b", 2), ("a", 1)], end=15)
    )
    assert found.is_equal and counts(found) == (0, 0, 0) and found.newer_records == 5


def test_other_columns_are_told_and_common_ones_compared():
    found = compare_versions(
        version(SCHEMA, [("a", 1), ("b", 2)]), version(WIDER, [("a", 1, 1.5), ("b", 3, 1.5)])
    )
    assert counts(found) == (1, 0, 0) and found.columns == "column 'total' is new" and not found.is_equal


def test_with_another_key_all_rows_go_and_all_are_new():
    found = compare_versions(version(SCHEMA, [("a", 1)]), version(OTHER_KEY, [("a", 1)]))
    assert counts(found) == (0, 1, 1) and "its key was place and now is n" in found.columns


def test_of_many_differences_the_first_are_kept_and_all_are_counted():
    found = compare_versions(
        version(SCHEMA, []), version(SCHEMA, [(str(each), each) for each in range(1_500)])
    )
    assert counts(found) == (0, 1_500, 0) and len(found.differences) == 1_000
    assert render_comparison(found.to_json()).splitlines()[-2] == "  … and 500 more"


def test_a_comparison_is_the_same_after_it_was_kept(tmp_path):
    found = compare_versions(version(SCHEMA, [("a", 1)]), version(WIDER, [("b", 1, 2.5)]))
    assert Comparison.from_json(found.to_json()) == found
    Rebuilds(tmp_path).note("counts", "q", found)
    assert Rebuilds(tmp_path).compared("counts") == found


def test_the_text_shows_what_changes():
    found = compare_versions(
        version(SCHEMA, [("a", 1), ("b", 2)]), version(SCHEMA, [("a", 5), ("c", 2)], end=12)
    )
    assert render_comparison(found.to_json()).splitlines() == [
        "counts: 2 rows are shown, 2 were rebuilt",
        "  1 differ, 1 are new, 1 are gone",
        "  ~ place=a: n=1 → 5",
        "  - place=b",
        "  + place=c: n=2",
        "`headrace views switch counts` shows the rebuilt ones",
    ]
    assert "2 more records, and held back: 1 rows differ" in found.in_words()


def test_a_decision_holds_for_the_rebuild_that_was_compared_and_no_other(tmp_path):
    rebuilds, found = Rebuilds(tmp_path), compare_versions(version(SCHEMA, []), version(SCHEMA, [("a", 1)]))
    with pytest.raises(RequestError, match="--compare"):
        rebuilds.approve("counts")
    rebuilds.hold("counts", "first")
    with pytest.raises(RequestError, match="still being rebuilt"):
        rebuilds.approve("counts")
    rebuilds.note("counts", "first", found)
    rebuilds.approve("counts")
    rebuilds.hold("counts", "first")
    assert rebuilds.of_query("counts", "first").is_approved and rebuilds.views() == ["counts"]
    rebuilds.hold("counts", "second")
    assert rebuilds.of_query("counts", "first") is None
    assert not rebuilds.of_query("counts", "second").is_approved
    rebuilds.release("counts")
    assert rebuilds.views() == []


def test_a_request_stays_until_the_rebuilt_view_is_shown(tmp_path):
    rebuilds = Rebuilds(tmp_path)
    rebuilds.request("counts", compare=True)
    asked = Rebuilds(tmp_path).requested("counts")
    assert asked.compare and asked == rebuilds.requested("counts")
    rebuilds.request("counts", compare=False)
    assert rebuilds.requested("counts").id != asked.id
    rebuilds.release("counts")
    assert rebuilds.requested("counts") is None


def test_the_rebuild_that_was_compared_is_the_one_that_is_approved(tmp_path):
    rebuilds, found = Rebuilds(tmp_path), compare_versions(version(SCHEMA, []), version(SCHEMA, [("a", 1)]))
    rebuilds.note("counts", "second", found)
    with pytest.raises(RequestError, match="another rebuild of view 'counts' waits"):
        rebuilds.approve("counts", "first")
    assert not rebuilds.read("counts").is_approved
    rebuilds.approve("counts", "second")
    assert rebuilds.read("counts").is_approved
