"""Checkpoints and state in an object store: a driver comes back on another machine by its URL alone."""

import contextlib
import os
import shutil

import pytest
from app_runs import event, new_topic, options, rows, send, traffic
from topics import create_topic

from headrace import App, agg, tumbling
from headrace.app.run.runner import running
from headrace.app.status import STOPPED, FollowedFolder, is_running, read_description, read_status
from headrace.app.verify import verified
from headrace.errors import ConfigError
from headrace.objects import open_objects
from headrace.streams import local_spark
from headrace.testing.s3 import S3_ENVIRONMENT, s3_server

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]


@pytest.fixture(scope="module")
def bucket():
    """An S3, known also to the Python workers of a Spark that is there already."""
    pytest.importorskip("moto", reason="moto is not installed; `make setup` does so")
    with s3_server() as url:
        workers = local_spark("urls").sparkContext.environment
        workers.update({name: os.environ[name] for name in S3_ENVIRONMENT})
        yield url
        for name in S3_ENVIRONMENT:
            del workers[name]


def windows_and_groups(topic):
    """Windows, which are a stream's query, and groups over a join, which are a dataflow of two stages."""
    app = App(f"app-{topic}")
    common = {"lateness": "1 second", "partitions": 2, "idle_after": "10 minutes"}
    events = app.stream(topic, schema="place string, amount double, at long", event_time="at", **common)
    kinds = app.table(
        f"{topic}-kinds",
        key="place",
        schema="place string, kind string, since long",
        valid_from="since",
        **common,
    )
    windows = events.window(tumbling("10 seconds"), by="place").agg(n=agg.count(), total=agg.sum("amount"))
    app.topic(f"{topic}-counts")(lambda: windows)
    groups = events.join(kinds, on="place").group_by("kind").agg(n=agg.count(), total=agg.sum("amount"))
    app.topic(f"{topic}-groups")(lambda: groups)
    return app


def run_to_the_end(app, log, data, url, **fields):
    with running(app, options(log, data, url=url, until_caught_up=True, **fields)) as started:
        assert started.wait(150)


def test_a_driver_goes_on_elsewhere_from_what_it_finds_at_the_url(our_log, bucket, tmp_path):
    topic = new_topic()
    create_topic(our_log, 2, topic)
    create_topic(our_log, 2, f"{topic}-kinds")
    url, app = f"{bucket}/{topic}", windows_and_groups(topic)
    for partition in (0, 1):
        kinds = [{"place": each, "kind": each[:1], "since": 0} for each in ("here", "there", "elsewhere")]
        last = {"place": "nowhere", "kind": "n", "since": event(1000)["at"]}
        send(our_log, f"{topic}-kinds", [*kinds, last], partition)
    for part in range(2):
        for partition in (0, 1):
            found = traffic(2 * part + partition, first=part * 60, until=(55, 1000)[part])
            send(our_log, topic, found, partition)
        run_to_the_end(app, our_log, tmp_path / str(part), url)
        shutil.rmtree(tmp_path / str(part))
    verdicts = list(verified(app, options(our_log, tmp_path / "nothing", url=url)))
    assert len(verdicts) == 2
    assert all(each.is_equal and each.rows > 1 for each in verdicts), verdicts
    with contextlib.closing(FollowedFolder(url)) as followed:
        assert not is_running(followed.path)
        described, status = read_description(followed.path), read_status(followed.path)
        assert described is not None and {each.topic for each in described.streams} == {topic}
        assert {each.state for each in status.queries.values()} == {STOPPED}
    objects = open_objects(url)
    kept = [name.rpartition("/")[2].partition(".")[0] for name in objects.names("checkpoints/queries")]
    assert kept.count("manifest") == 1
    assert not objects.names("probes")


def test_parquet_views_in_the_object_store_go_on_with_the_next_driver(our_log, bucket, tmp_path):
    topic = new_topic()
    create_topic(our_log, 2, topic)
    url, store = f"{bucket}/{topic}", f"parquet+{bucket}/{topic}-views"
    app = App(f"app-{topic}", store=store)
    common = {"lateness": "1 second", "partitions": 2, "idle_after": "10 minutes"}
    events = app.stream(topic, schema="place string, amount double, at long", event_time="at", **common)

    @app.view
    def counts():
        windows = events.window(tumbling("10 seconds"), by="place", emit="update")
        return windows.agg(n=agg.count(), total=agg.sum("amount"))

    for part in range(2):
        for partition in (0, 1):
            found = traffic(2 * part + partition, first=part * 60, until=(55, 1000)[part])
            send(our_log, topic, found, partition)
        run_to_the_end(app, our_log, tmp_path / str(part), url, sinks="executors")
        shutil.rmtree(tmp_path / str(part))
    (verdict,) = verified(app, options(our_log, tmp_path / "nothing", url=url))
    assert verdict.is_equal and verdict.rows > 10, verdict
    versions = open_objects(f"{bucket}/{topic}-views").names("counts/manifests")
    epochs = {name.rpartition("/")[2].partition(".")[0] for name in versions}
    assert len(versions) <= 4 and max(epochs) == "00000002", versions
    assert len(rows(store)) == verdict.rows


def test_views_on_the_drivers_own_machine_are_refused(our_log, bucket, tmp_path):
    app = App(f"app-{new_topic()}")
    events = app.stream(new_topic(), schema="place string, amount double, at long", event_time="at")

    @app.view
    def counts():
        return events.window(tumbling("10 seconds"), by="place").agg(n=agg.count())

    with pytest.raises(ConfigError, match=r"view 'counts' is kept on this machine \(sqlite\)"):
        run_to_the_end(app, our_log, tmp_path / "data", f"{bucket}/refused")
    assert not open_objects(f"{bucket}/refused").names("checkpoints")
