"""Distinct, top, dedup, union, explode and split of an application, on a log and on Spark, against DuckDB."""

import contextlib
import json

import duckdb
import pyarrow as pa
import pytest
from app_runs import BASE_MS, catch_up, kept_running, new_topic, options, wait_until, with_restarts

from headrace import App, agg, tumbling
from headrace.app.verify import verified
from headrace.client import producer
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.errors import ConfigError
from headrace.views import open_store

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

DATABASE = duckdb.connect()
ORDERS = "id long, customer string, amount double, items array<string>, paid boolean"
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("items", pa.list_(pa.string())),
        ("paid", pa.bool_()),
    ]
)
QUERIES = {
    "customers": "select distinct customer from o",
    "largest": """
        select id, customer, amount from o
        qualify row_number() over (partition by customer order by amount desc nulls last, id) <= 2""",
    "sold": """
        select item, count(*) as n
        from (select unnest(items) as item from o where paid union all select unnest(items) from o2)
        group by item""",
    "open_orders": "select id, amount from o where not coalesce(paid, false)",
    "lines": """
        select id, items[i] as item, (i - 1)::int as line
        from o, unnest(generate_series(1, len(items))) as each(i)""",
}
KEYS = {
    "customers": ["customer"],
    "largest": ["id"],
    "sold": ["item"],
    "open_orders": ["id"],
    "lines": ["id", "line"],
}


def shop(orders, returns, store):
    app = App(f"app-{orders}", store=store)
    table = app.table(orders, key="id", schema=ORDERS, partitions=2)
    other = app.table(returns, key="id", schema=ORDERS, partitions=2)
    paid, unpaid = table.split("paid")

    @app.view
    def customers():
        return table.distinct("customer")

    @app.view
    def largest():
        return table.select("id", "customer", "amount").top(2, by="amount", per="customer")

    @app.view
    def sold():
        items = paid.explode("items", name="item").select("item")
        return (
            items.union(other.explode("items", name="item").select("item"))
            .group_by("item")
            .agg(n=agg.count())
        )

    @app.view
    def open_orders():
        return unpaid.select("id", "amount")

    @app.view
    def lines():
        return table.explode("items", name="item", position="line").select("id", "item", "line")

    return app


def put(log, topic, rows):
    client = producer(log)
    for number, (key, row) in enumerate(rows):
        value = None if row is None else json.dumps(row).encode()
        client.produce(topic, value, key=json.dumps({"id": key}).encode(), timestamp=BASE_MS + number * 1000)
    assert client.flush(60) == 0


def order(number, customer, amount, items, paid):
    return number, {"id": number, "customer": customer, "amount": amount, "items": items, "paid": paid}


def shown(store, view):
    with contextlib.closing(open_store(store)) as opened:
        return in_order(opened.read(view).to_pylist(), KEYS[view])


def in_order(rows, key):
    return sorted(rows, key=lambda row: repr([row[name] for name in key]))


def judged(view, orders, returns):
    for name, rows in (("o", orders), ("o2", returns)):
        newest = [row for row in dict(rows).values() if row is not None]
        DATABASE.register(name, pa.Table.from_pylist(newest, schema=COLUMNS))
    return in_order(DATABASE.sql(QUERIES[view]).to_arrow_table().to_pylist(), KEYS[view])


@pytest.mark.parametrize("restarts", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_sets_of_rows_follow_updates_deletes_and_restarts(our_log, spark, tmp_path, restarts):
    orders, returns, store = new_topic(), new_topic(), f"sqlite:///{tmp_path}/views.db"
    rounds = [
        (
            [
                order(1, "ada", 5.0, ["tea", "cup"], True),
                order(2, "ada", 5.0, ["tea"], None),
                order(3, "ada", None, [], False),
                order(4, "bob", 7.0, None, True),
                order(5, "ada", 9.0, ["pot", "pot"], True),
            ],
            [order(1, "eve", 1.0, ["cup"], True)],
        ),
        ([(5, None), order(4, "bob", 8.0, ["tea"], True), order(2, "eve", 2.0, ["cup"], True)], [(1, None)]),
        ([(1, None), (4, None), order(6, None, 3.0, ["pot"], False)], []),
    ]
    seen = ([], [])
    ensure_topics(our_log, dict.fromkeys((orders, returns), TopicSettings(partitions=2)))
    for number, batches in enumerate(with_restarts(rounds, restarts)):
        for topic, rows, all_rows in zip((orders, returns), batches, seen, strict=True):
            put(our_log, topic, rows)
            all_rows += rows
        catch_up(shop(orders, returns, store), our_log, tmp_path / "data")
        for view in QUERIES:
            assert shown(store, view) == judged(view, *seen), (number, view)
    verdicts = list(verified(shop(orders, returns, store), options(our_log, tmp_path / "data")))
    assert {each.view: (each.failure, each.differences) for each in verdicts} == dict.fromkeys(
        QUERIES, (None, ())
    )


def test_a_repeated_click_counts_once_whatever_stream_it_comes_by(our_log, spark, tmp_path):
    web, mobile, store = new_topic(), new_topic(), f"sqlite:///{tmp_path}/views.db"
    app = App(f"app-{web}", store=store)
    common = {"schema": "id long, user string, at long", "event_time": "at", "partitions": 1}
    clicks = [app.stream(each, **common, idle_after="2 seconds") for each in (web, mobile)]
    once = clicks[0].union(clicks[1]).dedup("user", within="10 seconds")

    @app.view(key="id")
    def first_clicks():
        return once

    @app.view
    def per_minute():
        return once.window(tumbling("1 minute"), by="user").agg(n=agg.count())

    def click(number, user, second):
        return number, {"id": number, "user": user, "at": BASE_MS + second * 1000}

    KEYS.update(first_clicks=["id"], per_minute=["user", "window_start"])
    with kept_running(app, our_log, tmp_path / "data") as started:
        put(our_log, web, [click(1, "ada", 0), click(2, "ada", 8), click(3, "ada", 19), click(4, "bob", 118)])
        put(
            our_log,
            mobile,
            [click(5, "ada", 7), click(6, "bob", 3), click(7, "ada", 119), click(8, "eve", 4)],
        )
        found = wait_until(started, lambda: len(rows := shown(store, "first_clicks")) == 5 and rows)
        counts = wait_until(started, lambda: len(rows := shown(store, "per_minute")) == 4 and rows)
    assert [row["id"] for row in found] == [1, 3, 4, 6, 7]  # 8 came when 7 had moved the watermark on
    assert [(row["user"], row["n"]) for row in counts] == [("ada", 2), ("ada", 1), ("bob", 1), ("bob", 1)]
    with contextlib.closing(open_store(store)) as opened:
        assert opened.snapshot("first_clicks").reflected.counters["dropped"] == 1
    verdicts = list(verified(app, options(our_log, tmp_path / "data")))
    assert [(each.view, each.failure, each.differences, each.rows) for each in verdicts] == [
        ("first_clicks", None, (), 5),
        ("per_minute", None, (), 4),
    ]


def test_what_these_cannot_do_is_refused_where_it_is_declared():
    app = App("refused")
    stream = app.stream("a", schema="k long, at long, xs array<long>", event_time="at", late="correct")
    table = app.table("t", key="k", schema="k long, name string")
    for refused, message in (
        (lambda: table.dedup("k", within="1 minute"), "dedup is for streams"),
        (lambda: stream.union(table), "not both"),
        (lambda: stream.union(), "at least two"),
        (lambda: stream.top(1, by="k sideways"), '"asc" or "desc"'),
        (lambda: stream.split(), "needs a condition"),
        (lambda: table.join(table, on="k", version="latest"), "of a stream with a table"),
        (lambda: stream.join(table, on="k", version="newest"), "neither"),
    ):
        with pytest.raises(ConfigError, match=message):
            refused()
    latest = stream.join(table, on="k", version="latest")
    assert latest.append_only and latest.make([]).mode == "latest"
