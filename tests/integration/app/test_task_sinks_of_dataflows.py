"""Views over several topics whose tasks write them: no rows pass the driver, and all are there once."""

import json

import pytest
from app_runs import catch_up, new_topic, options, read, send, traffic
from topics import create_topic

from headrace import App, agg
from headrace.app.query.sinks import graph_sink
from headrace.app.verify import verified

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

PLACES = ("here", "there", "elsewhere")


def application(topic, postgres, parquet):
    app = App(f"app-{topic}")
    common = {"lateness": "1 second", "partitions": 2, "idle_after": "10 minutes"}
    events = app.stream(topic, schema="place string, amount double, at long", event_time="at", **common)
    kinds = app.table(f"{topic}-kinds", key="place", schema="place string, kind string", **common)
    named = kinds.where("kind <> 'none'")
    joined = events.join(kinds, on="place", how="left", version="latest").where("amount > -0.9")
    app.view(name="joined", store=postgres)(lambda: joined)
    app.view(name="kinds", key="place", store=parquet)(lambda: named)
    app.view(name="per_kind", store=parquet)(
        lambda: named.group_by("kind").agg(n=agg.count(), last=agg.max("place"))
    )
    once = events.dedup("place", "amount", within="5 seconds")
    app.view(name="totals", store=postgres)(lambda: once.group_by("place").agg(n=agg.count()))
    return app


@pytest.mark.timeout(1800)
def test_tasks_write_joins_groups_tables_and_what_falls_aside(our_log, postgres, tmp_path, monkeypatch):
    topic, data = new_topic(), tmp_path / "data"
    create_topic(our_log, 2, topic)
    create_topic(our_log, 2, f"{topic}-kinds")
    app = application(topic, postgres.url(), f"parquet:///{tmp_path}/parquet")
    passed = []
    collect = graph_sink.collect_graph
    monkeypatch.setattr(
        graph_sink, "collect_graph", lambda *given: (passed.append(collect(*given)), passed[-1])[1]
    )
    for part, sinks in enumerate(("executors", "driver", "executors")):
        for number, place in enumerate(PLACES):
            row = {"place": place, "kind": ("none", "a", "b")[(part + number) % 3]}
            key = json.dumps({"place": place}).encode()
            send(our_log, f"{topic}-kinds", [row], partition=number % 2, key=key)
        for partition in (0, 1):
            values = traffic(2 * part + partition, first=part * 60, until=(55, 110, 1000)[part])
            send(our_log, topic, values, partition)
        del passed[:]
        catch_up(app, our_log, data, sinks=sinks)
        assert sum(batch.records for batch in passed) > 0
        if sinks == "executors":
            assert sum(len(batch.staged) for batch in passed) > 4
            assert not any(batch.rows or batch.dead or batch.late or batch.failed for batch in passed)
    verdicts = {each.view: each for each in verified(app, options(our_log, data))}
    assert verdicts.keys() == {"kinds", "per_kind", "totals"}  # of a join with the latest, nobody can say
    assert all(each.is_equal and each.rows for each in verdicts.values()), verdicts
    counters = verdicts["totals"].reflected.counters
    assert counters["dead"] and counters["dropped"]
    assert len(read(our_log, f"{app.name}.dead")) == 2 * counters["dead"]  # of the two views that read them
    assert read(our_log, f"{app.name}.late")
