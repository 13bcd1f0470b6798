"""Joins of a stream with tables behind steps, with a stream's last rows and with groups; windows that wait.

On a log and on Spark; what each view shows is told by hand, and verified by the SQL of its page.
"""

import contextlib
import json

import pytest
from app_runs import BASE_MS, catch_up, new_topic, options

from headrace import App, agg, sliding, tumbling
from headrace.app.verify import verified
from headrace.client import producer
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.views import open_store

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def shop(topics, store):
    customers_topic, rates_topic, orders_topic = topics
    app = App(f"app-{orders_topic}", store=store)
    late = {"late": "correct", "correct_for": "20 seconds"}
    customers = app.table(
        customers_topic, key="id", schema="id long, name string, active boolean", partitions=1, **late
    )
    rates = app.stream(
        rates_topic, schema="currency string, rate long, at long", event_time="at", partitions=1
    )
    orders = app.stream(
        orders_topic,
        schema="number long, customer long, currency string, at long",
        event_time="at",
        partitions=1,
    )
    named = customers.where("active").select("id as customer_id", "upper(name) as name")
    with_customers = orders.join(named, on={"customer": "customer_id"}, how="left")

    @app.view(key="currency")
    def current_rates():
        return rates

    @app.view(key="number")
    def with_names():
        return with_customers.select("number", "name")

    @app.view
    def per_name():
        return with_customers.window(tumbling("10 seconds"), by="name").agg(orders=agg.count())

    @app.view
    def recent():
        return with_customers.window(sliding("4 seconds"), by="customer").agg(orders=agg.count())

    @app.view(key="number")
    def with_rates():
        table = app.as_table(current_rates).where("rate > 0").select("currency", "rate * 10 as tenfold")
        return orders.join(table, on="currency", how="left").select("number", "tenfold")

    @app.view(key="number")
    def with_counts():
        counts = orders.group_by("currency").agg(orders=agg.count())
        return orders.join(counts, on="currency", version="latest").select("number", "orders")

    return app


def put(log, topic, *records):
    """Records by the second of their time: of a table (key, row), of a stream the row."""
    client = producer(log)
    for second, row in records:
        key, row = row if isinstance(row, tuple) else (None, {**row, "at": BASE_MS + second * 1000})
        client.produce(
            topic,
            None if row is None else json.dumps(row).encode(),
            key=None if key is None else json.dumps({"id": key}).encode(),
            timestamp=BASE_MS + second * 1000,
        )
    assert client.flush(60) == 0


def customer(number, name, *, active=True):
    return number, {"id": number, "name": name, "active": active}


def order(number, by, currency="eur"):
    return {"number": number, "customer": by, "currency": currency}


def shown(store, view, *names):
    with contextlib.closing(open_store(store)) as opened:
        rows = opened.read(view).to_pylist()
    return sorted((tuple(row[name] for name in names) for row in rows), key=repr)


def test_a_stream_is_joined_with_any_table_and_windows_wait_for_corrections(our_log, spark, tmp_path):
    topics, store = [new_topic() for _ in range(3)], f"sqlite:///{tmp_path}/views.db"
    customers, rates, orders = topics
    ensure_topics(our_log, dict.fromkeys(topics, TopicSettings(partitions=1)))
    put(our_log, customers, (0, customer(1, "ada")), (5, customer(1, "ada", active=False)))
    put(our_log, rates, (0, {"currency": "eur", "rate": 2}), (6, {"currency": "eur", "rate": -1}))
    put(our_log, orders, *((second, order(second, 1)) for second in (1, 4, 6, 9)))
    catch_up(shop(topics, store), our_log, tmp_path / "data")
    # A version that comes late corrects the orders at 4 and 5; the windows wait for it.
    put(our_log, customers, (7, customer(1, "eve")), (4, customer(1, "bob")), (60, customer(2, "far")))
    put(our_log, rates, (8, {"currency": "eur", "rate": 3}), (60, {"currency": "eur", "rate": 4}))
    put(our_log, orders, (5, order(5, 1)), (60, order(60, 2)))
    catch_up(shop(topics, store), our_log, tmp_path / "data")
    assert shown(store, "with_names", "number", "name") == [
        (1, "ADA"), (4, "BOB"), (5, None), (6, None), (9, "EVE"),
    ]  # fmt: skip
    assert shown(store, "per_name", "name", "orders") == [("ADA", 1), ("BOB", 1), ("EVE", 1), (None, 2)]
    recent = shown(store, "recent", "window_end", "orders")
    assert [(at.second, count) for at, count in recent] == [(1, 1), (4, 2), (5, 2), (6, 3), (9, 2)]
    assert shown(store, "with_rates", "number", "tenfold") == [
        (1, 20), (4, 20), (5, 20), (6, None), (9, 30),
    ]  # fmt: skip
    assert {number for number, _ in shown(store, "with_counts", "number", "orders")} == {1, 4, 5, 6, 9, 60}
    told = []
    verdicts = verified(shop(topics, store), options(our_log, tmp_path / "data"), on_message=told.append)
    assert {each.view: (each.failure, each.differences) for each in verdicts} == dict.fromkeys(
        ("current_rates", "with_names", "per_name", "recent", "with_rates"), (None, ())
    )
    assert any("with_counts: not verified" in each and "read first" in each for each in told)
