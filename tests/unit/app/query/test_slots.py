"""How many tasks write: as many as are wanted, but never another number while a batch is under way."""

import pytest

from headrace.app.query.checkpoint.manifest import Manifest
from headrace.app.query.checkpoint.slots import buckets_for, slot_name, with_slots


@pytest.fixture
def query(tmp_path):
    """The folder of a query whose third batch was begun and is not done."""
    for name, batches in (("offsets", 3), ("commits", 2)):
        folder = tmp_path / "checkpoint" / name
        folder.mkdir(parents=True)
        for batch in range(batches):
            (folder / str(batch)).touch()
    return tmp_path


def finish(query):
    (query / "checkpoint" / "commits" / "2").touch()


def test_a_batch_that_is_under_way_is_finished_by_as_many_as_began_it(query):
    manifest, said = Manifest.new({}, 8), []
    assert with_slots(manifest, query, 4, said.append) is manifest and manifest.slots == 0
    assert "written by the driver; after another start, by 4 tasks" in said[0]
    finish(query)
    changed = with_slots(manifest, query, 4)
    assert changed.slots == 4 and Manifest.read(query) == changed


def test_the_number_is_kept_across_starts_and_may_change_between_batches(query):
    finish(query)
    first = with_slots(Manifest.new({}, 8), query, 4)
    assert with_slots(Manifest.read(query), query, 4) == first
    assert with_slots(first, query, 2).slots == 2
    assert with_slots(first, query, 0).slots == 0
    (query / "checkpoint" / "offsets" / "3").touch()
    assert with_slots(Manifest.read(query), query, 4).slots == 0


def test_a_query_that_begins_has_as_many_as_are_wanted_and_no_more_than_buckets(tmp_path):
    assert with_slots(Manifest.new({}, 8), tmp_path, 3).slots == 3
    assert with_slots(Manifest.new({}, 8), tmp_path, 100).slots == 8


def test_a_local_spark_has_few_buckets_and_a_cluster_enough_for_all_its_tasks():
    assert buckets_for(None) == 8
    assert [buckets_for(tasks) for tasks in (1, 2, 3, 8, 100)] == [8, 8, 9, 16, 200]
    assert all(buckets_for(tasks) % tasks == 0 for tasks in range(1, 300)), "every task has as many"


def test_no_slot_has_the_name_of_another_query():
    assert len({slot_name(name, slot) for name in ("a", "a-b", "a.1", "a1") for slot in range(12)}) == 48
