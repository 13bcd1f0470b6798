"""Drivers that are killed, and one that only seemed dead, with nothing shared but a log and an S3."""

import json
import random
import re
import signal
import time
import uuid

import pytest
from tests.crash.cluster.drivers import Driver, committed, verify

from headrace.client import producer
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.testing.s3 import s3_server

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.slow]

BASE_MS = (int(time.time()) // 60 - 60) * 60_000
APP = """
from headrace import App, agg, tumbling
app = App({topic!r})
events = app.stream(
    {topic!r}, schema="place string, amount double, at long", event_time="at", partitions=2,
    lateness="1 second", idle_after="10 minutes",
)
windows = events.window(tumbling("10 seconds"), by="place").agg(n=agg.count(), total=agg.sum("amount"))
app.topic("{topic}-counts")(lambda: windows)
once = events.dedup("place", "amount", within="5 seconds")
app.topic("{topic}-totals")(lambda: once.group_by("place").agg(n=agg.count()))
app.topic("{topic}-copies", key="place")(lambda: events)
"""


def send(log, topic, chance, first, count, last=None):
    client = producer(log)
    for number in range(count):
        at = BASE_MS + round((first + number / 20 - chance.choice((0, 0.5, 3))) * 1000)
        value = {"place": chance.choice("abc"), "amount": chance.randrange(10**6) / 100, "at": at}
        client.produce(topic, json.dumps(value).encode(), partition=number % 2)
    for partition in (0, 1) if last is not None else ():
        value = {"place": "z", "amount": 0, "at": BASE_MS + last * 1000}
        client.produce(topic, json.dumps(value).encode(), partition=partition)
    assert client.flush(60) == 0


def test_killed_and_seemingly_dead_drivers_are_followed_by_others_and_every_record_counts_once(
    our_log, tmp_path
):
    pytest.importorskip("moto", reason="moto is not installed; `make setup` does so")
    seed = random.randrange(10**6)
    print("seed", seed)
    chance, topic, file = random.Random(seed), f"t-{uuid.uuid4().hex[:12]}", tmp_path / "app.py"
    file.write_text(APP.format(topic=topic))
    ensure_topics(our_log, {topic: TopicSettings(partitions=2)})
    started = []
    with s3_server() as bucket:
        url = f"{bucket}/{topic}"

        def start(name, *options):
            started.append(Driver(tmp_path / name, file, our_log.bootstrap_servers, "--data", url, *options))
            return started[-1]

        try:
            send(our_log, topic, chance, 0, 2000)
            killed = start("killed")
            killed.wait_for_records(1000)
            send(our_log, topic, chance, 100, 2000)
            time.sleep(chance.random())  # anywhere in a batch
            killed.signal(signal.SIGKILL)
            frozen = start("frozen")
            frozen.wait_for_records(1)
            send(our_log, topic, chance, 200, 2000)
            time.sleep(chance.random())
            frozen.signal(signal.SIGSTOP)
            owner = start("owner")
            send(our_log, topic, chance, 300, 2000)
            owner.wait_for_records(2000)
            frozen.signal(signal.SIGCONT)
            send(our_log, topic, chance, 400, 2000, last=1000)
            assert frozen.wait() != 0
            assert re.search(r"was started in s3://.*so this run stops", frozen.said)
            assert owner.process.poll() is None
            owner.signal(signal.SIGINT)
            assert owner.wait() == 0, owner.said
            assert start("last", "--until-caught-up").wait() == 0, started[-1].said
            found = verify(file, our_log.bootstrap_servers, url, tmp_path)
            assert "equal" in found
        finally:
            for each in started:
                each.kill()
    sent, copied = values_of(our_log, topic), values_of(our_log, f"{topic}-copies")
    assert (len(sent), copied) == (10_002, sent)


def values_of(log, topic):
    """What the committed records of a topic say, in order of value."""
    values = (json.loads(each.value()) for each in committed(log.bootstrap_servers, topic))
    return sorted((each["at"], each["place"], each["amount"]) for each in values)
