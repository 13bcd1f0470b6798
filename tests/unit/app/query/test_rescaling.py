"""State that is spread over another number of buckets: whole at every moment, whatever is cut off."""

import contextlib
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace import App, agg, crash_points, tumbling
from headrace.app.plan.plan import plan_stream
from headrace.app.query.checkpoint.manifest import Manifest
from headrace.app.query.checkpoint.rescaling import state_of_stream, with_buckets
from headrace.streams import NO_WATERMARK
from headrace.streams.engine import BucketFiles, rescale
from headrace.streams.engine.state.log import append, load
from headrace.streams.engine.state.rescaling import overlapping
from headrace.streams.operators import buckets as buckets_of

QUERY, ROWS = "q", 500
POINTS = ("bucket rescaled", "state written", "state renamed", "rescaled", "old state aside")


@pytest.fixture(scope="module")
def stream():
    app = App("shop")
    orders = app.stream("orders", schema="customer long")
    result = orders.window(tumbling("1 minute"), by="customer").agg(n=agg.count())
    app.view(name="counts")(lambda: result)
    return plan_stream(orders, {"counts": (app.views["counts"], result)})


def rows():
    numbers = pa.array(range(ROWS), pa.int64())
    return pa.table(
        {
            "customer": numbers,
            "_partition": pa.repeat(pa.scalar(0, pa.int32()), ROWS),
            "_offset": numbers,
            "_event_time": numbers,
            "_watermark": pa.repeat(pa.scalar(None, pa.int64()), ROWS),
        }
    )


@pytest.fixture
def folder(stream, tmp_path) -> Path:
    """A query of 8 buckets, one batch of which is done."""
    folder = tmp_path / "orders"
    manifest = Manifest(query_id=QUERY, buckets=8, query={})
    manifest.write(folder)
    (folder / "checkpoint" / "commits").mkdir(parents=True)
    (folder / "checkpoint" / "commits" / "0").write_text("v1\n{}")
    plan = stream.plan(8)
    (operator,) = plan.stateful.values()
    partial = operator.partial(rows(), operator.classify(rows()))
    places = buckets_of(partial, operator.keys, 8)
    for bucket in range(8):
        log = BucketFiles(folder / "checkpoint" / "buckets", bucket, QUERY)
        copy = load(log, plan.new_states, None, 0, NO_WATERMARK)
        step = copy.states[0].advance([partial.filter(pa.array(places == bucket))], None)
        append(log, copy, 0, [step.delta])
    return folder


def held(stream, folder):
    """The customers of each bucket, as the next batch would find them."""
    manifest, plan = Manifest.read(folder), stream.plan(1)
    found = []
    for bucket in range(manifest.buckets):
        log = BucketFiles(folder / "checkpoint" / "buckets", bucket, QUERY)
        copy = load(log, plan.new_states, None, 1, NO_WATERMARK)
        (operator,) = plan.stateful.values()
        tables = [table for table in copy.states[0]._tables() if table.num_rows]
        for table in tables:
            assert set(buckets_of(table, operator.keys, manifest.buckets)) == {bucket}
        found.append(sorted(each for table in tables for each in table["customer"].to_pylist()))
    return found


@pytest.mark.parametrize("count", [1, 3, 8, 32, 500])
def test_every_key_is_in_its_bucket_and_only_there(stream, folder, count):
    told = []
    manifest = with_buckets(folder, Manifest.read(folder), state_of_stream(stream), count, told.append)
    found = held(stream, folder)
    assert len(found) == manifest.buckets == Manifest.read(folder).buckets == count
    assert sorted(each for bucket in found for each in bucket) == list(range(ROWS))
    assert told == ([] if count == 8 else [f"orders: state is spread over {count} buckets instead of 8"])
    assert sorted(path.name for path in (folder / "checkpoint").iterdir()) == ["buckets", "commits"]


def test_there_and_back_again_is_the_same_state(stream, folder):
    before = held(stream, folder)
    for count in (32, 5, 8):
        with_buckets(folder, Manifest.read(folder), state_of_stream(stream), count, lambda _: None)
    assert held(stream, folder) == before


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("times", [1, 2])
def test_what_was_cut_off_is_finished_or_never_happened(stream, folder, point, times, monkeypatch):
    left = [times]

    def fail(reached):
        left[0] -= reached == point
        if left[0] == 0:
            raise KeyboardInterrupt(point)

    monkeypatch.setattr(crash_points, "_watchers", [fail])
    with contextlib.suppress(KeyboardInterrupt):
        with_buckets(folder, Manifest.read(folder), state_of_stream(stream), 5, lambda _: None)
    monkeypatch.setattr(crash_points, "_watchers", [])
    manifest = with_buckets(folder, Manifest.read(folder), state_of_stream(stream), None, lambda _: None)
    found = held(stream, folder)
    assert len(found) == manifest.buckets
    assert sorted(each for bucket in found for each in bucket) == list(range(ROWS))
    assert sorted(path.name for path in (folder / "checkpoint").iterdir()) == ["buckets", "commits"]


def test_a_batch_that_tasks_write_is_finished_with_the_buckets_it_began_with(stream, folder):
    told, manifest = [], replace(Manifest.read(folder), slots=2)
    offsets = folder / "checkpoint" / "offsets"
    offsets.mkdir()
    (offsets / "1").write_text("v1\n{}\n{}")
    assert with_buckets(folder, manifest, state_of_stream(stream), 3, told.append) == manifest
    assert told == ["orders: a batch is under way; start once more to spread state over 3 buckets"]
    (offsets / "1").unlink()
    assert with_buckets(folder, manifest, state_of_stream(stream), 3, told.append).buckets == 3


def test_a_query_without_a_batch_has_nothing_to_spread(stream, folder):
    shutil.rmtree(folder / "checkpoint")
    manifest = with_buckets(folder, Manifest.read(folder), state_of_stream(stream), 3, lambda _: None)
    assert (manifest.buckets, Manifest.read(folder).buckets) == (3, 3)


def test_buckets_of_hashes_overlap_as_their_ranges_do():
    assert [list(overlapping(each, 3, 3)) for each in range(3)] == [[0], [1], [2]]
    assert [list(overlapping(each, 2, 8)) for each in range(2)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert [list(overlapping(each, 3, 2)) for each in range(3)] == [[0], [0, 1], [1]]
    assert {each for bucket in range(32) for each in overlapping(bucket, 32, 7)} == set(range(7))


def test_nothing_is_spread_that_is_not_there(stream, tmp_path):
    old, new = [BucketFiles(tmp_path / "old", 0, QUERY)], [BucketFiles(tmp_path / "new", 0, QUERY)]
    with pytest.raises(Exception, match="the state behind batch 3 is not there"):
        list(rescale(old, new, 3, stream.plan(1).new_states, [[("customer",)]], NO_WATERMARK))
