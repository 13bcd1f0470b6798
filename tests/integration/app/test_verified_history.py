"""The history of a table, recomputed from its topic and compared with what is served."""

import json
import random

import pytest
from app_runs import BASE_MS, catch_up, new_topic, options
from forged_rows import forge, where_greatest

from headrace import App
from headrace.app.verify import verified
from headrace.client import producer
from headrace.client.topics import TopicSettings, ensure_topics

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]


def people(topic, store):
    app = App(f"app-{topic}", store=store)
    app.table(
        topic, key="id", schema="id long, name string", partitions=2, serve="people", history="1 minute",
        lateness="5 seconds", idle_after="1 hour",
    )  # fmt: skip
    return app


def put(log, topic, chance, begin, end):
    """Rows of few keys over ten minutes; some are late, even by more than the history, some are deletes."""
    client = producer(log)
    for number in range(begin, end):
        second = max(0, 3 * number - chance.choice((0, 0, 0, 4, 20, 150)))
        key = chance.randrange(0, 12) if chance.random() < 0.9 else 100 + number
        row = {"id": key, "name": f"n{number}"} if chance.random() < 0.7 else None
        client.produce(
            topic, None if row is None else json.dumps(row).encode(), key=json.dumps({"id": key}).encode(),
            partition=key % 2, timestamp=BASE_MS + second * 1000,
        )  # fmt: skip
    assert client.flush(60) == 0


def test_the_versions_that_are_kept_follow_from_the_log(our_log, spark, tmp_path):
    topic, chance = new_topic(), random.Random(7)
    app, places = people(topic, f"sqlite:///{tmp_path}/views.db"), options(our_log, tmp_path / "data")
    ensure_topics(our_log, {topic: TopicSettings(partitions=2)})
    for begin, end in ((0, 60), (60, 90), (90, 200)):
        put(our_log, topic, chance, begin, end)
        catch_up(app, our_log, tmp_path / "data")
    found = {each.view: each for each in verified(app, places)}
    assert {name: (each.failure, each.differences) for name, each in found.items()} == {
        "people": (None, ()), "people.history": (None, ()),
    }  # fmt: skip
    assert 20 < found["people.history"].rows < 200  # the history of a minute, and not all
    forge(
        f"sqlite:///{tmp_path}/views.db",
        "people.history",
        where_greatest("_from_offset", "name", lambda _: "forged"),
    )
    (forged,) = verified(app, places, "people.history")
    assert 1 <= len(forged.differences) <= 2
