"""Views as tables: what a view shows feeds joins and groups of others."""

import pytest

from headrace import App, agg, tumbling
from headrace.errors import ConfigError
from headrace.testing import run_app

START = "2026-01-05T09:00:00Z"
BASE_MS = 1_767_603_600_000


def shop():
    """Revenue of each region by minute, the region's manager beside it, and a view over that."""
    app = App("shop")
    common = {"partitions": 1, "idle_after": "2 seconds"}
    orders = app.stream(
        "orders", schema="region string, amount long, at long", event_time="at", lateness="1 second", **common
    )
    regions = app.table("regions", key="region", schema="region string, manager string", **common)

    @app.view
    def revenue():
        return orders.window(tumbling("1 minute"), by="region").agg(revenue=agg.sum("amount"))

    @app.view
    def managed():
        return app.as_table(revenue).join(regions, on="region", how="left")

    @app.view
    def best():
        return app.as_table("managed").group_by("manager").agg(minutes=agg.count(), most=agg.max("revenue"))

    return app


def order(region, amount, second):
    return {"region": region, "amount": amount, "at": BASE_MS + second * 1000}


def rows(run, view, *names):
    return sorted(tuple(row[name] for name in names) for row in run.rows(view))


def test_the_changes_of_a_view_feed_a_join_and_a_group():
    with run_app(shop(), start=START) as run:
        run.send("regions", {"region": "north", "manager": "ada"}, key="north")
        run.send("orders", order("north", 3, 1))
        run.send("orders", order("north", 4, 2))
        run.send("orders", order("south", 9, 3))
        run.send("orders", order("north", 5, 65))
        run.advance("2 minutes")
        names = ("region", "revenue", "manager")
        assert rows(run, "managed", *names) == [("north", 5, "ada"), ("north", 7, "ada"), ("south", 9, None)]
        assert [row["minutes"] for row in run.rows("best") if row["manager"] == "ada"] == [2]
        run.send("regions", {"region": "north", "manager": "bob"}, key="north")
        run.advance("5 seconds")
        assert rows(run, "managed", "revenue", "manager") == [(5, "bob"), (7, "bob"), (9, None)]
        assert {row["manager"]: row["most"] for row in run.rows("best")} == {"bob": 7, None: 9}


def test_a_view_of_a_stream_with_a_key_is_a_table_of_the_last_row_of_each():
    app = shop()
    app.view(name="newest", key="region")(lambda: app.streams["orders"])

    @app.view
    def by_amount():
        return app.as_table("newest").group_by("amount").agg(n=agg.count(), region=agg.max("region"))

    @app.view
    def newest_managed():
        newest = app.as_table("newest")
        return newest.join(app.tables["regions"], on="region", how="left")

    with run_app(app, start=START) as run:
        run.send("regions", {"region": "north", "manager": "ada"}, key="north")
        run.send("orders", order("north", 3, 5), order("south", 3, 6))
        assert rows(run, "by_amount", "amount", "n") == [(3, 2)]
        run.send("orders", order("north", 4, 7))
        assert rows(run, "by_amount", "amount", "n", "region") == [(3, 1, "south"), (4, 1, "north")]
        run.send("orders", order("north", 9, 6), order("south", 5, 6))  # behind it; at the same time
        assert rows(run, "by_amount", "amount", "region") == [(4, "north"), (5, "south")]
        names = ("region", "amount", "manager")
        assert rows(run, "newest_managed", *names) == [("north", 4, "ada"), ("south", 5, None)]
        assert rows(run, "newest", "region", "amount") == [("north", 4), ("south", 5)]


def test_a_view_with_a_key_of_its_own_is_the_table_of_what_it_shows():
    app = shop()
    app.view(name="managers", key="manager")(lambda: app.tables["regions"])

    @app.view
    def how_many():
        return app.as_table("managers").group_by().agg(n=agg.count(), first=agg.min("region"))

    with run_app(app, start=START) as run:
        for region, manager in (("west", "ada"), ("north", "ada"), ("east", "bob"), ("east", "ada")):
            run.send("regions", {"region": region, "manager": manager}, key=region)
            run.batch()
        assert rows(run, "managers", "region", "manager") == [("east", "ada")]
        assert rows(run, "how_many", "n", "first") == [(1, "east")]


def test_what_is_no_table_is_refused():
    app = shop()
    app.view(name="plain")(lambda: app.streams["orders"])
    app.view(name="arrived", key="region", last="arrival")(lambda: app.streams["orders"])
    for view in ("plain", "arrived"):
        with pytest.raises(ConfigError, match="is a table if it has a key and shows the last"):
            app.as_table(view)
    with pytest.raises(ConfigError, match="revenu"):
        app.as_table("revenu")
