"""Checkpoints, views and topics of rows that an earlier version left, gone on with by this one."""

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.upgrade.earlier import BEFORE_TABLES, WITH_CAPTURES, attempt, run_now

from headrace.testing.broker import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), pytest.mark.xdist_group("upgrade")]

SHOP = str(Path(__file__).with_name("shop.py"))
BASE_MS = (int(time.time()) // 60 - 60) * 60_000  # an hour ago: retention removes nothing
PLACES = ("harbour", "market", "station", "mill")


@pytest.fixture
def log(tmp_path):
    with BrokerProcess(tmp_path / "log") as broker:
        client = AdminClient({"bootstrap.servers": broker.bootstrap})
        topics = [NewTopic("orders", 2, 1, config={"retention.ms": "-1"})]
        topics.append(NewTopic("places", 2, 1, config={"cleanup.policy": "compact"}))
        for done in client.create_topics(topics).values():
            done.result(60)
        yield broker.bootstrap


def test_an_application_goes_on_where_an_earlier_version_stopped(earlier, log, tmp_path):
    data = tmp_path / "app"
    begun = _begin(earlier(WITH_CAPTURES), log, data)
    send(log, range(300, 600), regions=("north", "east"))
    run_now(*_run(log, data))
    assert _queries(data) == begun, "every checkpoint is gone on with"
    run_now("verify", SHOP, "-b", log, "--data", str(data))


def test_a_checkpoint_that_is_too_old_is_left_alone_and_says_what_to_do(earlier, log, tmp_path):
    data = tmp_path / "app"
    begun = _begin(earlier(BEFORE_TABLES), log, data)
    refused = attempt(*_run(log, data))
    assert refused.returncode != 0 and "older version" in refused.stderr and "--rebuild" in refused.stderr
    assert _queries(data) == begun


def send(log, numbers, regions):
    """Orders in time, one in ten of them late; and where the places are."""
    producer = Producer({"bootstrap.servers": log, "linger.ms": 5})
    for place in PLACES:
        value = {"place": place, "region": regions[len(place) % len(regions)]}
        producer.produce("places", json.dumps(value), key=place)
    for n in numbers:
        at = BASE_MS + n * 1_000 - (90_000 if n % 10 == 0 else 0)
        value = {"place": PLACES[n % 4], "amount": float(n % 97), "at": at}
        producer.produce("orders", json.dumps(value), partition=n % 2, timestamp=at)
    assert producer.flush(60) == 0


def _begin(version, log, data):
    send(log, range(300), regions=("north", "south"))
    version.run(*_run(log, data))
    begun = _queries(data)
    assert begun
    return begun


def _run(log, data):
    return ("run", SHOP, "-b", log, "--data", str(data), "--until-caught-up", "--no-http")


def _queries(data):
    """The id of each query, which it keeps until it starts over."""
    return {
        str(path.relative_to(data)): json.loads(path.read_text())["query_id"]
        for path in data.rglob("manifest.json")
    }
