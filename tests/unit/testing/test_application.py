"""`headrace.testing.run_app`: an application on records in memory, on a clock that only the test moves."""

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from headrace import App, agg, hopping, sliding, tumbling
from headrace.errors import ConfigError
from headrace.testing import run_app

START = "2026-01-05T09:00:00Z"


def counting_app(**stream):
    app = App("counting")
    settings = {"schema": "name string, at timestamp", "event_time": "at", "partitions": 2, **stream}
    events = app.stream("events", **settings)

    @app.view
    def per_minute():
        return events.window(tumbling("1 minute"), by="name").agg(n=agg.count())

    return app


def event(clock, name="a"):
    return {"name": name, "at": f"2026-01-05T{clock}Z"}


def moment(clock):
    return datetime.fromisoformat(f"2026-01-05T{clock}").replace(tzinfo=UTC)


def counts(run):
    return {(row["name"], row["window_start"]): row["n"] for row in run.rows("per_minute")}


def test_a_window_closes_when_the_watermark_passes_its_end():
    with run_app(counting_app(), start=START) as run:
        run.send("events", event("09:00:10"), event("09:00:20"), event("09:01:09"))
        assert (counts(run), run.watermark("events")) == ({}, moment("09:00:59"))
        run.send("events", event("09:01:10"))
        assert (counts(run), run.watermark("events")) == ({("a", moment("09:00")): 2}, moment("09:01"))


def test_time_passes_only_when_the_test_says_so():
    with run_app(counting_app(), start=START) as run:
        run.send("events", event("09:00:10"))
        run.advance("4 seconds")  # not yet idle
        assert (run.now, run.watermark("events")) == (moment("09:00:04"), moment("09:00"))
        run.advance(timedelta(seconds=56))
        assert (run.now, run.watermark("events")) == (moment("09:01"), moment("09:01"))
        assert counts(run) == {("a", moment("09:00")): 1}


def test_a_partition_that_lags_holds_results_back_until_it_is_idle():
    with run_app(counting_app(), start=START) as run:
        run.send("events", event("09:00:10"), partition=1)
        run.send("events", event("09:05:00"), partition=0)
        assert counts(run) == {}
        run.advance("4 seconds")
        run.send("events", event("09:05:01"), partition=0)
        run.advance("1 second")
        assert counts(run) == {("a", moment("09:00")): 1}


def test_a_row_of_a_partition_that_wakes_corrects_what_was_published():
    with run_app(counting_app(), start=START) as run:
        run.send("events", event("09:00:10"), partition=1)
        run.send("events", event("09:00:20"), partition=0)
        run.stop_input()
        run.send("events", event("09:00:30"), partition=1)
        (first, second) = run.changes("per_minute")
        assert (first.kind, first.after["n"]) == (0, 2)
        assert (second.kind, second.before["n"], second.after["n"]) == (2, 2, 3)
        assert run.counters("per_minute") == {"on_time": 2, "corrected": 1}


def test_records_that_cannot_be_read_and_those_too_late_are_shown():
    with run_app(counting_app(), start=START) as run:
        run.send("events", event("09:02:00"), event("09:00:10"), b"{", None, event("12:00:00"), key="k")
        run.batch()
        (late,) = run.late
        assert (late.reason, late.key, late.about["view"], late.about["offset"]) == (
            "late",
            b"k",
            "per_minute",
            "1",
        )
        assert [each.about["offset"] for each in run.dead] == ["2", "3", "4"]
        unreadable, timeless, ahead = run.dead
        assert unreadable.reason == "unexpected end of JSON" and unreadable.about["error"]
        assert "no event time" in timeless.reason and "error" not in timeless.about
        assert "ahead of the record's timestamp" in ahead.reason
        assert run.counters("per_minute") == {"on_time": 1, "dropped": 1, "dead": 3}


def test_a_topic_that_the_application_writes_is_read_by_its_second_stage():
    app = counting_app()
    app.topic("copies", key="name")(lambda: app.streams["events"])
    copies = app.stream("copies", schema="name string, at timestamp", event_time="at")
    app.view(name="last", key="name")(lambda: copies)
    app.view(name="copied")(lambda: copies.window(tumbling("1 minute")).agg(n=agg.count()))
    with run_app(app, start=START) as run:
        run.send("events", event("09:00:10"), event("09:00:20", "b"), b"{")
        run.batch()
        assert run.counters("last") == {"on_time": 2}
        run.send("events", event("09:00:30", "b"))
        assert [(row["name"], row["at"]) for row in run.rows("last")] == [
            ("a", moment("09:00:10")),
            ("b", moment("09:00:30")),
        ]
        assert run.rows("copied") == []
        run.stop_input()
        assert [row["n"] for row in run.rows("copied")] == [3]
        assert run.counters("per_minute") == {"on_time": 3, "dead": 1}


def test_a_declared_watermark_is_sent_as_a_header_and_is_in_the_counters():
    with run_app(counting_app(), start=START) as run:
        run.send("events", event("09:00:10"))
        milliseconds = int(moment("09:01").timestamp() * 1000)
        run.send("events", None, headers=[("headrace.watermark", str(milliseconds).encode())])
        assert counts(run) == {("a", moment("09:00")): 1}
        assert run.counters("per_minute") == {"on_time": 1, "declared": 1}


def test_batches_move_only_the_moment_of_publishing():
    results = []
    records = [event(f"09:{second // 60:02}:{second % 60:02}") for second in (5, 130, 20, 65, 300, 121, 290)]
    for cut_each in (False, True):
        with run_app(counting_app(lateness="1 minute"), start=START) as run:
            for record in records:
                run.send("events", record)
                if cut_each:
                    run.batch()
            run.stop_input()
            results.append((run.table("per_minute").to_pydict(), run.counters("per_minute"), run.late))
    assert results[0] == results[1]
    assert results[0][1] == {"on_time": 5, "dropped": 2}


def test_a_view_of_rows_and_processing_time_need_no_window():
    app = App("rows")
    events = app.stream("events", schema="name string, n long", event_time="processing time")
    app.view(key="name", name="latest")(lambda: events)
    with run_app(app) as run:
        run.send("events", {"name": "a", "n": 1}, {"name": "b", "n": 2}, {"name": "a", "n": 3})
        assert [(row["name"], row["n"]) for row in run.rows("latest")] == [("a", 3), ("b", 2)]
        run.stop_input()


def test_the_last_of_each_key_is_by_event_time_whatever_the_batches():
    """The same key in both partitions: what came last is of partition 0, what happened last of 1."""
    records = [("09:00:30", 1), ("09:00:10", 0), ("09:00:30", 0), ("09:00:20", 0)]
    for cut_each in (False, True):
        with run_app(latest_app("latest", event_time="at"), start=START) as run:
            send_named(run, records, cut_each)
            assert [row["n"] for row in run.rows("latest")] == [0]  # of equal times the higher partition
            assert run.counters("latest") == {"on_time": 4}
            told = [change.after["n"] for change in run.changes("latest")]
            assert told == [0]  # no older row was ever told of


def test_the_last_of_each_key_is_by_arrival_if_asked_or_without_an_event_time():
    """In a partition the highest offset; of two partitions the one that had come further by then."""
    apps = [latest_app("latest", last="arrival", event_time="at"), latest_app("latest")]
    records = [("09:00:50", 1), ("09:00:10", 1), ("09:00:40", 0), ("09:00:05", 0)]
    for app in apps:
        for cut_each in (False, True):
            with run_app(app, start=START) as run:
                send_named(run, records, cut_each)
                assert [row["n"] for row in run.rows("latest")] == [1]


def latest_app(name, last=None, **stream):
    app = App("keyed")
    events = app.stream("events", schema="name string, n long, at timestamp", partitions=2, **stream)
    app.view(key="name", name=name, last=last)(lambda: events)
    return app


def send_named(run, records, cut_each):
    """Records of one key, numbered; each is stamped with its own time."""
    for number, (time, partition) in enumerate(records):
        at = f"2026-01-05T{time}Z"
        run.send("events", {"name": "a", "n": number, "at": at}, partition=partition, at=at)
        if cut_each:
            run.batch()


def test_what_last_cannot_mean_is_refused():
    events = App("keyed").stream("events", schema="name string")
    for key, result in (((), events), ("name", events.window(tumbling("1 minute")).agg(n=agg.count()))):
        app = App("keyed")
        app.streams["events"] = events
        app.view(key=key, name="latest", last="arrival")(lambda result=result: result)
        with pytest.raises(ConfigError, match="last= says which row of a key is shown"):
            run_app(app)
    with pytest.raises(ConfigError, match="neither"):
        App("keyed").view(last="newest")


def test_two_runs_share_nothing():
    app = counting_app()
    with run_app(app, start=START) as one, run_app(app, start=START) as other:
        one.send("events", event("09:00:10"))
        one.stop_input()
        assert (len(one.rows("per_minute")), other.rows("per_minute")) == (1, [])


def test_what_makes_no_sense_is_refused_in_words():
    with run_app(counting_app()) as run:
        with pytest.raises(
            ConfigError, match="no view of 'counting' reads a stream 'evnets'; the streams are: events"
        ):
            run.send("evnets", {})
        with pytest.raises(ConfigError, match="partitions 0 to 1, not 2"):
            run.send("events", {}, partition=2)
    with pytest.raises(ConfigError, match="has no views"):
        run_app(App("empty"))


def test_a_view_that_needs_spark_says_so():
    app = App("steps")
    events = app.stream("events", schema="name string")
    app.view(key="name", name="some")(lambda: events.where("name = 'a'"))
    with pytest.raises(ConfigError, match=r"view 'some' has where, select or .*give one: run_app"):
        run_app(app)


def test_without_steps_nothing_imports_spark_and_a_case_takes_well_under_a_second():
    """Of processor time, which other work on the machine does not lengthen; 0.03 s is usual."""
    program = """
import sys, time
from headrace import App, agg, hopping, sliding, tumbling
from headrace.testing import run_app

app = App("pure")
events = app.stream("events", schema="name string")
app.view(name="all")(lambda: events.window(tumbling("1 minute"), by="name").agg(n=agg.count()))
began = time.process_time()
with run_app(app) as run:
    run.send("events", {"name": "a"})
    run.stop_input()
    assert [row["n"] for row in run.rows("all")] == [1]
took_s = time.process_time() - began
assert took_s < 0.5, took_s
print("pyspark" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("False\n", 0), done.stderr


def test_a_sum_that_does_not_fit_is_set_aside_with_a_letter_and_the_rest_goes_on():
    app = App("bank")
    payments = app.stream(
        "payments", schema="account string, cents long, at timestamp", event_time="at", partitions=1
    )
    app.view(name="totals")(
        lambda: payments.window(tumbling("1 minute"), by="account").agg(n=agg.count(), total=agg.sum("cents"))
    )
    with run_app(app, start=START) as run:
        for account, cents in (("a", 2**63 - 1), ("a", 1), ("b", 7)):
            run.send("payments", {"account": account, "cents": cents, "at": "2026-01-01T12:00:00Z"})
        run.send("payments", {"account": "c", "cents": 1, "at": "2026-01-01T12:05:00Z"})
        assert [(row["account"], row["total"]) for row in run.rows("totals")] == [("b", 7)]
        (letter,) = run.dead
        assert letter.reason == "overflow" and json.loads(letter.value) == {"account": "a"}
        assert letter.about["error"] == "total is 9223372036854775808, which does not fit int64"
        assert letter.about["view"] == "totals" and letter.about["window_end_us"] == "1767268860000000"
        assert run.counters("totals") == {"on_time": 4}


@pytest.mark.parametrize("window", [hopping("10 days", every="1 day"), sliding("1 minute")])
def test_windows_before_the_year_1_are_set_aside_and_the_rest_goes_on(window):
    app = App("bank")
    payments = app.stream("payments", schema="account string, at timestamp", event_time="at", partitions=1)
    app.view(name="counts")(lambda: payments.window(window, by="account").agg(n=agg.count()))
    with run_app(app, start=START) as run:
        for at in ("0001-01-01T00:00:00Z", "2025-03-05T00:00:00Z", "2025-12-01T00:00:00Z"):
            run.send("payments", {"account": "a", "at": at})
        starts = {row["window_start"].year for row in run.rows("counts")}
        assert {2025, 1} >= starts >= {2025}
        assert {letter.reason for letter in run.dead} == {"overflow"}
        assert {letter.about["error"] for letter in run.dead} == {
            "the window is not within the years 1 to 9999"
        }
