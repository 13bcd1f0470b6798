"""A whole application on a real Kafka: what it reads, sets aside and writes is there, and is proved."""

import pytest
from app_runs import catch_up, counting, log_ends, new_topic, options, reflected, rows, send, traffic
from pyspark.sql import functions as F  # noqa: N812
from tests.integration.views.reading import read
from topics import create_topic

from headrace import agg, tumbling
from headrace.app.verify.command import verified

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def two_stages(topic, store):
    """Events counted with corrections, a copy of each on a topic, and what is there counted as raw bytes."""

    def place_of(source):
        return None if source is None else int(bytes(source).decode().split(":")[1])

    copies = f"{topic}-copies"
    app = counting(
        topic, store=store, copies=copies, idle_after="1 hour", late="correct", correct_for="15 seconds"
    )
    raw = app.stream(
        copies,
        schema="_key binary, _value binary, _headers array<struct<key: string, value: binary>>",
        decoder="raw",
    )

    @app.view
    def copied():
        named = raw.with_columns(
            place=F.col("_key").cast("string"),
            size=F.length("_value"),
            source=F.udf(place_of, "int")(F.col("_headers")[0]["value"]),
        )
        everything = named.window(tumbling("1 day"), by=["place", "source"], emit="update")
        return everything.agg(n=agg.count(), size=agg.sum("size"))

    return app


@pytest.fixture(
    params=[
        pytest.param("ours", marks=pytest.mark.slow),  # parts of it run there by default, in other tests
        pytest.param("kafka", marks=pytest.mark.kafka),
    ]
)
def either_log(request):
    return request.getfixturevalue("our_log" if request.param == "ours" else "kafka_log")


@pytest.fixture(params=["driver", pytest.param("executors", marks=pytest.mark.slow)])
def sinks(request):
    """Who writes what the tasks make."""
    return request.param


def require_proof(app, log, data, topic, store, *, builds=1):
    """Every view equals its recomputation, the counters have every record, and each topic what belongs there.

    What goes to topics is there once for each build; what is made from it, of the last one alone.
    """
    verdicts = {each.view: each for each in verified(app, options(log, data))}
    assert verdicts.keys() == {"copied", "counts"}
    assert [(each.failure, each.differences) for each in verdicts.values()] == [(None, ())] * 2
    shown, ends = reflected(store), log_ends(log, topic)
    assert shown.offsets == {topic: ends}
    counters, total = shown.counters, sum(ends.values())
    assert sum(counters.values()) == total
    assert min(counters[name] for name in ("on_time", "corrected", "dropped", "dead")) > 0
    asides = (f"{app.name}.dead", f"{app.name}.late", f"{topic}-copies")
    dead, late, copies = (read(log, name) for name in asides)
    wanted = (counters["dead"], counters["dropped"], total - counters["dead"])
    assert (len(dead), len(late), len(copies)) == tuple(builds * count for count in wanted)
    assert {each["value"] for each in dead} == {b"{no JSON"}
    assert all("headrace.dead.error" in {header["key"] for header in each["headers"]} for each in dead)
    assert len({each["headers"][0]["value"] for each in copies}) * builds == len(copies), "each event once"
    # The second stage has read all that the first one wrote.
    assert sum(row["n"] for row in rows(store, "copied")) * builds == len(copies)
    sizes = sum(row["size"] for row in rows(store, "copied"))
    assert sizes * builds == sum(len(each["value"]) for each in copies)
    assert sum(reflected(store, "copied").counters.values()) * builds == len(copies)


def test_an_application_catches_up_is_proved_goes_on_after_a_restart_and_is_rebuilt(
    spark, either_log, sinks, tmp_path
):
    log, topic, store, data = either_log, new_topic(), f"sqlite:///{tmp_path}/views.db", tmp_path / "data"
    create_topic(log, 2, topic)
    for partition in (0, 1):
        send(log, topic, traffic(partition, until=100), partition)
    catch_up(two_stages(topic, store), log, data, sinks=sinks)
    require_proof(two_stages(topic, store), log, data, topic, store)
    first = reflected(store)
    for partition in (0, 1):
        send(log, topic, traffic(10 + partition, first=100, until=1000), partition)
    catch_up(two_stages(topic, store), log, data, sinks=sinks)
    require_proof(two_stages(topic, store), log, data, topic, store)
    again = reflected(store)
    assert again.query_id == first.query_id and again.batch_id > first.batch_id
    catch_up(two_stages(topic, store), log, data, sinks=sinks, rebuild=True)
    require_proof(two_stages(topic, store), log, data, topic, store, builds=2)
