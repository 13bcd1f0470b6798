"""An application moves: to other places, other numbers of buckets, while it runs; nothing is read twice."""

import os
import threading

import pytest
from app_runs import TIMEOUT_S, event, kept_running, new_topic, options, send, traffic
from test_urls import windows_and_groups
from topics import create_topic

from headrace.app.query.checkpoint import Manifest
from headrace.app.query.checkpoint.spark_checkpoint import is_under_way
from headrace.app.run.runner import running
from headrace.app.snapshot import open_place, stopped, take_snapshot
from headrace.app.status import is_running
from headrace.app.verify import verified
from headrace.errors import ConfigError
from headrace.streams import local_spark
from headrace.testing.s3 import S3_ENVIRONMENT, s3_server

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]


@pytest.fixture(scope="module")
def bucket():
    pytest.importorskip("moto", reason="moto is not installed; `make setup` does so")
    with s3_server() as url:
        workers = local_spark("urls").sparkContext.environment
        workers.update({name: os.environ[name] for name in S3_ENVIRONMENT})
        yield url
        for name in S3_ENVIRONMENT:
            del workers[name]


class Places:
    """Where an application has been: each place a folder of this machine, or a URL."""

    def __init__(self, app, log, folder, bucket):
        self.app, self.log, self.folder, self.bucket = app, log, folder, bucket
        self.read = 0  # records, by all runs
        self.queries = set()  # that have read any

    def options(self, place, **fields):
        url = f"{self.bucket}/{place}" if self.bucket and place.startswith("url") else None
        return options(self.log, self.folder / place, url=url, **fields)

    def count(self, report):
        self.read += report.records
        self.queries |= {report.query} if report.records else set()

    def run(self, place, **fields):
        options = self.options(place, until_caught_up=True, **fields)
        with running(self.app, options, on_batch=self.count) as started:
            assert started.wait(TIMEOUT_S)

    def snapshot(self, place, name):
        with stopped(self.options(place), TIMEOUT_S, print) as left_behind:
            to = open_place("--to", self.place(name))
            return take_snapshot(
                self.app.name, self.options(place), to, left_behind=left_behind, on_query=print
            )

    def place(self, name):
        return f"{self.bucket}/{name}" if name.startswith("url") else str(self.folder / name)

    def require_equal(self, place):
        verdicts = list(verified(self.app, self.options(place)))
        assert len(verdicts) == 2
        assert all(each.is_equal and each.rows > 1 for each in verdicts), verdicts


def fill(log, topic, part, parts=3):
    for partition in (0, 1):
        values = traffic(
            2 * part + partition, first=part * 60, until=(part + 1) * 55 if part < parts - 1 else 1000
        )
        send(log, topic, values, partition)
    return 2 * len(values)


@pytest.fixture
def topic(our_log):
    topic = new_topic()
    create_topic(our_log, 2, topic)
    create_topic(our_log, 2, f"{topic}-kinds")
    for partition in (0, 1):
        kinds = [{"place": each, "kind": each[:1], "since": 0} for each in ("here", "there", "elsewhere")]
        last = {"place": "nowhere", "kind": "n", "since": event(1000)["at"]}
        send(our_log, f"{topic}-kinds", [*kinds, last], partition)
    return topic


@pytest.mark.timeout(1800)
def test_an_application_goes_from_a_folder_to_a_url_and_back_with_other_buckets(
    our_log, bucket, topic, tmp_path
):
    app = windows_and_groups(topic)
    places = Places(app, our_log, tmp_path, bucket)
    sent = fill(our_log, topic, 0)
    places.run("first")
    taken = [places.snapshot("first", "url-one")]
    sent += fill(our_log, topic, 1)
    places.run("url-second", from_snapshot=places.place("url-one"), buckets=32)
    taken.append(places.snapshot("url-second", "two"))
    sent += fill(our_log, topic, 2)
    places.run("third", from_snapshot=places.place("two"), buckets=8)
    places.require_equal("third")
    assert [{each.buckets for each in snapshot.queries} for snapshot in taken] == [{8}, {32}]
    ids = [{each.query for each in snapshot.queries} for snapshot in taken]
    found = [Manifest.read(path.parent) for path in (tmp_path / "third").rglob("manifest.json")]
    assert ids[0] == ids[1] == {each.query_id for each in found}
    assert {each.buckets for each in found} == {8}
    assert places.read == 2 * sent + 8, "something was read twice"  # by windows and groups; and the kinds
    for place in ("first", "url-second"):  # the application has gone on elsewhere since then
        with pytest.raises(ConfigError, match="it is an older copy"):
            places.run(place)
    with pytest.raises(ConfigError, match="it is an older copy"):
        places.run("fourth", from_snapshot=places.place("two"))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("place", ["first", "url-first"])
def test_a_running_application_stops_between_batches_and_its_tasks_may_be_others(
    our_log, bucket, topic, tmp_path, place
):
    """Tasks write themselves, so that a batch under way could not be divided anew."""
    app = windows_and_groups(topic)
    places = Places(app, our_log, tmp_path, bucket)
    ended = threading.Event()

    def keep_sending():
        part = 0
        while not ended.wait(0.2):
            place = ("here", "elsewhere")[part // 2 % 2]
            send(our_log, topic, [event(part + each / 10, place) for each in range(10)], part % 2)
            part += 1

    sender = threading.Thread(target=keep_sending)
    sender.start()
    taken = []
    try:
        fields = {"sinks": "executors", "buckets": 4, "url": places.options(place).url}
        with kept_running(app, our_log, tmp_path / place, places.count, **fields) as started:
            while len(places.queries) < 2:
                assert not started.wait(0.1)
            asking = threading.Thread(target=lambda: taken.append(places.snapshot(place, "snapshot")))
            asking.start()
            assert not started.wait(TIMEOUT_S), "the queries ended by themselves"
            assert not any(each.spark_query.isActive for each in started.queries.values())
        asking.join()
    finally:
        ended.set()
        sender.join()
    assert not is_running(tmp_path / place)
    assert [each.is_under_way for each in taken[0].queries] == [False, False]
    assert all(each.batch >= 0 for each in taken[0].queries)
    send(our_log, topic, [event(1000)], 0)
    send(our_log, topic, [event(1000)], 1)
    said = []
    fields = {"from_snapshot": places.place("snapshot"), "buckets": 6, "sinks": "executors"}
    options = places.options("second", until_caught_up=True, **fields)
    with running(app, options, on_message=said.append) as started:
        assert started.wait(TIMEOUT_S)
    assert sum("state is spread over 6 buckets instead of 4" in each for each in said) == 2, said
    assert not any(is_under_way(each.parent) for each in (tmp_path / "second").rglob("manifest.json"))
    places.require_equal("second")
