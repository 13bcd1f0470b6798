"""`headrace.testing.run_app` with views over several topics: joins, tables, groups, windows over joins."""

import subprocess
import sys
from datetime import UTC, datetime

import pytest

from headrace import App, agg, tumbling
from headrace.errors import ConfigError
from headrace.testing import run_app

START = "2026-01-05T09:00:00Z"


def at(clock):
    return f"2026-01-05T{clock}Z"


def search_app():
    """Searches and clicks: what came of each search, and how many clicks in a minute."""
    app = App("searching")
    common = {"lateness": "1 second", "partitions": 1}
    searches = app.stream(
        "searches", schema="search long, words string, at timestamp", event_time="at", **common
    )
    clicks = app.stream(
        "clicks", schema="search long, link string, clicked_at timestamp", event_time="clicked_at", **common
    )

    @app.view(key=["search", "link"])
    def outcomes():
        return searches.join(clicks, on="search", how="left", after="10 seconds")

    @app.view
    def clicks_per_minute():
        both = searches.join(clicks, on="search", after="10 seconds")
        return both.window(tumbling("1 minute"), by="words").agg(n=agg.count())

    return app


def search(number, clock, words="tea"):
    return {"search": number, "words": words, "at": at(clock)}


def click(number, link, clock):
    return {"search": number, "link": link, "clicked_at": at(clock)}


def outcomes(run):
    return [(row["search"], row["link"]) for row in run.rows("outcomes")]


def test_a_pair_is_there_at_once_and_a_search_nobody_clicked_when_its_time_has_passed():
    with run_app(search_app(), start=START) as run:
        run.send("searches", search(1, "09:00:01"), search(2, "09:00:02"))
        run.send("clicks", click(1, "a", "09:00:05"))
        assert outcomes(run) == [(1, "a")]
        run.send("clicks", click(3, "z", "09:00:13"))  # its watermark, 12 s, is not past 2 s + 10 s
        assert outcomes(run) == [(1, "a")]
        run.send("clicks", click(3, "z", "09:00:14"))
        assert outcomes(run) == [(1, "a"), (2, None)]
        assert run.rows("clicks_per_minute") == []
        run.stop_input()
        assert [row["n"] for row in run.rows("clicks_per_minute")] == [1]


def test_what_became_of_the_records_of_each_input_is_counted():
    with run_app(search_app(), start=START) as run:
        run.send("searches", search(1, "09:00:10"), search(2, "09:00:02"), b"no JSON")
        run.send("clicks", click(1, "a", "09:00:11"))
        assert run.inputs("outcomes") == {
            "searches": {"on_time": 1, "dropped": 1, "dead": 1},
            "clicks": {"on_time": 1},
        }
        assert run.counters("outcomes") == {"on_time": 2, "dropped": 1, "dead": 1}
        assert sorted({each.about["topic"] for each in run.late}) == ["searches"]


def shop_app(**options):
    """A table of rates that change, sales with the rate of their time, and how many have a rate."""
    app = App("shop")
    rates = app.table(
        "rates",
        key="country",
        schema="country string, rate double, since timestamp",
        valid_from="since",
        partitions=1,
        **options,
    )
    sales = app.stream(
        "sales", schema="sale long, country string, at timestamp", event_time="at", partitions=1
    )

    @app.view(key="sale")
    def invoices():
        return sales.join(rates, on="country", how="left")

    @app.view
    def countries():
        return rates

    @app.view
    def known():
        return rates.group_by("rate").agg(n=agg.count())

    return app


def rate(country, value, clock):
    return {"country": country, "rate": value, "since": at(clock)}


def test_a_sale_has_the_rate_of_its_time_and_a_table_follows_its_topic():
    with run_app(shop_app(), start=START) as run:
        run.send("rates", rate("de", 0.19, "08:00:00"), rate("de", 0.16, "09:30:00"))
        run.send("rates", rate("fr", 0.2, "09:31:00"))
        run.send("sales", {"sale": 1, "country": "de", "at": at("09:00:00")})
        run.send("sales", {"sale": 2, "country": "de", "at": at("09:30:30")})
        assert [(row["sale"], row["rate"]) for row in run.rows("invoices")] == [(1, 0.19), (2, 0.16)]
        run.send("rates", None, key="fr")
        assert [row["country"] for row in run.rows("countries")] == ["de"]
        assert [(row["rate"], row["n"]) for row in run.rows("known")] == [(0.16, 1)]
        assert run.rows("countries")[0]["since"] == datetime(2026, 1, 5, 9, 30, tzinfo=UTC)


def change(op, row, clock):
    """A change of a row as a database commits it at that time."""
    before, after = (row, None) if op == "d" else (None, row)
    moment = int(datetime.fromisoformat(at(clock)).timestamp() * 1000)
    return {"op": op, "before": before, "after": after, "source": {"ts_ms": moment}}


def test_a_row_that_is_deleted_was_there_until_its_database_deleted_it():
    """Not since `valid_from`, which says of a row that is gone only when it came."""
    row = rate("de", 0.19, "08:00:00")
    with run_app(shop_app(format="debezium"), start=START) as run:
        run.send("rates", change("c", row, "08:10:00"), change("d", row, "09:30:00"), key="de")
        run.send("sales", {"sale": 1, "country": "de", "at": at("09:00:00")})
        run.send("sales", {"sale": 2, "country": "de", "at": at("09:31:00")})
        run.stop_input()
        assert [(row["sale"], row["rate"]) for row in run.rows("invoices")] == [(1, 0.19), (2, None)]


def test_a_topic_that_no_view_reads_is_named_with_those_that_are_read():
    with (
        run_app(shop_app(), start=START) as run,
        pytest.raises(ConfigError, match="'x'; the streams are: sales, rates"),
    ):
        run.send("x", {})


def test_a_join_with_steps_needs_a_spark():
    app = App("steps")
    table = app.table("t", key="k", schema="k long")
    app.view(name="few")(lambda: table.where("k > 1").group_by("k").agg(n=agg.count()))
    with pytest.raises(ConfigError, match="'few' has where, select or with_columns"):
        run_app(app)


def test_joins_are_tested_without_a_spark():
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_application_joins as t; "
        "t.test_a_pair_is_there_at_once_and_a_search_nobody_clicked_when_its_time_has_passed(); "
        "print([name for name in sys.modules if name.startswith('pyspark')])"
    )
    folder = __file__.rpartition("/")[0]
    done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr


def test_a_group_that_does_not_fit_is_told_of_and_comes_back():
    app = App("bank")
    entries = app.table("entries", key="id", schema="id long, account string, cents long", partitions=1)
    app.view(name="sums")(lambda: entries.group_by("account").agg(cents=agg.sum("cents")))
    app.view(name="extremes")(
        lambda: entries.group_by("account").agg(cents=agg.sum("cents"), most=agg.max("cents"))
    )
    with run_app(app) as run:
        run.send("entries", {"id": 1, "account": "a", "cents": 2**63 - 1})
        run.send("entries", {"id": 2, "account": "a", "cents": 1}, {"id": 3, "account": "b", "cents": 5})
        assert [row["account"] for row in run.rows("sums")] == ["b"]
        assert [(each.reason, each.value, each.about["view"], each.about["topic"]) for each in run.dead] == [
            ("overflow", b'{"account":"a"}', "sums", "entries"),
            ("overflow", b'{"account":"a"}', "extremes", "entries"),
        ]
        assert run.dead[0].about["error"] == "cents is 9223372036854775808, which does not fit int64"
        run.send("entries", None, key="2")
        assert [row["cents"] for row in run.rows("sums")] == [2**63 - 1, 5]
        assert len(run.dead) == 2


def test_a_window_over_a_join_that_ends_beyond_the_calendar_is_told_of():
    app = App("far")
    events = app.stream(
        "events", schema="id long, at timestamp", event_time="at", max_ahead="3000000 days", partitions=1
    )
    names = app.table("names", key="id", schema="id long, name string", partitions=1)
    app.view(name="days")(
        lambda: events.join(names, on="id", how="left").window(tumbling("1 day"), by="id").agg(n=agg.count())
    )
    with run_app(app) as run:
        run.send("events", {"id": 1, "at": "9999-12-31T12:00:00Z"})
        run.stop_input()
        assert run.rows("days") == []
        assert [(each.reason, each.value) for each in run.dead] == [("overflow", b'{"id":1}')]
