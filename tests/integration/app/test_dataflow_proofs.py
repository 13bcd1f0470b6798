"""Joins of streams, and windows and groups over them, proved from the log: right ones hold, others do not."""

import contextlib
import json
import random
import zlib

import pytest
from app_runs import BASE_MS, catch_up, kept_running, new_topic, options, wait_until
from forged_rows import forge, where_greatest

from headrace import App, agg, tumbling
from headrace.app.query import READ
from headrace.app.verify import verified
from headrace.client import producer
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.views import open_store

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

FIELDS = ("at", "clicked_at", "since", "at", "since")  # that have the time, topic by topic
# A column of each view in which a wrong value is written.
VIEWS = {
    "outcomes": "words",
    "all_of_both": "words",
    "corrected": "words",
    "priced": "price",
    "priced_again": "price",
    "newest": "price",
    "per_minute": "n",
    "per_word": "n",
    "alike": "words",
    "per_price": "n",
}
# By default one of each kind: joins of streams and with a table, corrections, windows and a group over one.
SOME = ("outcomes", "corrected", "priced", "per_minute", "per_price")


def market(names, store, chosen):
    """Searches and clicks, and prices that change: each join by time, and windows and groups over them.

    The last two topics have the same records again, and are read with corrections. Only the `chosen`
    views are made.
    """
    searches, clicks, prices, late_searches, late_prices = names
    app = App(f"app-{searches}", store=store)
    common = {"lateness": "2 seconds", "partitions": 2, "idle_after": "10 minutes"}
    search = {"schema": "search long, words string, at long", "event_time": "at", **common}
    price = {"key": "words", "schema": "words string, price double, since long", "valid_from": "since"}
    searched = app.stream(searches, **search)
    searched_late = app.stream(late_searches, late="correct", **search)
    fields = "click long, search long, clicked_at long"
    clicked = app.stream(clicks, schema=fields, event_time="clicked_at", **common)
    table = app.table(prices, **price, **common)
    late_table = app.table(late_prices, late="correct", correct_for="20 seconds", **price, **common)
    both = searched.join(clicked, on="search", before="1 second", after="5 seconds")

    @app.view(key=["search", "click"])
    def outcomes():
        some = searched.where("search % 7 <> 0")
        return some.join(clicked, on="search", how="left", after="5 seconds")

    @app.view(key=["search", "click"])
    def all_of_both():
        return searched.join(clicked, on="search", how="full", within="3 seconds")

    @app.view(key=["search", "click"])
    def corrected():
        return searched_late.join(clicked, on="search", how="left", after="5 seconds")

    @app.view(key="search")
    def priced():
        return searched.join(table, on="words", how="left").select("search", "words", "price")

    @app.view(key="search")
    def priced_again():
        return searched.join(late_table, on="words").where("price > 1")

    @app.view(key="words")  # of which there are many: the newest of a batch replaces the one before
    def newest():
        return searched.join(table, on="words").select("words", "search", "price")

    @app.view
    def per_minute():
        return both.window(tumbling("20 seconds"), by="words").agg(n=agg.count(), last=agg.max("click"))

    @app.view
    def per_word():
        return both.group_by("words").agg(n=agg.count(), first=agg.min("search"))

    @app.view
    def per_price():
        return app.as_table(priced).group_by("price").agg(n=agg.count())

    @app.view(key="letters")  # there are several of some: the first is shown
    def alike():
        return table.select("words", "length(words) as letters")

    app.views = {name: app.views[name] for name in chosen}
    return app


def records(seed, count):
    """Rounds of records that are in time, a little behind, and late; some of them belong together."""
    chance = random.Random(seed)

    def at(number):
        behind = chance.choice([0, 0, 0, 900, 1500, 4000, 9000])
        return BASE_MS + number * 700 - behind

    found = ([], [], [])
    for number in range(count):
        words = chance.choice(["tea", "pot", "cup", None])
        found[0].append((number, {"search": number, "words": words, "at": at(number)}))
        for _ in range(chance.randrange(3)):
            search = max(0, number - chance.randrange(4)) if chance.random() < 0.9 else None
            click = {"click": len(found[1]), "search": search, "clicked_at": at(number) + 1000}
            found[1].append((search, click))
        if number % 5 == 0:
            words = chance.choice(["tea", "pot", "cup"])
            price = {"words": words, "price": round(chance.uniform(0, 9), 2), "since": at(number)}
            found[2].append((words, price if chance.random() < 0.8 else None))
    return found


def put(log, topic, rows, field):
    """Rows under their key; None deletes it, at about the time of the row before. One is no JSON."""
    client, at = producer(log), BASE_MS
    client.produce(topic, b"{", key=b"1", partition=0, timestamp=at)
    for key, row in rows:
        at = at if row is None else row[field]
        value = None if row is None else json.dumps(row).encode()
        client.produce(
            topic,
            value,
            key=json.dumps(key).encode(),
            partition=zlib.crc32(repr(key).encode()) % 2,
            timestamp=max(at, 0),
        )
    assert client.flush(60) == 0


def put_last(log, names):
    """A record in every partition that is so much later that all watermarks pass what came before."""
    last = BASE_MS + 3_000_000
    row = {"search": None, "words": None, "at": last, "click": None, "clicked_at": last}
    price = {"words": "none", "price": 2.0, "since": last}
    client = producer(log)
    for name, field in zip(names, FIELDS, strict=True):
        for partition in range(2):
            value = price if field == "since" else row | {"search": -1 - partition}
            client.produce(name, json.dumps(value).encode(), partition=partition, timestamp=last)
    assert client.flush(60) == 0


WRONG = {"n": lambda count: count + 1, "words": lambda _: "?", "price": lambda _: 0.5}


@pytest.mark.parametrize(
    "chosen",
    [
        pytest.param(SOME, id="some"),
        pytest.param(tuple(VIEWS), id="all", marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
    ],
)
def test_views_of_joins_by_time_are_proved_from_the_log_and_a_changed_row_is_found(
    our_log, spark, tmp_path, chosen
):
    names, store = [new_topic() for _ in range(5)], f"sqlite:///{tmp_path}/views.db"
    ensure_topics(our_log, dict.fromkeys(names, TopicSettings(partitions=2)))
    app, data = market(names, store, chosen), tmp_path / "data"
    searches, clicks, prices = records(seed=5, count=120)
    sent = (searches, clicks, prices, searches, prices)

    def send(share):
        for name, rows, field in zip(names, sent, FIELDS, strict=True):
            put(our_log, name, rows[: len(rows) // 2] if share == 0 else rows[len(rows) // 2 :], field)

    send(0)
    catch_up(app, our_log, data, max_records_per_batch=60)
    with kept_running(app, our_log, data) as started:
        send(1)
        put_last(our_log, names)
        wait_until(started, lambda: _alone(store, "outcomes", 119) and _alone(store, "corrected", 119))
    found = {each.view: each for each in verified(app, options(our_log, data))}
    assert {name: (each.failure, each.differences) for name, each in found.items()} == dict.fromkeys(
        chosen, (None, ())
    )
    assert all(each.rows > 1 for each in found.values()), found
    for each in found.values():
        require_balanced(each.reflected)
    counts = found["outcomes"].reflected.inputs[names[0]]
    assert all(counts[word] for word in ("on_time", "dropped", "filtered", "dead")), counts
    assert found["corrected"].reflected.inputs[names[3]]["corrected"]
    if "alike" in chosen:
        assert (found["alike"].rows, found["alike"].hidden > 0) == (2, True)
    changed = {
        view: forge(store, view, where_greatest(VIEWS[view], VIEWS[view], WRONG[VIEWS[view]]))
        for view in chosen
    }
    assert all(changed.values())
    wrong = {each.view: each for each in verified(app, options(our_log, data))}
    assert {name: (each.failure, len(each.differences)) for name, each in wrong.items()} == {
        name: (None, count) for name, count in changed.items()
    }


def require_balanced(reflected):
    """What became of the records of each input adds up to those that were read of its topic."""
    for name, counts in reflected.inputs.items():
        if name in reflected.offsets:
            read = sum(reflected.offsets[name].values())
            assert sum(counts.get(word, 0) for word in READ) == read, (name, counts, read)
    assert reflected.inputs.keys() >= reflected.offsets.keys()
    read = sum(sum(each.values()) for each in reflected.offsets.values())
    assert sum(reflected.counters.values()) == read, reflected


def _alone(store, view, search):
    """Whether this search, or one after it, is shown without a click."""
    with contextlib.closing(open_store(store)) as opened:
        rows = opened.read(view).to_pylist()
    return any(row["click"] is None and (row["search"] or 0) >= search - 3 for row in rows)
