"""Drivers that are killed, and one that only seemed dead, with nothing shared but a log and an S3."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from headrace.client import producer
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.testing.s3 import s3_server

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark"), pytest.mark.slow]

TIMEOUT_S = 200
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


class Driver:
    """`headrace run` on a machine of its own, as far as files go."""

    def __init__(self, folder, file, url, log, *options):
        folder.mkdir()
        self.messages = folder / "messages"
        command = [str(Path(sys.executable).with_name("headrace")), "run", str(file), "--data", url]
        command += ["--bootstrap", log.bootstrap_servers, "--no-http", "--json", *options]
        with self.messages.open("wb") as out:
            self.process = subprocess.Popen(
                command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )

    def batches(self):
        lines = self.messages.read_text().splitlines()
        return [found for each in lines if each.startswith("{") and "batch_id" in (found := json.loads(each))]

    def wait_for_records(self, count):
        """Until the batches of this driver have read so many records of the stream."""
        await_(lambda: sum(each["records"] for each in self.batches()) >= count, self)

    def signal(self, number):
        os.killpg(self.process.pid, number)

    def wait(self):
        return self.process.wait(TIMEOUT_S)


def await_(condition, driver):
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert driver.process.poll() is None, driver.messages.read_text()
        assert time.monotonic() < deadline, driver.messages.read_text()
        time.sleep(0.2)


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
            started.append(Driver(tmp_path / name, file, url, our_log, *options))
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
            assert re.search(r"was started in s3://.*so this run stops", frozen.messages.read_text())
            assert owner.process.poll() is None
            owner.signal(signal.SIGINT)
            assert owner.wait() == 0, owner.messages.read_text()
            assert start("last", "--until-caught-up").wait() == 0, started[-1].messages.read_text()
            verify = [str(Path(sys.executable).with_name("headrace")), "verify", str(file), "--data", url]
            verify += ["--bootstrap", our_log.bootstrap_servers]
            found = subprocess.run(verify, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT_S)
            assert found.returncode == 0, found.stdout + found.stderr
            assert "equal" in found.stdout
        finally:
            for each in started:
                if each.process.poll() is None:
                    each.signal(signal.SIGKILL)
                    each.wait()
    sent, copied = values_of(our_log, topic), values_of(our_log, f"{topic}-copies")
    assert (len(sent), copied) == (10_002, sent)


def values_of(log, topic):
    """What the committed records of a topic say, in order of value."""
    consumer = Consumer(
        {
            "bootstrap.servers": log.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found, ended = [], set()
    while not ended or len(ended) < len(consumer.assignment()):
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        if message.error() is None:
            value = json.loads(message.value())
            found.append((value["at"], value["place"], value["amount"]))
        else:
            ended.add(message.partition())
    consumer.close()
    return sorted(found)
