"""Parts of a batch that tasks bring to a store: unseen until the batch is applied, then all at once."""

import pickle

import pytest
from view_stores import COUNTS, MANY_TYPES, batch, changes_of, put, remove, row, same_bits, table, typed_rows

from headrace.errors import ConfigError, FencedError, RetriableError
from headrace.views import StagedChanges, ViewBatch, open_store, written_epoch

pytestmark = pytest.mark.xdist_group("stores")  # one PostgreSQL serves them all


@pytest.fixture(params=["parquet", "parquet by URL", "postgresql"])
def kind(request):
    return request.param


@pytest.fixture
def url(kind, request, tmp_path):
    if kind == "postgresql":
        return request.getfixturevalue("postgres").url()
    return f"parquet:///{tmp_path}/views" if kind == "parquet" else f"parquet+file://{tmp_path}/views"


@pytest.fixture
def store(url):
    opened = open_store(url)
    opened.prepare(COUNTS)
    opened.begin("counts", "q")
    yield opened
    opened.close()


def staged(store, number, *changes, schema=COUNTS):
    """A part as a task brings it, and what the driver is told of it, which is JSON."""
    stager = pickle.loads(pickle.dumps(store.stager(schema)))
    found = stager.stage(table(list(changes), schema), batch_id=number, distinct=True)
    return StagedChanges(changed=found.changed, place=dict(found.place))


def rows(store, view="counts"):
    return sorted((each["region"] or "", each["orders"]) for each in store.read(view).to_pylist())


def left_behind(store, url, kind):
    """Files and tables of parts that no batch has."""
    if kind != "postgresql":
        folder = store._folder("counts")
        return folder.orphans(folder.manifest())
    with store._transaction() as session:
        return [each for each in session.table_names() if each.startswith("headrace_staged")]


def test_parts_are_seen_with_their_batch_and_not_before(store):
    parts = [
        staged(store, 0, put(row("a", 0, 1))),
        staged(store, 0, put(row("b", 0, 2)), put(row("c", 0, 3))),
    ]
    assert rows(store) == []
    assert store.apply("counts", ViewBatch("q", 0, staged=parts, counters={"on_time": 3}))
    assert rows(store) == [("a", 1), ("b", 2), ("c", 3)]
    assert store.reflected("counts").counters == {"on_time": 3}
    assert store.last_sequence("counts") == 3


def test_a_batch_that_is_applied_already_leaves_its_new_parts_alone(store):
    assert store.apply("counts", ViewBatch("q", 0, staged=[staged(store, 0, put(row("a", 0, 1)))]))
    again = staged(store, 0, put(row("a", 0, 1)))
    assert not store.apply("counts", ViewBatch("q", 0, staged=[again]))
    assert rows(store) == [("a", 1)] and store.last_sequence("counts") == 1


def test_rows_are_replaced_and_removed_also_those_whose_key_has_a_null(store):
    first = [
        staged(store, 0, put(row("a", 0, 1)), put(row(None, 0, 2))),
        staged(store, 0, put(row("b", 0, 3))),
    ]
    store.apply("counts", ViewBatch("q", 0, staged=first))
    second = [
        staged(store, 1, remove(row(None, 0, 2)), put(row("a", 0, 10), before=row("a", 0, 1))),
        staged(store, 1, remove(row("b", 0, 3))),
    ]
    store.apply("counts", ViewBatch("q", 1, staged=second))
    assert rows(store) == [("a", 10)]


def test_many_batches_of_many_parts_come_to_what_the_driver_alone_would_have_written(store):
    for number in range(12):
        changed = [
            [put(row(f"r{slot}", each, number)) for each in range(number % 5 + 1)] for slot in range(3)
        ]
        parts = [staged(store, number, *each) for each in changed]
        assert store.apply("counts", ViewBatch("q", number, staged=parts))
    newest = [max(number for number in range(12) if number % 5 >= each) for each in range(5)]
    assert rows(store) == sorted((f"r{slot}", number) for slot in range(3) for number in newest)


def test_every_type_comes_back_as_it_was(store):
    store.prepare(MANY_TYPES)
    store.begin("types", "q")
    given = typed_rows()
    part = store.stager(MANY_TYPES).stage(changes_of(given, MANY_TYPES), batch_id=0, distinct=True)
    store.apply("types", ViewBatch("q", 0, staged=[part]))
    assert same_bits(store.read("types"), given)


def test_what_attempts_that_failed_have_brought_is_removed_in_time(store, url, kind):
    staged(store, 0, put(row("lost", 0, 1)))
    store.apply("counts", ViewBatch("q", 0, staged=[staged(store, 0, put(row("a", 0, 1)))]))
    staged(store, 1, put(row("lost", 0, 2)))
    assert left_behind(store, url, kind)
    if kind != "postgresql":
        store.prepare(COUNTS)  # listed as garbage, for readers of an older manifest
        assert store._folder("counts").manifest().garbage
    else:
        store.begin("counts", "q")
        assert left_behind(store, url, kind) == []
    assert rows(store) == [("a", 1)]


def test_another_query_is_fenced_with_all_its_parts(store):
    part = staged(store, 0, put(row("a", 0, 1)))
    store.begin("counts", "newer")
    with pytest.raises(FencedError):
        store.apply("counts", ViewBatch("q", 0, staged=[part]))
    store.apply("counts", batch(0, put(row("b", 0, 2)), query="newer"))
    assert rows(store) == [("b", 2)]


def test_parts_that_are_gone_are_noticed_and_nothing_of_the_batch_is_applied(store, kind, url):
    parts = [staged(store, 0, put(row("a", 0, 1))), staged(store, 0, put(row("b", 0, 2)))]
    if kind == "parquet":
        (store._folder("counts").path / parts[1].place["rows"]).unlink()
        error, words = ConfigError, "share"
    elif kind == "parquet by URL":
        store._folder("counts").remove([parts[1].place["rows"]])
        error, words = ConfigError, "share"
    else:
        with store._transaction() as session:  # as a server does that comes back from a crash
            session._execute(f'TRUNCATE "{parts[1].place["name"]}_rows"')
        error, words = RetriableError, "lost rows"
    with pytest.raises(error, match=words):
        store.apply("counts", ViewBatch("q", 0, staged=parts))
    assert rows(store) == [] and store.reflected("counts").batch_id == -1


@pytest.mark.parametrize("kind", ["postgresql"], indirect=True)
def test_followers_read_the_changes_of_all_parts_in_one_sequence(store):
    parts = [
        staged(store, 0, put(row("a", 0, 1))),
        staged(store, 0, put(row("b", 0, 2)), put(row("c", 0, 3))),
    ]
    store.apply("counts", ViewBatch("q", 0, staged=parts))
    part = staged(store, 1, put(row("a", 0, 9), before=row("a", 0, 1)))
    store.apply("counts", ViewBatch("q", 1, staged=[part]))
    found = store.changes("counts")
    assert [each.sequence for each in found] == [1, 2, 3, 4]
    assert [(each.batch_id, each.key["region"]) for each in found] == [(0, "a"), (0, "b"), (0, "c"), (1, "a")]
    assert found[-1].before["orders"] == 1 and found[-1].after["orders"] == 9


@pytest.mark.parametrize("kind", ["parquet by URL"], indirect=True)
def test_a_run_that_was_replaced_writes_nothing_that_counts(url, store):
    """Object stores fence nobody: what is written under a lower epoch is seen by no reader."""
    newer = open_store(url, epoch=2)
    older = store._folder("counts")
    store.apply("counts", ViewBatch("q", 0, staged=[staged(store, 0, put(row("a", 0, 1)))]))
    before = older.manifest()
    newer.begin("counts", "q")
    assert rows(newer) == [("a", 1)]
    newer.apply("counts", ViewBatch("q", 1, staged=[staged(newer, 1, put(row("b", 0, 2)))]))
    with pytest.raises(FencedError, match="is written by a newer run of its application"):
        store.apply("counts", ViewBatch("q", 2, staged=[]))
    older._objects.put(f"counts/manifests/{1:08}.{before.number + 100:012}", [before.dumps()])  # it was late
    for reader in (store, newer, open_store(url)):
        assert rows(reader) == [("a", 1), ("b", 2)] and reader.reflected("counts").batch_id == 1
    assert written_epoch(url) == 2


@pytest.mark.parametrize("kind", ["parquet", "parquet by URL"], indirect=True)
def test_parts_of_one_batch_count_as_one_when_files_are_merged_and_the_merge_may_run_elsewhere(store):
    merges = []

    def run(work):
        merges.append(work.__self__)
        return pickle.loads(pickle.dumps(work))()

    store.work_by(run)
    for number in range(3):
        parts = [staged(store, number, put(row(f"r{slot}", number, 1))) for slot in range(4)]
        store.apply("counts", ViewBatch("q", number, staged=parts))
    assert merges == []
    store.apply("counts", ViewBatch("q", 3, staged=[staged(store, 3, put(row("r", 3, 1)))]))
    assert [len(each.parts) for each in merges] == [13]
    assert len(store._folder("counts").manifest().parts) == 1 and len(rows(store)) == 13
