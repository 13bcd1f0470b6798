"""Groups that fall behind: alert, fall, and how both are seen."""

import json

import pytest
from broker.conftest import NOW_MS, Peer, batch_of
from ready_command import run_command
from scraping import scrape, value
from test_overload import BATCH, commit, events, wait_for

from headrace.testing.broker import running_broker

OFFSET_OUT_OF_RANGE = 1
HOUR_S = 3_600


@pytest.fixture
def broker(tmp_path):
    with running_broker(
        tmp_path, metrics_listen="127.0.0.1:0", lag_check_interval_ms=50, upkeep_interval_ms=50
    ) as broker:
        yield broker


@pytest.fixture
def peer(broker):
    peer = Peer(broker.port)
    yield peer
    peer.close()


def near(broker, group="slow"):
    return value(scrape(broker), "headrace_group_near_retention", group=group, topic="ring", partition="0")


def create_ring(peer):
    """Ten batches are kept, in segments of one batch each."""
    peer.create(
        "ring",
        **{"retention.bytes": 10 * len(BATCH), "segment.bytes": len(BATCH) + 100, "retention.ms": -1},
    )


def produce(peer, count, batch=BATCH):
    for _ in range(count):
        assert peer.produce("ring", bytearray(batch)).error_code == 0


def test_an_alert_comes_before_the_fall_and_goes_when_the_group_catches_up(broker, peer):
    create_ring(peer)
    commit(peer, "ring", 0)
    produce(peer, 7)
    wait_for(
        lambda: value(scrape(broker), "headrace_group_lag_records", group="slow", topic="ring", partition="0")
    )
    assert near(broker) == 0
    produce(peer, 2)
    wait_for(lambda: near(broker) == 1)
    (alert,) = wait_for(lambda: events(broker, "near-retention"))
    assert alert == {**alert, "group": "slow", "topic": "ring", "partition": 0}
    assert 0.8 <= alert["share"] <= 1
    assert alert["records"] in (8, 9)
    commit(peer, "ring", 9)
    wait_for(lambda: near(broker) == 0)
    wait_for(lambda: events(broker, "caught-up"))
    assert not events(broker, "fell-off")


def test_a_group_that_fell_off_is_told_and_counted_once(broker, peer):
    create_ring(peer)
    produce(peer, 1)
    commit(peer, "ring", 1)
    produce(peer, 15)
    log = broker.services.topics.partition("ring", 0).log
    wait_for(lambda: log.start_offset == 6)
    assert peer.fetch("ring", 1).error_code == OFFSET_OUT_OF_RANGE
    wait_for(lambda: broker.services.metrics.lost.value("slow", "ring") == 5)
    produce(peer, 3)  # it lies where it fell, and loses more
    wait_for(lambda: broker.services.metrics.lost.value("slow", "ring") == 8)
    assert broker.services.metrics.fell_off.value("slow", "ring") == 1
    first = wait_for(lambda: events(broker, "fell-off"))[0]
    assert first == {**first, "group": "slow", "committed": 1}
    commit(peer, "ring", log.high_watermark)
    produce(peer, 30)
    wait_for(lambda: broker.services.metrics.fell_off.value("slow", "ring") == 2)


def test_a_fall_counts_although_the_group_has_committed_again_before_anybody_looked(tmp_path):
    with running_broker(tmp_path, lag_check_interval_ms=3_600_000) as broker:
        peer = Peer(broker.port)
        peer.create("ring", **{"headrace.storage": "memory", "retention.bytes": 5 * len(BATCH)})
        commit(peer, "ring", 0)
        produce(peer, 20)
        start = broker.services.topics.partition("ring", 0).log.start_offset
        commit(peer, "ring", start)
        peer.close()
        assert broker.services.metrics.fell_off.value("slow", "ring") == 1
        assert broker.services.metrics.lost.value("slow", "ring") == start > 10
        assert wait_for(lambda: events(broker, "fell-off"))[0]["records"] == start


def test_lag_is_told_in_records_and_seconds(broker, peer):
    create_ring(peer)
    produce(peer, 5, batch_of(b"x", timestamp_ms=NOW_MS - HOUR_S * 1000))
    commit(peer, "ring", 2)
    labels = {"group": "slow", "topic": "ring", "partition": "0"}
    wait_for(lambda: value(scrape(broker), "headrace_group_lag_records", **labels) == 3)
    assert HOUR_S < value(scrape(broker), "headrace_group_lag_seconds", **labels) < 2 * HOUR_S
    commit(peer, "ring", 5)
    wait_for(lambda: value(scrape(broker), "headrace_group_lag_records", **labels) == 0)
    assert value(scrape(broker), "headrace_group_lag_seconds", **labels) == 0


def test_names_of_groups_are_escaped_in_the_metrics(broker, peer):
    create_ring(peer)
    odd = 'a "group"\\ of\ntwo lines'
    commit(peer, "ring", 0, group=odd)
    produce(peer, 1)
    labels = {"group": odd, "topic": "ring", "partition": "0"}
    wait_for(lambda: value(scrape(broker), "headrace_group_lag_records", **labels) == 1)


def describe(broker, *more):
    done = run_command(["groups", "describe", "slow", *more, "-b", f"127.0.0.1:{broker.port}"])
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


def test_groups_describe_warns_of_both(broker, peer):
    create_ring(peer)
    commit(peer, "ring", 0)
    produce(peer, 9)
    wait_for(lambda: events(broker, "near-retention"))
    assert "warning: ring:0 is about to fall off the log: " in describe(broker)
    produce(peer, 5)
    wait_for(lambda: broker.services.topics.partition("ring", 0).log.start_offset == 4)
    wait_for(lambda: events(broker, "fell-off"))
    commit(peer, "ring", 14)
    text = describe(broker)
    assert "warning: ring:0 fell off the log, last at 20" in text
    found = json.loads(describe(broker, "--json"))["events"]
    assert {event["kind"] for event in found} >= {"near-retention", "fell-off"}
