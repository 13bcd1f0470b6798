"""A query copied to a snapshot and back, cut off at every step: whole, or made again by the same call."""

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from headrace import crash_points
from headrace.app.options import RunOptions
from headrace.app.query.checkpoint import (
    Manifest,
    UrlCheckpoints,
    forget_unbegun,
    newest_queries,
)
from headrace.app.query.checkpoint.rescaling import QueryState, StageState
from headrace.app.query.checkpoint.spark_checkpoint import is_under_way
from headrace.app.snapshot import open_place, restore_snapshot, take_snapshot
from headrace.app.snapshot.source import queries_at_url, queries_in_folder
from headrace.errors import ConfigError
from headrace.streams import NO_WATERMARK
from headrace.streams.engine import BucketFiles
from headrace.streams.engine.state.log import append, load

QUERY, BUCKETS, BATCHES = "q1", 4, 3
POINTS = ("state written", "state renamed", "state copied", "query copied", "snapshot copied")
BACK = ("state written", "state renamed", "state restored", "query restored")


class Rows:
    """A state of one bucket: the batches that it has seen."""

    def __init__(self):
        self.seen = []

    def held(self):
        return ()

    def snapshot(self):
        return b",".join(self.seen)

    def replay(self, stored):
        self.seen += stored.split(b",")


@pytest.fixture
def data(tmp_path):
    """A query of a stream and one of a dataflow of two stages, three batches of which are done."""
    data = tmp_path / "data"
    for name, stages in (("queries/orders", ["buckets"]), ("dataflows/joined", ["stages/0", "stages/1"])):
        folder = data / name
        query = f"{QUERY}.{folder.name}".replace(".", "-")
        Manifest(query_id=query, buckets=BUCKETS, query={"a": 1}, slots=2).write(folder)
        checkpoint = folder / "checkpoint"
        for stage in stages:
            for bucket in range(BUCKETS):
                log = BucketFiles(checkpoint / stage, bucket, query)
                for batch in range(BATCHES):
                    copy = load(log, lambda: [Rows()], None, batch, NO_WATERMARK)
                    delta = f"{stage}/{bucket}/{batch}".encode()
                    copy.states[0].replay(delta)
                    append(log, copy, batch, [delta])
        (checkpoint / "metadata").write_text('{"id": "x"}')
        for kind in ("offsets", "commits"):
            (checkpoint / kind).mkdir()
            for batch in range(BATCHES):
                (checkpoint / kind / str(batch)).write_text(f'v1\n{{}}\n{{"next": {{"0": {batch}}}}}')
    return data


def take(data, to):
    options = RunOptions(data=data) if isinstance(data, Path) else RunOptions(data=Path("none"), url=data)
    return take_snapshot(
        "shop", options, open_place("--to", str(to)), left_behind={}, on_query=lambda _: None
    )


def back(snapshot, data, url=None):
    options = RunOptions(data=data, url=url, from_snapshot=str(snapshot))
    restore_snapshot("shop", options, lambda _: None)


def held(queries):
    """What is in each bucket, as the next batch would find it; and where Spark goes on."""
    found = {}
    for query in queries:
        for place in query.record.tokens:
            stage, bucket = map(int, place.split("/"))
            log = query.state(stage, bucket)
            copy = load(log, lambda: [Rows()], None, query.record.batch, NO_WATERMARK)
            found[query.name, place] = (tuple(copy.states[0].seen), copy.head.token)
        found[query.name] = (query.manifest, query.record.batch, dict(query.record.files))
    return found


@contextlib.contextmanager
def cut_off(monkeypatch, point, times):
    left = [times]

    def fail(reached):
        left[0] -= reached == point
        if left[0] == 0:
            raise KeyboardInterrupt(point)

    with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(crash_points, "_watchers", [fail])
        yield


def test_a_snapshot_of_a_folder_is_that_folder_again_and_at_a_url(data, tmp_path):
    taken = take(data, tmp_path / "snapshot")
    assert [(each.name, each.batch, each.buckets, each.is_under_way) for each in taken.queries] == [
        ("queries/orders", 2, BUCKETS, False),
        ("dataflows/joined", 2, BUCKETS, False),
    ]
    assert all(each.state_bytes for each in taken.queries)
    expected = held(queries_in_folder(data))
    for name in ("queries/orders", "dataflows/joined"):  # Spark asks for the offsets of two batches
        assert expected[name][2].keys() == {"metadata", "offsets/2", "offsets/1", "commits/2"}
    assert len(expected) == 3 * BUCKETS + 2
    back(tmp_path / "snapshot", tmp_path / "folder")
    assert held(queries_in_folder(tmp_path / "folder")) == expected
    url = (tmp_path / "url").as_uri()
    back(tmp_path / "snapshot", tmp_path / "cache", url)
    assert held(queries_at_url(open_place("", url))) == expected
    assert not any((tmp_path / "cache").glob("*"))
    take(url, tmp_path / "second")  # and once more, from there
    back(tmp_path / "second", tmp_path / "third")
    assert held(queries_in_folder(tmp_path / "third")) == expected


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("times", [1, 2])
def test_a_snapshot_that_was_cut_off_is_none_and_is_made_again(data, tmp_path, point, times, monkeypatch):
    with cut_off(monkeypatch, point, times):
        take(data, tmp_path / "snapshot")
    if not (tmp_path / "snapshot" / "snapshot.json").exists():
        with pytest.raises(ConfigError, match="there is no complete snapshot"):
            back(tmp_path / "snapshot", tmp_path / "folder")
        take(data, tmp_path / "snapshot")
    back(tmp_path / "snapshot", tmp_path / "folder")
    assert held(queries_in_folder(tmp_path / "folder")) == held(queries_in_folder(data))


@pytest.mark.parametrize("point", BACK)
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("at_url", [True, False])
def test_a_start_that_was_cut_off_is_repeated(data, tmp_path, point, times, at_url, monkeypatch):
    take(data, tmp_path / "snapshot")
    url = (tmp_path / "url").as_uri() if at_url else None
    with cut_off(monkeypatch, point, times):
        back(tmp_path / "snapshot", tmp_path / "folder", url)
    back(tmp_path / "snapshot", tmp_path / "folder", url)
    found = queries_at_url(open_place("", url)) if at_url else queries_in_folder(tmp_path / "folder")
    assert held(found) == held(queries_in_folder(data))


def test_a_copy_that_has_gone_on_is_not_overwritten_and_nothing_else_is(data, tmp_path):
    take(data, tmp_path / "snapshot")
    back(tmp_path / "snapshot", tmp_path / "folder")
    gone_on = tmp_path / "folder" / "queries" / "orders" / "checkpoint" / "offsets" / "3"
    gone_on.write_text("v1")
    back(tmp_path / "snapshot", tmp_path / "folder")
    assert gone_on.exists()
    take(data, tmp_path / "another")
    for place in (tmp_path / "folder", data):
        with pytest.raises(ConfigError, match="has the checkpoints of an application already; omit --from"):
            back(tmp_path / "another", place)
    with pytest.raises(ConfigError, match=r"there is a snapshot of shop at .* already; name another place"):
        take(data, tmp_path / "another")
    with pytest.raises(ConfigError, match="is of shop, and this application is other"):
        restore_snapshot("other", RunOptions(data=tmp_path, from_snapshot=str(tmp_path / "another")), print)


def test_a_batch_that_is_under_way_is_in_the_snapshot_and_one_that_was_not_begun_is_not(data, tmp_path):
    for name in ("queries/orders", "dataflows/joined"):
        (data / name / "checkpoint" / "offsets" / "3").write_text("v1\nplanned")
    assert forget_unbegun(data / "queries" / "orders", 2)
    assert not forget_unbegun(data / "dataflows" / "joined", 3)  # it failed half-way
    taken = take(data, tmp_path / "snapshot")
    assert [each.is_under_way for each in taken.queries] == [False, True]
    back(tmp_path / "snapshot", tmp_path / "folder")
    found = [tmp_path / "folder" / name for name in ("queries/orders", "dataflows/joined")]
    assert [is_under_way(each) for each in found] == [False, True]


def test_plain_dataframes_are_refused(data, tmp_path):
    (data / "frames" / "view").mkdir(parents=True)
    with pytest.raises(ConfigError, match="views of plain DataFrames"):
        take(data, tmp_path / "snapshot")


@pytest.mark.parametrize("point", [None, "bucket rescaled", "rescaled"])
def test_state_at_a_url_is_spread_by_one_record(data, tmp_path, point, monkeypatch):
    """Until the record is there, the state is that of before; from then on the new one, whoever looks."""
    take(data, tmp_path / "snapshot")
    url = (tmp_path / "url").as_uri()
    back(tmp_path / "snapshot", tmp_path / "local", url)
    checkpoints = UrlCheckpoints(url, tmp_path / "local")
    checkpoints.pull()
    checkpoints.claimed(1)
    folder = tmp_path / "local" / "queries" / "orders"
    stage = StageState(folder="", new_states=lambda: [Rows()], keys=[None])
    state = QueryState(folder="buckets", stages=[stage], lowest_us=NO_WATERMARK)
    manifest = Manifest.read(folder)
    with cut_off(monkeypatch, point, 2 if point == "bucket rescaled" else 1):
        changed = checkpoints.spread(folder, manifest, state, 8)
        assert changed == replace(manifest, buckets=8)
    found = {each.name: each for each in newest_queries(open_place("", url))}["queries/orders"]
    is_new = point != "bucket rescaled"
    assert found.manifest.buckets == len(found.record.tokens) == (8 if is_new else BUCKETS)
    query = next(each for each in queries_at_url(open_place("", url)) if each.name == "queries/orders")
    seen = {each for name, value in held([query]).items() if len(name) == 2 for each in value[0]}
    assert seen == {f"buckets/{bucket}/{batch}".encode() for bucket in range(BUCKETS) for batch in range(3)}
