"""A view built anew out of sight: readers see the old one whole, then the new one whole."""

import uuid

import pyarrow as pa
import pytest

from headrace.app.query.checkpoint.shadow_build import (
    ShadowBuild,
    StageTarget,
    has_come_to,
    stale_builds,
)
from headrace.errors import FencedError
from headrace.views import ChangeKind, ViewBatch, ViewSchema, open_store, rows_as_changes
from headrace.views.formats import rows_to_json
from headrace.views.rebuilt import Rebuilds

SCHEMA = ViewSchema(
    "counts",
    ("place",),
    # Columns may be called like the parts of a change.
    pa.schema([("place", pa.string()), ("kind", pa.int64()), ("after", pa.list_(pa.string()))]),
    keep_changes=100,
)
OTHER = ViewSchema("counts", ("place",), pa.schema([("place", pa.string()), ("total", pa.float64())]))


def changes(schema: ViewSchema, rows: list[dict], kind: ChangeKind = ChangeKind.UPDATE) -> pa.Table:
    after = pa.array(rows, pa.struct(list(schema.columns)))
    before = pa.nulls(len(rows), after.type)
    return pa.table({"kind": [int(kind)] * len(rows), "before": before, "after": after})


def row(place: str, count: int) -> dict:
    return {"place": place, "kind": count, "after": [place, None]}


def batch(number: int, rows: list[dict], *, next_offset: int, query: str = "new", schema=SCHEMA) -> ViewBatch:
    return ViewBatch(
        query,
        number,
        changes(schema, rows),
        {"orders": {0: next_offset}},
        watermark_us=next_offset,
        counters={"on_time": len(rows)},
    )


@pytest.fixture(params=["sqlite", "memory", "parquet"])
def store(request, tmp_path):
    """A store with a view that another query made."""
    places = {
        "sqlite": f"sqlite:///{tmp_path}/views.db",
        "memory": f"memory://{uuid.uuid4()}",
        "parquet": f"parquet:///{tmp_path}/views",
    }
    opened = open_store(places[request.param])
    opened.prepare(SCHEMA)
    opened.begin("counts", "old")
    opened.apply("counts", batch(0, [row("a", 1), row("b", 2)], next_offset=100, query="old"))
    opened.begin("counts", "new", schema=SCHEMA)
    yield opened
    opened.close()


@pytest.fixture
def building(store, tmp_path):
    def begin(target: int = 100, schema: ViewSchema = SCHEMA) -> ShadowBuild:
        return ShadowBuild(store, schema, "new", data=tmp_path, targets={"orders": {0: target}})

    return begin


def shown(store) -> dict[str, int]:
    return {each["place"]: each["kind"] for each in rows_to_json(store.read("counts"))}


@pytest.mark.parametrize("ends", [{0: 40}, {}], ids=["some", "none"])
def test_a_second_stage_is_shown_once_it_has_all_that_the_first_one_wrote(store, tmp_path, ends):
    """Also where that is nothing: the rows of the build before are of records that were replaced."""
    first_is_done = []
    target = StageTarget(lambda: bool(first_is_done), lambda: ends)
    build = ShadowBuild(
        store, SCHEMA, "new", data=tmp_path, targets={"orders": target}, now=lambda: 10**6 * len(seen)
    )
    seen = []
    build.show_if_caught_up()
    if ends:
        build.apply("counts", batch(0, [row("c", 1)], next_offset=20))
    assert shown(store) == {"a": 1, "b": 2}
    first_is_done.append(True)
    build.show_if_caught_up()
    if ends:
        assert shown(store) == {"a": 1, "b": 2}
        build.apply("counts", batch(1, [row("d", 2)], next_offset=40))
    seen.append(True)  # the patience for the old watermark is over
    build.show_if_caught_up()
    assert shown(store) == ({"c": 1, "d": 2} if ends else {})
    assert store.reflected("counts").query_id == "new"
    following = 2 if ends else 0
    assert build.apply("counts", batch(following, [row("e", 3)], next_offset=50))
    assert shown(store) == ({"c": 1, "d": 2, "e": 3} if ends else {"e": 3})


def test_readers_see_the_old_rows_until_the_new_ones_have_caught_up(store, building, tmp_path):
    build = building()
    assert build.apply("counts", batch(0, [row("a", 10)], next_offset=40))
    assert build.apply("counts", batch(1, [row("c", 30), row("a", 11)], next_offset=99))
    assert shown(store) == {"a": 1, "b": 2}
    assert store.reflected("counts").query_id == "old"
    assert not build.is_shown

    build.apply("counts", batch(2, [row("d", 40)], next_offset=100))
    assert build.is_shown
    assert shown(store) == {"a": 11, "c": 30, "d": 40}
    reflected = store.reflected("counts")
    assert (reflected.query_id, reflected.batch_id, reflected.watermark_us) == ("new", 2, 100)
    assert reflected.counters == {"on_time": 4}
    assert reflected.offsets == {"orders": {0: 100}}
    assert list((tmp_path / "rebuilding").iterdir()) == []

    build.apply("counts", batch(3, [row("e", 50)], next_offset=120))
    assert shown(store)["e"] == 50
    assert not build.apply("counts", batch(3, [row("e", 50)], next_offset=120)), "given again"


def test_a_build_waits_for_the_time_of_the_view_it_replaces_but_not_for_ever(store, tmp_path):
    """Windows that silence had closed stay closed for readers."""
    clock = [0.0]

    def begin() -> ShadowBuild:
        return ShadowBuild(
            store, SCHEMA, "new", data=tmp_path, targets={"orders": {0: 50}}, now=lambda: clock[0]
        )

    build = begin()  # the old view is at watermark 100
    build.apply("counts", batch(0, [row("a", 10)], next_offset=50))
    clock[0] = 59.0
    build.show_if_caught_up()
    assert shown(store) == {"a": 1, "b": 2}
    clock[0] = 60.0
    build.show_if_caught_up()
    assert shown(store) == {"a": 10}


def test_the_old_query_is_fenced_from_the_beginning(store, building):
    building()
    with pytest.raises(FencedError):
        store.apply("counts", batch(1, [row("z", 0)], next_offset=101, query="old"))


@pytest.mark.parametrize("done", [0, 1])
def test_a_build_that_was_cut_goes_on_and_loses_no_batch(store, building, done):
    build = building()
    for number in range(done + 1):
        build.apply("counts", batch(number, [row(f"p{number}", number)], next_offset=30 * (number + 1)))
    build.close()

    again = building()
    assert again.reflected().batch_id == done
    assert shown(store) == {"a": 1, "b": 2}
    for number in range(done, 4):  # the last one is given again
        again.apply("counts", batch(number, [row(f"p{number}", number)], next_offset=30 * (number + 1)))
    assert shown(store) == {f"p{number}": number for number in range(4)}
    assert store.reflected("counts").counters == {"on_time": 4}


def test_a_build_that_was_cut_just_before_it_was_shown_is_shown_at_the_next_start(store, building):
    build = building(target=200)
    build.apply("counts", batch(0, [row("a", 7)], next_offset=100))
    build.close()
    assert shown(store) == {"a": 1, "b": 2}
    again = building(target=100)  # nothing more is in the log
    again.show_if_caught_up()
    assert shown(store) == {"a": 7}


def test_a_view_may_come_back_with_other_columns(store, building):
    store.begin("counts", "new", schema=OTHER)
    build = building(schema=OTHER)
    build.apply("counts", batch(0, [{"place": "a", "total": 1.5}], next_offset=50, schema=OTHER))
    assert shown(store) == {"a": 1, "b": 2}
    build.show()
    assert rows_to_json(store.read("counts")) == [{"place": "a", "total": 1.5}]


def test_a_log_without_records_leaves_the_old_view(store, building):
    build = building(target=0)
    build.show_if_caught_up()
    build.show()
    assert shown(store) == {"a": 1, "b": 2}


def test_a_view_that_becomes_empty_is_empty(store, building):
    build = building(target=100)
    build.apply("counts", batch(0, [], next_offset=100))
    assert shown(store) == {}
    assert store.reflected("counts").query_id == "new"


def test_files_of_builds_that_were_given_up_are_removed(store, building, tmp_path):
    building().close()
    (tmp_path / "rebuilding" / "counts.older.db").write_bytes(b"")
    stale_builds(tmp_path, {"counts": "new"})
    assert {path.name.partition(".db")[0] for path in (tmp_path / "rebuilding").iterdir()} == {"counts.new"}
    stale_builds(tmp_path, {})
    assert list((tmp_path / "rebuilding").iterdir()) == []


def test_all_partitions_must_have_come_to_their_target():
    assert has_come_to({0: 5, 1: 7}, {0: 5, 1: 9})
    assert not has_come_to({0: 5, 1: 7}, {0: 9})
    assert has_come_to({}, {})


def test_rows_as_changes_hold_every_value():
    rows = pa.table({"place": ["a"], "kind": [3], "after": [["x"]]}, schema=SCHEMA.columns)
    (found,) = rows_as_changes(rows).to_pylist()
    assert found == {
        "kind": int(ChangeKind.CLOSE),
        "before": None,
        "after": {"place": "a", "kind": 3, "after": ["x"]},
    }
    assert rows_as_changes(rows.slice(0, 0)).num_rows == 0


@pytest.fixture
def comparing(store, tmp_path):
    """Builds that are to be compared before they are shown; what they said is in `said`."""
    said = []

    def begin(compare: bool = True) -> ShadowBuild:
        targets = {"orders": {0: 100}}
        made = ShadowBuild(
            store, SCHEMA, "new", data=tmp_path, targets=targets, compare=compare, say=said.append
        )
        made.said = said
        return made

    return begin


def test_a_build_that_differs_waits_and_is_kept_up_to_date_until_it_is_approved(store, comparing, tmp_path):
    build = comparing()
    build.apply("counts", batch(0, [row("a", 1), row("c", 3)], next_offset=100))
    assert not build.is_shown and shown(store) == {"a": 1, "b": 2}
    found = Rebuilds(tmp_path).compared("counts")
    assert (found.changed, found.added, found.removed, found.newer_records) == (0, 1, 1, 0)
    build.apply("counts", batch(1, [row("d", 4)], next_offset=120))
    build.close()
    again = comparing(compare=False)  # started without the flag: it waits all the same
    again.show_if_caught_up()
    again.show_or_hold()
    assert shown(store) == {"a": 1, "b": 2} and len(again.said) == 1
    Rebuilds(tmp_path).approve("counts")
    again.show_if_caught_up()
    assert again.is_shown and shown(store) == {"a": 1, "c": 3, "d": 4}
    assert Rebuilds(tmp_path).views() == []


def test_a_build_in_which_nothing_differs_is_shown_at_once(store, comparing, tmp_path):
    build = comparing()
    build.apply("counts", batch(0, [row("a", 1), row("b", 2)], next_offset=100))
    assert build.is_shown and store.reflected("counts").query_id == "new"
    assert build.said == ["view counts: rebuilt, and nothing differs"]
    assert Rebuilds(tmp_path).views() == []
