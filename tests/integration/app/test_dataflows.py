"""Tables, joins and groups of an application, on a log and on Spark, against DuckDB."""

import contextlib
import json
import sqlite3

import duckdb
import pyarrow as pa
import pytest
from app_runs import BASE_MS, catch_up, kept_running, new_topic, options, wait_until, with_restarts

from headrace import App, agg, tumbling
from headrace.app.status.status import rebuild_progress
from headrace.app.verify import verified
from headrace.client import producer
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.errors import ConfigError
from headrace.views import open_store
from headrace.views.rebuilt import Rebuilds

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

CUSTOMERS = "id long, name string, region string"
ORDERS = "order_id long, customer_id long, amount double, at long"


def put(log, topic, rows, *, key, after_s=0.0):
    """Rows as upserts under their key, or deletes of a key (`None` as the row), in order."""
    client = producer(log)
    for number, (name, row) in enumerate(rows):
        value = None if row is None else json.dumps(row).encode()
        stamp = BASE_MS + round((after_s + number) * 1000)
        client.produce(topic, value, key=json.dumps({key: name}).encode(), timestamp=stamp)
    assert client.flush(60) == 0


def customer(number, name, region):
    return number, {"id": number, "name": name, "region": region}


def order(number, customer_id, amount, second):
    at = BASE_MS + round(second * 1000)
    return number, {"order_id": number, "customer_id": customer_id, "amount": amount, "at": at}


def shop(customers, orders, store):
    """Tables of customers and orders, and everything that can be made of the two."""
    app = App(f"app-{customers}", store=store)
    people = app.table(customers, key="id", schema=CUSTOMERS, partitions=2)
    bought = app.table(orders, key="order_id", schema=ORDERS, partitions=2)
    joined = bought.join(people, on={"customer_id": "id"}, how="left")

    @app.view
    def northerners():
        return people.where("region = 'north'").select("id", "upper(name) as name")

    @app.view
    def orders_with_customers():
        return joined

    @app.view
    def per_region():
        return joined.where("amount > 0").group_by("region").agg(n=agg.count(), total=agg.sum("amount"))

    @app.view
    def regulars():
        """Three stages by one key, for which one shuffle is enough."""
        spent = joined.group_by("customer_id").agg(n=agg.count(), total=agg.sum("amount"))
        often = spent.where("n > 1 OR total > 4").select("customer_id AS customer", "total")
        return often.group_by("customer").agg(most=agg.max("total"))

    return app


def shown(store, view, order_by):
    with contextlib.closing(open_store(store)) as opened:
        rows = opened.read(view).to_pylist()
    return by_key(rows, order_by)


def by_key(rows, names):
    return sorted(rows, key=lambda row: repr([row[name] for name in names]))


def newest(rows):
    return [row for row in dict(rows).values() if row is not None]


def judged(people, bought):
    """What SQL makes of the newest rows."""
    fields = [("id", "int64"), ("name", "string"), ("region", "string")]
    c = pa.Table.from_pylist(newest(people), schema=pa.schema(fields))  # noqa: F841
    fields = [("order_id", "int64"), ("customer_id", "int64"), ("amount", "float64"), ("at", "int64")]
    o = pa.Table.from_pylist(newest(bought), schema=pa.schema(fields))  # noqa: F841
    joined = "select o.*, id, name, region from o left join c on o.customer_id = c.id"
    return {
        "northerners": duckdb.sql("select id, upper(name) as name from c where region = 'north'"),
        "orders_with_customers": duckdb.sql(joined),
        "per_region": duckdb.sql(
            f"select region, count(*) n, sum(amount) total from ({joined}) where amount > 0 group by region"
        ),
        "regulars": duckdb.sql(
            f"select customer_id customer, sum(amount) most from ({joined}) group by customer_id "
            "having count(*) > 1 or sum(amount) > 4"
        ),
    }


@pytest.mark.parametrize("restarts", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_views_of_tables_follow_updates_deletes_and_restarts(our_log, spark, tmp_path, restarts):
    customers, orders, store = new_topic(), new_topic(), f"sqlite:///{tmp_path}/views.db"
    people = [customer(1, "ada", "north"), customer(2, "bob", "south"), customer(3, "eve", "north")]
    bought = [order(1, 1, 2.5, 1), order(2, 1, 4.0, 2), order(3, 2, -1.0, 3), order(4, 9, 8.0, 4)]
    rounds = [
        (people, bought),
        (
            [customer(2, "bob", "north"), (3, None), customer(9, "joe", "west")],
            [order(2, 2, 4.0, 5), (1, None), order(3, 2, 16.0, 6), order(5, 1, 0.5, 7)],
        ),
        ([(1, None), customer(3, "eve", "south")], [(2, None)]),
    ]
    keys = {"northerners": ["id"], "orders_with_customers": ["order_id"], "per_region": ["region"]}
    keys |= {"regulars": ["customer"]}
    seen = ([], [])
    ensure_topics(our_log, dict.fromkeys((customers, orders), TopicSettings(partitions=2)))
    for number, batches in enumerate(with_restarts(rounds, restarts)):
        for topic, key, rows, all_rows in zip(
            (customers, orders), ("id", "order_id"), batches, seen, strict=True
        ):
            put(our_log, topic, rows, key=key, after_s=number * 10)
            all_rows += rows
        catch_up(shop(customers, orders, store), our_log, tmp_path / "data")
        for view, expected in judged(*seen).items():
            found = shown(store, view, keys[view])
            wanted = by_key(expected.to_arrow_table().to_pylist(), keys[view])
            assert found == wanted, (number, view)
    app = shop(customers, orders, store)
    verdicts = list(verified(app, options(our_log, tmp_path / "data")))
    assert {each.view: (each.failure, each.differences) for each in verdicts} == dict.fromkeys(
        keys, (None, ())
    )
    with contextlib.closing(sqlite3.connect(tmp_path / "views.db")) as database:
        tables = [name for (name,) in database.execute("select name from sqlite_master where type = 'table'")]
        (table,) = [name for name in tables if name.endswith("per_region")]
        database.execute(f'update "{table}" set n = n + 1')
        database.commit()
    (wrong,) = verified(app, options(our_log, tmp_path / "data"), "per_region")
    assert "rows are not what was written" in wrong.failure


def test_a_view_that_changed_is_refused_and_others_are_told_nothing(our_log, spark, tmp_path):
    customers, orders, store = new_topic(), new_topic(), f"sqlite:///{tmp_path}/views.db"
    ensure_topics(our_log, dict.fromkeys((customers, orders), TopicSettings(partitions=2)))
    put(our_log, customers, [customer(1, "ada", "north")], key="id")
    catch_up(shop(customers, orders, store), our_log, tmp_path / "data")
    changed = App(f"app-{customers}", store=store)
    people = changed.table(customers, key="id", schema=CUSTOMERS, partitions=2)
    changed.view(name="northerners")(lambda: people.where("region = 'south'").select("id", "name"))
    with pytest.raises(ConfigError, match=r"northerners.*steps.*--rebuild"):
        catch_up(changed, our_log, tmp_path / "data")
    catch_up(changed, our_log, tmp_path / "data", rebuild=True)
    assert shown(store, "northerners", ["id"]) == []


def test_the_invoice_has_the_rate_that_was_valid_at_its_sale(our_log, spark, tmp_path):
    rates, sales, store = new_topic(), new_topic(), f"sqlite:///{tmp_path}/views.db"

    def taxes():
        app = App(f"app-{rates}", store=store)
        table = app.table(
            rates,
            key="country",
            schema="country string, rate double, since long",
            valid_from="since",
            partitions=1,
        )
        stream = app.stream(
            sales,
            schema="sale long, country string, at long",
            event_time="at",
            lateness="1 second",
            partitions=1,
        )

        @app.view(key="sale")
        def invoices():
            return stream.join(table, on="country", how="left").select("sale", "country", "rate")

        return app

    def rate(country, value, second):
        return country, {"country": country, "rate": value, "since": BASE_MS + second * 1000}

    def sale(number, country, second):
        return number, {"sale": number, "country": country, "at": BASE_MS + second * 1000}

    catch_up(taxes(), our_log, tmp_path / "data")
    put(our_log, rates, [rate("de", 0.19, 0), rate("de", 0.16, 100)], key="country")
    put(our_log, sales, [sale(1, "de", 50), sale(2, "de", 100), sale(3, "fr", 60)], key="sale")
    catch_up(taxes(), our_log, tmp_path / "data")
    put(our_log, rates, [rate("de", 0.07, 200), rate("fr", 0.2, 0), rate("de", 0.19, 300)], key="country")
    put(our_log, sales, [sale(4, "de", 99), sale(5, "de", 250), sale(6, "de", 400)], key="sale")
    with kept_running(taxes(), our_log, tmp_path / "data") as started:
        found = wait_until(started, lambda: len(rows := shown(store, "invoices", ["sale"])) == 6 and rows)
    assert [(row["sale"], row["rate"]) for row in found] == [
        (1, 0.19),
        (2, 0.16),
        (3, None),  # its rate became known after the sale had been given out
        (4, 0.19),
        (5, 0.07),
        (6, 0.19),
    ]


def test_the_search_nobody_clicked_comes_out_when_its_time_has_passed(our_log, spark, tmp_path):
    searches, clicks, store = new_topic(), new_topic(), f"sqlite:///{tmp_path}/views.db"
    app = App(f"app-{searches}", store=store)
    common = {"lateness": "1 second", "partitions": 1, "idle_after": "2 seconds"}
    fields = "search long, words string, at long"
    searched = app.stream(searches, schema=fields, event_time="at", **common)
    fields = "search long, link string, clicked_at long"
    clicked = app.stream(clicks, schema=fields, event_time="clicked_at", **common)

    @app.view(key=["search", "link"])
    def outcomes():
        return searched.join(clicked, on="search", how="left", after="10 seconds")

    @app.view
    def clicks_per_window():
        both = searched.join(clicked, on="search", after="10 seconds")
        return both.window(tumbling("20 seconds"), by="words").agg(n=agg.count())

    def search(number, second, words="tea"):
        return number, {"search": number, "words": words, "at": BASE_MS + second * 1000}

    def click(number, link, second):
        return number, {"search": number, "link": link, "clicked_at": BASE_MS + second * 1000}

    with kept_running(app, our_log, tmp_path / "data") as started:
        put(our_log, searches, [search(1, 0), search(2, 5), search(3, 8)], key="search")
        put(our_log, clicks, [click(1, "a", 3), click(1, "b", 10), click(3, "c", 30)], key="search")
        found = wait_until(
            started, lambda: len(rows := shown(store, "outcomes", ["search", "link"])) == 4 and rows
        )
        counts = wait_until(started, lambda: shown(store, "clicks_per_window", ["words"]))
    assert [(row["search"], row["words"], row["link"]) for row in found] == [
        (1, "tea", "a"),
        (1, "tea", "b"),
        (2, "tea", None),
        (3, "tea", None),  # clicked, but too long after
    ]
    assert [row["n"] for row in counts] == [2]


def test_what_a_join_cannot_follow_is_refused_where_it_is_declared():
    app = App("refused")
    common = {"schema": "k long, at long", "event_time": "at"}
    late = app.stream("a", **common, late="correct")
    other = app.stream("b", schema="k long, b_at long", event_time="b_at")
    table = app.table("t", key="k", schema="k long, name string")
    for refused, message in (
        (lambda: late.join(other, on="k"), "needs a span of time"),
        (lambda: late.join(other, on="k", within="1 second", after="1 second"), "not both"),
        (lambda: table.join(late, on="k"), r"stream\.join\(table"),
        (lambda: late.join(table, on={"k": "name"}), "by the table's key"),
        (lambda: late.join(table, on="k", how="full"), '"inner" or "left"'),
        (lambda: late.join(table.group_by("k").agg(n=agg.count()), on="k"), 'version="latest"'),
        (lambda: late.join(table.join(table, on="k", prefix="p_"), on="k"), "one after the other"),
        (lambda: table.window(tumbling("1 minute")), "no time of their own"),
        (lambda: app.table("a", key="k", schema="k long"), "declared twice"),
        (lambda: app.table("u", key="x", schema="k long"), "key of table 'u'"),
    ):
        with pytest.raises(ConfigError, match=message):
            refused()


def regions(customers, store, region, *, with_counts=True, with_pairs=False):
    app = App(f"app-{customers}", store=store)
    people = app.table(customers, key="id", schema=CUSTOMERS, partitions=2)

    @app.view
    def chosen():
        return people.where(f"region = '{region}'").select("id", "name")

    if with_counts:

        @app.view
        def per_region():
            pairs = people.join(people, on="region", prefix="other_")
            return pairs.group_by("region").agg(n=agg.count())

    if with_pairs:

        @app.view
        def neighbours():
            return people.join(people, on="region", prefix="other_").where("id < other_id")

    return app


def query_ids(data):
    return {
        path.parent.name: json.loads(path.read_text())["query_id"]
        for path in (data / "dataflows").glob("*/manifest.json")
    }


def test_a_changed_view_is_built_alone_while_its_old_rows_are_served_and_a_removed_one_leaves_nothing(
    our_log, spark, tmp_path
):
    topic, store, data = new_topic(), f"sqlite:///{tmp_path}/views.db", tmp_path / "data"
    ensure_topics(our_log, {topic: TopicSettings(partitions=2)})
    people = [customer(number, f"p{number}", "north" if number % 3 else "south") for number in range(12)]
    put(our_log, topic, people, key="id")
    catch_up(regions(topic, store, "north"), our_log, data)
    before, old = query_ids(data), shown(store, "chosen", ["id"])
    changed = regions(topic, store, "south")
    with pytest.raises(ConfigError, match=r"'chosen'.*--rebuild-view chosen"):
        catch_up(changed, our_log, data)
    with pytest.raises(ConfigError, match=r"'nobody' cannot be rebuilt alone.*chosen, per_region"):
        catch_up(changed, our_log, data, rebuild_views=("nobody",))
    seen = []

    def on_batch(report):
        if report.query == "view chosen" and report.records:
            seen.append((shown(store, "chosen", ["id"]), rebuild_progress(started.status_file.status)))

    with kept_running(
        changed, our_log, data, on_batch, rebuild_views=("chosen",), max_records_per_batch=3
    ) as started:
        status = wait_until(
            started, lambda: (now := started.status_file.status).rebuild.done_at is not None and now
        )
    assert [row["id"] for row in shown(store, "chosen", ["id"])] == [0, 3, 6, 9]
    assert len(seen) > 2 and all(rows == old for rows, _ in seen[:-1]), seen
    progress = [each for _, each in seen]
    assert progress == sorted(progress) and 0 < progress[0] < 1 and progress[-1] == 1
    assert status.rebuild.targets.keys() == {"view chosen"}
    after = query_ids(data)
    assert after["per_region"] == before["per_region"] and after["chosen"] != before["chosen"]
    put(our_log, topic, [customer(12, "p12", "south")], key="id", after_s=20)  # joins what the state has
    catch_up(regions(topic, store, "south", with_pairs=True), our_log, data)
    assert {name: query_ids(data)[name] for name in after} == after
    assert shown(store, "per_region", ["region"]) == [
        {"region": "north", "n": 64},
        {"region": "south", "n": 25},
    ]
    assert len(shown(store, "neighbours", ["id", "other_id"])) == 28 + 10
    catch_up(regions(topic, store, "south", with_counts=False), our_log, data)
    assert query_ids(data).keys() == {"chosen"}
    assert not (data / "dataflows" / "per_region").exists()


def test_a_rebuilt_view_that_differs_is_held_back_over_restarts_until_it_is_approved(
    our_log, spark, tmp_path
):
    topic, store, data = new_topic(), f"sqlite:///{tmp_path}/views.db", tmp_path / "data"
    ensure_topics(our_log, {topic: TopicSettings(partitions=2)})
    people = [customer(number, f"p{number}", "north" if number % 3 else "south") for number in range(12)]
    put(our_log, topic, people, key="id")
    catch_up(regions(topic, store, "north", with_counts=False), our_log, data)
    old = shown(store, "chosen", ["id"])
    changed = regions(topic, store, "south", with_counts=False)
    catch_up(changed, our_log, data, rebuild_views=("chosen",), compare=True)
    found = Rebuilds(data).compared("chosen")
    assert (found.shown_rows, found.rebuilt_rows, found.newer_records) == (8, 4, 0)
    assert (found.changed, found.added, found.removed) == (0, 4, 8)
    put(our_log, topic, [customer(12, "p12", "south")], key="id")
    catch_up(changed, our_log, data)
    assert shown(store, "chosen", ["id"]) == old
    Rebuilds(data).approve("chosen")
    catch_up(changed, our_log, data)
    assert {row["id"] for row in shown(store, "chosen", ["id"])} == {0, 3, 6, 9, 12}
    assert [each.is_equal for each in verified(changed, options(our_log, data))] == [True]
