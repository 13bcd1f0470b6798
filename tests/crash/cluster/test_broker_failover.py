"""Three brokers of a real Kafka, each killed under a running application: nothing lost, doubled or stuck."""

import itertools
import json
import signal
import time
import uuid
from contextlib import closing

import pytest
from tests.crash.cluster.drivers import Driver, Progress, Traffic, committed, verify, wait_until

from headrace.client import Connection
from headrace.client.connect.brokers import Brokers
from headrace.testing.kafka import KafkaCluster, PeerUnavailable
from headrace.wire import Api

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.xdist_group("spark"),
]

BASE_MS = (int(time.time()) // 60 - 60) * 60_000
APP = """
from headrace import App, agg, tumbling
app = App({topic!r})
events = app.stream(
    {topic!r}, schema="place string, number long, at long", event_time="at", partitions=3,
    lateness="1 minute", idle_after="10 minutes",
)

@app.view
def counts():
    windows = events.window(tumbling("10 seconds"), by="place", emit="update")
    return windows.agg(n=agg.count(), total=agg.sum("number"))

app.topic("{topic}-copies", key="place")(lambda: events)
"""


@pytest.fixture(scope="module")
def cluster():
    try:
        started = KafkaCluster()
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with started:
        yield started


def values():
    for number in itertools.count():
        at = BASE_MS + number * 20
        yield None, json.dumps({"place": "abc"[number % 3], "number": number, "at": at}).encode()


def coordinator(cluster, prefix):
    """A broker that leads transactions of this application, by what all brokers list."""
    apis = {Api.METADATA: 9, Api.LIST_TRANSACTIONS: 0}
    for node in cluster.nodes:
        with closing(Brokers(Connection(bootstrap_servers=cluster.address(node)), apis)) as brokers:
            asked = {"state_filters": [], "producer_id_filters": []}
            answer = brokers.ask(brokers.any(), Api.LIST_TRANSACTIONS, asked)
            if any(prefix in each.transactional_id for each in answer.transaction_states):
                return node
    raise AssertionError(f"nobody coordinates transactions of {prefix}")


@pytest.mark.parametrize("sinks", ["driver", "executors"])
def test_brokers_are_killed_in_turn_and_every_record_counts_once(cluster, tmp_path, sinks):
    topic, file, data = f"t-{uuid.uuid4().hex[:12]}", tmp_path / "app.py", tmp_path / "data"
    file.write_text(APP.format(topic=topic))
    options = ("--data", str(data), "--sinks", sinks)
    first = Driver(tmp_path / "first", file, cluster.bootstrap, *options)
    second = None
    try:
        wait_until(lambda: topic in names(cluster), first, f"topic {topic}")
        with Traffic(cluster.bootstrap, topic, values(), per_second=200), Progress(first) as progress:
            first.wait_for_records(500)
            for node in (coordinator(cluster, topic), *cluster.nodes):
                cluster.kill(node)
                first.wait_for_records(first.records() + 1000)  # with two brokers
                cluster.restart(node)
                cluster.wait_in_sync()
                first.wait_for_records(first.records() + 500)
            print(f"{sinks}: longest stall {progress.longest_s:.1f} s, restarts: {first.failures()}")
            assert not first.failures(), "a query had to be restarted"
            # Whoever coordinates dies with the driver: the next one fences what it left open.
            cluster.kill(coordinator(cluster, topic))
            first.kill()
            second = Driver(tmp_path / "second", file, cluster.bootstrap, *options)
            second.wait_for_records(500)
            for node in cluster.nodes:
                if not cluster.is_alive(node):
                    cluster.restart(node)
            cluster.wait_in_sync()
        second.signal(signal.SIGINT)
        assert second.wait() == 0, second.said
        last = Driver(tmp_path / "last", file, cluster.bootstrap, *options, "--until-caught-up")
        assert last.wait() == 0, last.said
    finally:
        for each in (first, second):
            if each is not None:
                each.kill()
    assert "equal" in verify(file, cluster.bootstrap, data, tmp_path)
    sent = sorted(json.loads(each.value())["number"] for each in committed(cluster.bootstrap, topic))
    copied = sorted(
        json.loads(each.value())["number"] for each in committed(cluster.bootstrap, f"{topic}-copies")
    )
    print(f"{sinks}: {len(sent)} records")
    assert sent == list(range(len(sent))) and copied == sent


def names(cluster):
    with closing(Brokers(Connection(bootstrap_servers=cluster.bootstrap), {Api.METADATA: 12})) as brokers:
        asked = {"topics": None, "allow_auto_topic_creation": False}
        return {each.name for each in brokers.ask(brokers.any(), Api.METADATA, asked).topics}
