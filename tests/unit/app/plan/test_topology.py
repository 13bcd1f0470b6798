"""How queries hang together: rings are refused before anything runs, and who tells whom the time."""

import contextlib
import itertools
import sqlite3

import pytest
from tests.unit.sourcing.accounts import Account, decide, evolve

from headrace import App, agg, tumbling
from headrace.errors import ConfigError
from headrace.testing import run_app
from headrace.testing.application import plan_for_test

SCHEMA = "id string, at timestamp"
NUMBERS = {"event_time": "at", "schema": "at long"}
NESTED = {"event_time": "payload.at", "schema": "at timestamp, payload struct<at: timestamp>"}


def ring(app, *names):
    """A stream on each topic, made into the next one."""
    for name, following in itertools.pairwise(names):
        stream = app.stream(name, schema=SCHEMA)
        app.topic(following)(lambda stream=stream: stream)


@pytest.mark.parametrize("names", [["orders"], ["orders", "clean"], ["a", "b", "c", "d"]])
def test_a_topic_that_is_made_from_itself_is_refused_however_far_the_way(names):
    app = App("shop")
    ring(app, *names, names[0])
    with pytest.raises(ConfigError, match="go round forever: " + " -> ".join([*names, names[0]])):
        plan_for_test(app, None)


def test_a_ring_is_named_without_what_hangs_on_it():
    app = App("shop")
    ring(app, "before", "aside")
    ring(app, "orders", "clean", "orders")
    app.topic("behind")(lambda: app.streams["clean"])
    app.view(name="rows")(lambda: app.streams["orders"])
    with pytest.raises(ConfigError, match="forever: orders -> clean -> orders"):
        plan_for_test(app, None)


def counted(stream):
    return stream.window(tumbling("1 minute"), by="id").agg(n=agg.count())


def test_the_changelog_of_an_aggregation_may_not_be_its_own_input():
    app = App("shop")
    orders = app.stream("orders", schema=SCHEMA)
    app.topic("orders")(lambda: counted(orders))
    with pytest.raises(ConfigError, match="orders -> orders"):
        plan_for_test(app, None)


@pytest.mark.parametrize("store", ["topic://orders", "topic://or*"])
def test_a_view_that_is_kept_on_a_topic_may_not_read_it(store):
    app = App("shop", store=store)
    orders = app.stream("orders", schema=SCHEMA)
    app.view(name="ders")(lambda: counted(orders))
    with pytest.raises(ConfigError, match="orders -> orders"):
        plan_for_test(app, None)


def test_what_is_made_of_dead_letters_may_not_make_dead_letters_itself():
    app = App("shop")
    letters = app.stream("shop.dead", schema="_value binary", decoder="raw")
    app.topic("again")(lambda: letters)
    again = app.stream("again", schema=SCHEMA)
    app.view(name="read")(lambda: again)
    with pytest.raises(ConfigError, match=r"shop.dead -> again -> shop.dead"):
        plan_for_test(app, None)


def test_letters_that_cannot_be_read_are_counted_and_not_written_down_again():
    app = App("shop")
    orders = app.stream("orders", schema=SCHEMA)
    app.view(name="rows")(lambda: orders)
    letters = app.stream("shop.dead", schema="id string, of long")
    app.view(name="letters")(lambda: letters)
    with run_app(app) as run:
        run.send("orders", b"{no JSON")
        assert len(run.dead) == 1
        assert run.counters("letters") == {"dead": 1}


def test_letters_that_come_too_late_are_counted_and_not_written_down_again():
    app = App("shop")
    time = {"schema": SCHEMA, "event_time": "at", "partitions": 1}
    orders, late = app.stream("orders", **time), app.stream("shop.late", **time)
    app.view(name="orders_counted")(lambda: counted(orders))
    app.view(name="late_counted")(lambda: counted(late))
    with run_app(app, start="2026-01-05T10:00:00Z") as run:
        for minute in (0, 30, 20, 10):
            run.send("orders", {"id": "a", "at": f"2026-01-05T09:{minute:02}:00Z"})
        assert len(run.late) == 2
        assert run.counters("late_counted") == {"on_time": 1, "dropped": 1}


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({"event_time": "at"}, {"event_time": "at"}, True),
        ({"event_time": "at"}, {}, True),
        ({}, {}, True),
        ({}, {"event_time": "at"}, False),
        ({"event_time": "at"}, {"event_time": "sent"}, False),
        ({"event_time": "at", "sent_at": "sent"}, {"event_time": "at"}, False),
        ({"event_time": "at"}, {"event_time": "at", "schema": "at date"}, False),
        (NUMBERS, NUMBERS, True),
        (NUMBERS, {**NUMBERS, "time_unit": "s"}, False),
        (NESTED, NESTED, True),
        ({"event_time": "at"}, NESTED, False),
    ],
)
def test_a_second_stage_is_told_the_time_of_the_first_where_it_goes_on_with_it(first, second, told):
    app = App("shop")
    schema = {"schema": "at timestamp, sent timestamp"}
    orders = app.stream("orders", **(schema | first))
    app.topic("copies")(lambda: orders)
    copies = app.stream("copies", **(schema | second))
    app.view(name="rows")(lambda: copies)
    found = {each.name: each for each in plan_for_test(app, None)}
    assert found["copies"].stream.spec.follows_maker is told
    assert [each.name for each in found["orders"].followers] == ["copies"]


@pytest.mark.parametrize(
    ("event_time", "said", "by"),
    [("at", None, "event_time"), (None, None, "arrival"), ("at", "arrival", "arrival")],
)
def test_the_last_record_of_a_key_is_the_last_by_event_time_unless_it_is_said_otherwise(event_time, said, by):
    app = App("shop")
    orders = app.stream("orders", schema=SCHEMA, event_time=event_time)
    app.view(name="now", key="id", last=said)(lambda: orders)
    ((view,),) = [each.views for each in plan_for_test(app, None)]
    assert view.plan.latest.by == by


@pytest.mark.parametrize("store", ["topic://orders?partitions=3", "topic://or*?compacted=true"])
def test_the_settings_of_a_topic_in_its_url_hide_no_ring(store):
    app = App("shop", store=store)
    orders = app.stream("orders", schema=SCHEMA)
    app.view(name="ders")(lambda: counted(orders))
    with pytest.raises(ConfigError, match="orders -> orders"):
        plan_for_test(app, None)


def test_a_topic_of_the_same_name_on_another_log_is_no_ring():
    app = App("shop", store="topic://orders?bootstrap=elsewhere:9092")
    orders = app.stream("orders", schema=SCHEMA)
    app.view(name="copied")(lambda: counted(orders))
    plan_for_test(app, None)


@pytest.mark.parametrize(
    ("stores", "said"),
    [
        (("topic://hourly", "topic://hourly"), "topic 'hourly' holds one view"),
        (("topic://hourly?partitions=3", "topic://hourly"), "topic 'hourly' holds one view"),
        (("topic://Ho*", "topic://Hot"), "topic 'Hot' holds one view"),
        ((None, None), "SQLite does not tell names apart by case"),
        (("sqlite:///a.db", "sqlite:///a.db"), "SQLite does not tell names apart by case"),
    ],
)
def test_two_views_that_would_be_kept_in_one_place_are_refused(stores, said):
    app = App("shop")
    orders = app.stream("orders", schema=SCHEMA)
    for name, store in zip(("t", "T"), stores, strict=True):
        app.view(name=name, store=store)(lambda: counted(orders))
    with pytest.raises(ConfigError, match="view 'T' cannot be kept where view 't' is: ") as refused:
        plan_for_test(app, None)
    assert said in str(refused.value)


def test_views_in_places_of_their_own_are_not_refused():
    app = App("shop")
    orders = app.stream("orders", schema=SCHEMA)
    stores = ("topic://a*", "topic://b", "topic://b?bootstrap=elsewhere:9092", "sqlite:///a.db", None)
    for number, store in enumerate((*stores, "parquet:///views", "memory://views", "memory://views")):
        app.view(name=f"v{number}", store=store)(lambda: counted(orders))
    app.topic("c")(lambda: counted(orders))
    plan_for_test(app, None)


def test_a_topic_that_the_application_makes_holds_no_view_beside():
    app = App("shop")
    orders = app.stream("orders", schema=SCHEMA)
    app.topic("clean")(lambda: orders)
    app.view(name="hourly", store="topic://clean")(lambda: counted(orders))
    with pytest.raises(ConfigError, match="topic 'clean' holds one view"):
        plan_for_test(app, None)


@pytest.mark.parametrize(
    ("topic", "owner"),
    [
        ("shop.account.events", "entity 'account'"),
        ("shop.account.commands", "entity 'account'"),
        ("shop.account.answers", "entity 'account'"),
        ("shop.account.snapshots", "entity 'account'"),
        ("bank.main.customers", "capture 'bank'"),
        ("bank.transaction", "capture 'bank'"),
        ("shop.dead", "the application's dead letters"),
        ("shop.late", "the application's late records"),
    ],
)
def test_a_topic_that_something_else_writes_takes_no_derived_rows(topic, owner, tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "bank.db")) as bank:
        bank.execute("CREATE TABLE customers (id INTEGER PRIMARY KEY)")
    for kept_on in ("derived", "store"):
        app = App("shop", store=f"topic://{topic}")
        app.entity("account", decide=decide, evolve=evolve, initial=Account())
        captured = app.capture(f"sqlite:///{tmp_path}/bank.db", table="customers")
        assert owner.startswith("capture") <= (topic in (captured.topic, captured.transactions))
        orders = app.stream("orders", schema=SCHEMA)
        if kept_on == "derived":
            app.topic(topic)(lambda orders=orders: orders)
        else:
            app.view(name="v")(lambda orders=orders: counted(orders))
        with pytest.raises(ConfigError, match=rf"topic '{topic}' belongs to {owner}, .* name another"):
            plan_for_test(app, None)
