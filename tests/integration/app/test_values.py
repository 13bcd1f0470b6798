"""Values as people send them, through a whole application: nested, in maps, in other units, in strings."""

import json

import pytest
from app_runs import BASE_MS, catch_up, new_topic, options, reflected, rows, send
from topics import create_topic

from headrace import App, agg, tumbling
from headrace.app.verify.command import verified

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]


def reading(second, temp, **labels):
    at = BASE_MS // 1000 + second
    return json.dumps({"payload": {"at": at, "temp": temp}, "labels": labels}).encode()


def test_a_lenient_stream_of_nested_values_with_maps_is_counted_and_proved(spark, our_log, tmp_path):
    topic, store = new_topic(), f"sqlite:///{tmp_path}/views.db"
    create_topic(our_log, 2, topic)
    app = App(f"app-{topic}", store=store)
    readings = app.stream(
        topic,
        schema="payload struct<at: long, temp: double>, labels map<string, string>",
        event_time="payload.at",
        time_unit="s",
        lenient=True,
    )

    @app.view
    def counts():
        placed = readings.with_columns(place="labels['place']", temp="payload.temp")
        return placed.window(tumbling("10 seconds"), by="place").agg(n=agg.count(), warm=agg.max("temp"))

    app.view(name="all")(lambda: readings)
    values = [
        reading(1, "21.5", place="here"),
        reading(2, 22, place="here"),
        reading(3, "warm"),
        reading(900, 1),
    ]
    send(our_log, topic, [b"\xef\xbb\xbf" + values[0], *values[1:]])
    catch_up(app, our_log, tmp_path / "data")
    assert [(row["place"], row["n"], row["warm"]) for row in rows(store)] == [("here", 2, 22.0)]
    assert reflected(store).counters == {"on_time": 3, "dead": 1}
    assert sorted(map(str, (dict(row["labels"]) for row in rows(store, "all")))) == [
        "{'place': 'here'}"
    ] * 2 + ["{}"]
    assert all(each.is_equal for each in verified(app, options(our_log, tmp_path / "data")))
