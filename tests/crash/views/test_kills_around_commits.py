"""A writer killed at every named step around a commit, on every store; each result is there once.

The process that follows repeats the batch in which its predecessor died, as Spark does.
Named invariant: EachRecordOnceInSink.
"""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from view_stores import COUNTS, new_name
from writer import REGIONS, content, records

from headrace.client import EARLIEST, LATEST, RawFetcher
from headrace.crash_points import STORE_POINTS
from headrace.records import decode_columns
from headrace.views import ChangeKind, open_store

pytestmark = pytest.mark.xdist_group("stores")

STORES = {
    "sqlite": ("begun", "rows written", "ledger written", "committed"),
    "postgresql": ("begun", "rows written", "ledger written", "committed"),
    "parquet": ("begun", "rows written", "ledger written", "committed", "tidied"),
    "topic": ("begun", "rows written", "ledger written", "committed"),
}
BATCHES = 6
WRITER = Path(__file__).parent / "writer.py"


def each_record_once_in_sink(store, batches):
    """EachRecordOnceInSink: the view is what its batches make of it, each taken once; so are its counters."""
    expected = {}
    for number in range(batches):
        changes = content(number, "q").changes.to_pylist()
        for change in changes:
            key = (change["region"], change["window_start"])
            if change["kind"] == ChangeKind.RETRACTION:
                expected.pop(key, None)
            else:
                expected[key] = change["after"]
    found = store.snapshot("counts")
    rows = {(each["region"], each["window_start"]): each for each in found.rows.to_pylist()}
    assert rows == expected and found.rows.num_rows == len(expected)
    assert found.reflected.batch_id == batches - 1
    assert found.reflected.counters == {"on_time": REGIONS * batches}
    assert found.reflected.offsets == {"t": {0: 10 * batches}}


def run(order):
    """The batches that were written, with what `apply` said; and whether the writer was killed."""
    done = subprocess.run(
        [sys.executable, WRITER, json.dumps(order)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.returncode != 0


@pytest.fixture(params=STORES)
def url(request, tmp_path):
    match request.param:
        case "sqlite":
            return f"sqlite:///{tmp_path}/views.db"
        case "parquet":
            return f"parquet:///{tmp_path}/views"
        case "postgresql":
            return request.getfixturevalue("postgres").url()
        case "topic":
            bootstrap = request.getfixturevalue("our_log").bootstrap_servers
            return f"topic://{new_name('crash')}.*?bootstrap={bootstrap}&partitions=2"


def steps_of(url):
    return STORES[url.partition("://")[0]]


def survive(url, kills):
    """Writes on through all kills, then to the end; every batch that was repeated said whether it was new."""
    order = {"what": "view", "url": url, "query": "q", "to": BATCHES, "batch": -1, "step": ""}
    start = 0
    for number, step in kills:
        _, killed = run({**order, "from": start, "batch": number, "step": step})
        assert killed, f"nobody reached {step!r} of batch {number}"
        start = number
    told, killed = run({**order, "from": start})
    assert not killed
    if kills:
        number, step = kills[-1]
        committed = STORE_POINTS.index(step) >= STORE_POINTS.index("committed")
        assert told[0] == [number, not committed], f"after {step!r}"


def test_a_kill_at_each_step_of_a_batch_leaves_each_result_once(url):
    """One life after the other, each ended at the next step of the next batch."""
    survive(url, [(number + 1, step) for number, step in enumerate(steps_of(url))])
    store = open_store(url)
    each_record_once_in_sink(store, BATCHES)
    assert store.schema("counts") == COUNTS
    store.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_many_kills_one_after_the_other(url, seed):
    """The same batch may be cut off again and again."""
    print("seed", seed)
    chosen, kills, number = random.Random(seed), [], 0
    while number < BATCHES:
        step = chosen.choice(steps_of(url))
        kills.append((number, step))
        # A batch that is in cannot be killed again: its steps are not reached.
        number += 1 if STORE_POINTS.index(step) >= STORE_POINTS.index("committed") else chosen.randint(0, 1)
    survive(url, kills)
    store = open_store(url)
    each_record_once_in_sink(store, BATCHES)
    store.close()


@pytest.mark.parametrize(
    "url",
    ["sqlite", "parquet", *(pytest.param(each, marks=pytest.mark.slow) for each in ("postgresql", "topic"))],
    indirect=True,
)
def test_a_kill_in_the_first_batch_of_a_rebuild_leaves_the_old_view_or_the_new_one(url):
    base = {"what": "view", "url": url, "batch": -1, "step": ""}
    run({**base, "query": "old", "from": 0, "to": 3})
    store = open_store(url)
    before = store.read("counts")
    rebuild = {**base, "query": "q", "from": 0, "to": BATCHES, "batch": 0}
    run({**rebuild, "step": "ledger written"})
    assert store.read("counts").equals(before)
    run({**rebuild, "step": "committed"})
    run({**rebuild, "batch": -1})
    each_record_once_in_sink(store, BATCHES)
    store.close()


def test_records_are_on_their_topic_once_whatever_step_the_writer_died_at(our_log):
    topic = new_name("crash-records")
    order = {
        "what": "records",
        "bootstrap": our_log.bootstrap_servers,
        "topic": topic,
        "query": "q",
        "to": BATCHES,
        "batch": -1,
        "step": "",
    }
    start = 0
    for number, step in enumerate(STORES["topic"]):
        assert run({**order, "from": start, "batch": number, "step": step})[1]
        start = number
    run({**order, "from": start})
    found = []
    with RawFetcher(our_log) as fetcher:
        starts, ends = fetcher.offsets(topic, EARLIEST), fetcher.offsets(topic, LATEST)
        for partition in starts:
            for data in fetcher.fetch(topic, partition, starts[partition], ends[partition]):
                found += decode_columns(data)["value"].to_pylist()
    expected = [each.value for number in range(BATCHES) for each in records(topic, number)]
    assert sorted(found) == sorted(expected), "EachRecordOnceInSink"
