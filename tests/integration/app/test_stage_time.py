"""Second stages through Spark: what they count follows from the first topic, however batches are cut."""

from collections import Counter

import pytest
from app_runs import BASE_MS, catch_up, kept_running, new_topic, options, reflected, rows, send, wait_until
from topics import create_topic

from headrace import App, agg, tumbling
from headrace.app.verify.command import verified

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]

PARTITIONS, COUNT, WINDOW_S = 4, 2000, 10


def events(partition, start, end):
    """In order, a quarter of a second apart over all partitions; a closing one behind the last."""
    found = [
        {"user": f"u{number % 17}", "place": f"p{number * 7 % 11}", "at": BASE_MS + number * 250}
        for number in range(start, end)
        if number % PARTITIONS == partition
    ]
    return [*found, {"user": "end", "place": "end", "at": BASE_MS + 3_000_000}] if end == COUNT else found


def expected():
    """Every event whose place passes the condition, in the window of its own time: none was ever late."""
    whole = [each for partition in range(PARTITIONS) for each in events(partition, 0, COUNT)]
    counted = Counter(
        (each["place"], each["at"] // 1000 // WINDOW_S * WINDOW_S)
        for each in whole
        if each["place"] not in ("p3", "end")
    )
    return dict(counted)


def two_stages(topic, store, **more):
    app = App(f"app-{new_topic()}", store=store)
    derived = f"{app.name}-by-place"
    time = {"event_time": "at", "lateness": "1 second", "idle_after": "1 hour", **more}
    first = app.stream(topic, schema="user string, place string, at long", **time)
    app.topic(derived, key="place")(lambda: first.where("place <> 'p3'").select("place", "at"))
    second = app.stream(derived, schema="place string, at long", **time)
    app.view(name="counts")(lambda: second.window(tumbling("10 seconds"), by="place").agg(n=agg.count()))
    return app


def counts(store):
    return {(row["place"], int(row["window_start"].timestamp())): row["n"] for row in rows(store)}


def test_a_second_stage_counts_the_same_in_large_batches_with_restarts_and_in_small_ones(
    spark, our_log, tmp_path
):
    topic = create_topic(our_log, PARTITIONS)
    large, cut = (f"sqlite:///{tmp_path}/{name}.db" for name in ("large", "cut"))
    again = two_stages(topic, large)
    for start, end in ((0, COUNT // 2), (COUNT // 2, COUNT)):
        for partition in range(PARTITIONS):
            send(our_log, topic, events(partition, start, end), partition)
        catch_up(again, our_log, tmp_path / "large")
    small = two_stages(topic, cut)
    catch_up(small, our_log, tmp_path / "cut", max_records_per_batch=400)
    for store in (large, cut):
        assert counts(store) == expected()
        counters = reflected(store).counters
        assert counters["on_time"] == sum(expected().values()) + PARTITIONS  # and the closing ones
        assert not counters.get("dropped") and not counters.get("corrected")
    assert reflected(cut).batch_id > reflected(large).batch_id  # they were cut at other places
    verdicts = list(verified(small, options(our_log, tmp_path / "cut")))
    assert [verdict.is_equal for verdict in verdicts] == [True]


def test_a_second_stage_closes_its_windows_while_it_runs_though_nothing_passes_the_first(
    spark, our_log, tmp_path
):
    topic, store = create_topic(our_log, PARTITIONS), f"sqlite:///{tmp_path}/views.db"
    app = two_stages(topic, store, idle_after="1 second")
    at = BASE_MS // 10_000 * 10_000
    with kept_running(app, our_log, tmp_path / "data") as started:
        send(our_log, topic, [{"user": "u", "place": "here", "at": at}])
        wait_until(started, lambda: reflected(store).counters.get("on_time"))
        assert rows(store) == []
        # None of these reaches the second stage; its window ends by them, in the only partition awake.
        send(our_log, topic, [{"user": "u", "place": "p3", "at": at + 11_000}])
        wait_until(started, lambda: counts(store) == {("here", at // 1000): 1})
        # And by the clock, when all are silent.
        send(our_log, topic, [{"user": "u", "place": "here", "at": at + 12_000}])
        wait_until(started, lambda: counts(store).get(("here", at // 1000 + 10)) == 1)
