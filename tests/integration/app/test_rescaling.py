"""An application goes on with more buckets, and with fewer: equal to its log, and nothing is read twice."""

import json

import pytest
from app_runs import BASE_MS, catch_up, options
from topics import create_topic

from headrace import App, agg, tumbling
from headrace.app.query.checkpoint.manifest import Manifest
from headrace.app.verify import verified
from headrace.client import producer

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

KEYS = 60


def shop(orders, clicks, people, store):
    """Windows on a stream, and a join of two streams, a join with a table and a group over several topics."""
    app = App(f"app-{orders}", store=store)
    about = {"lateness": "2 seconds", "partitions": 2, "idle_after": "10 minutes"}
    ordered = app.stream(orders, schema="id long, customer long, at long", event_time="at", **about)
    clicked = app.stream(clicks, schema="id long, at long", event_time="at", **about)
    customers = app.table(people, key="customer", schema="customer long, region string", partitions=2)

    @app.view
    def per_window():
        return ordered.window(tumbling("10 seconds"), by="customer").agg(n=agg.count())

    @app.view(key="id")
    def with_clicks():
        return ordered.join(clicked.select("id"), on="id", how="left", after="20 seconds")

    @app.view
    def per_region():
        named = ordered.join(customers, on="customer", how="left")
        return named.group_by("region").agg(n=agg.count())

    return app


def put(log, topics, part):
    """A third of the records: those that belong together are in different parts."""
    orders, clicks, people = topics
    client, refused = producer(log), []
    said = {"on_delivery": lambda error, _message: error and refused.append(error)}
    for number in range(part * 100, part * 100 + 100):
        at = BASE_MS + number * 200
        order = {"id": number, "customer": number % KEYS, "at": at}
        click = {"id": max(0, number - 40), "at": at}
        person = {"customer": number % KEYS, "region": f"region {number % 7}"}
        for topic, row, partition in ((orders, order, 0), (clicks, click, 1)):
            client.produce(topic, json.dumps(row).encode(), partition=partition, timestamp=at, **said)
        key = json.dumps({"customer": number % KEYS}).encode()
        client.produce(people, json.dumps(person).encode(), key=key, timestamp=at, **said)
    assert (client.flush(60), refused) == (0, [])


def manifests(data):
    found = [Manifest.read(path.parent) for path in sorted(data.rglob("manifest.json"))]
    return {each.query_id: each.buckets for each in found if each.buckets}


def test_an_application_goes_on_with_more_buckets_and_with_fewer(spark, log, tmp_path):
    topics = [create_topic(log, 2) for _ in range(3)]
    store = f"sqlite:///{tmp_path}/views.db"
    app, data = shop(*topics, store), tmp_path / "data"
    queries = []
    for part, buckets in enumerate((None, 32, 3)):
        put(log, topics, part)
        catch_up(app, log, data, buckets=buckets)
        queries.append(manifests(data))
        assert set(queries[-1].values()) == {buckets or 8}
    assert len({frozenset(each) for each in queries}) == 1  # the very same queries went on
    verdicts = {each.view: each for each in verified(app, options(log, data))}
    assert {name: (each.is_equal, each.failure) for name, each in verdicts.items()} == dict.fromkeys(
        ("per_window", "with_clicks", "per_region"), (True, None)
    )
    assert verdicts["per_window"].rows > 200
    assert sum(verdicts["per_window"].reflected.counters.values()) == 300  # each record once
