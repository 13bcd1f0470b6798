"""Views over HTTP: descriptions, rows, pages, CSV, and reads that wait for a write."""

import csv
import io
import threading
import time

import pytest
from tests.integration.console.conftest import row
from tests.integration.console.http_client import ask
from tests.integration.console.shop import Shop

from headrace.console.write.tokens import decode_token, encode_token
from headrace.testing.console import ConsoleProcess

ROWS = "/v1/views/revenue/rows"


def test_a_view_says_what_it_is_and_what_it_reflects(get):
    (listed,) = get("/v1/views").json["views"]
    one = get("/v1/views/revenue").json
    assert listed.keys() == one.keys()
    assert one["key"] == ["region", "minute"]
    assert one["stream"] == "orders"
    assert [each["name"] for each in one["columns"]][:2] == ["region", "minute"]
    assert one["reflected"]["offsets"] == {"orders": {"0": 0, "1": 0}}
    assert one["counters"] == {"on_time": 30}
    assert one["watermark"] == "2026-01-01T00:00:00.000Z"
    assert decode_token(one["token"]) == {"orders": {0: 0, 1: 0}}


def test_a_view_that_does_not_exist_is_told_with_those_that_do(get):
    for path in ("/v1/views/nope", "/v1/views/nope/rows", "/v1/views/nope/changes"):
        answer = get(path)
        assert answer.status == 404
        assert "revenue" in answer.json["detail"]


def orders(answer):
    return [each["orders"] for each in answer.json["rows"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"region": "us", "minute": "2026-01-01T00:03:00Z"}, [13]),
        ({"orders.ge": "27"}, [27, 28, 29]),
        ({"orders.gt": "27", "orders.lt": "29"}, [28]),
        ({"region.in": "us,ä", "orders.le": "10"}, [10]),
        ({"region.ne": "eu", "orders.eq": "10"}, [10]),
        ({"region.prefix": "u", "limit": "1"}, [10]),
        ({"revenue": "0.25"}, [1]),
        ({"score.null": "true"}, []),
        ({"tags.null": "false", "limit": "1"}, [0]),
        ({"order": "-orders", "limit": "2"}, [29, 28]),
        ({"order": "minute,-region", "limit": "4"}, [20, 10, 0, 21]),
    ],
)
def test_filters_and_orders(get, query, found):
    answer = get(ROWS, **query)
    assert answer.status == 200
    assert orders(answer) == found


@pytest.mark.parametrize(
    "query",
    [
        {"nope": "1"},
        {"orders": "many"},
        {"orders.like": "1"},
        {"minute": "yesterday"},
        {"revenue": "1e999999999"},
        {"revenue": "NaN"},
        {"score": "x"},
        {"tags": "a"},
        {"order": "nope"},
        {"order": "tags"},
        {"order": "orders,orders"},
        {"limit": "0"},
        {"cursor": "x"},
        {"token": "x"},
        {"wait_ms": "-1"},
        {"format": "xml"},
        {"region\0": "x"},
    ],
)
def test_queries_that_mean_nothing_are_refused(get, query):
    answer = get(ROWS, **query)
    assert (answer.status, answer.headers["content-type"]) == (400, "application/problem+json")


def test_pages_follow_each_other(get):
    seen, cursor = [], None
    while True:
        page = get(ROWS, order="-minute", limit=7, cursor=cursor, **{"region.ne": "us"})
        seen += orders(page)
        cursor = page.json["next"]
        if cursor is None:
            break
    assert seen == [value for minute in reversed(range(10)) for value in (minute, 20 + minute)]


@pytest.mark.parametrize("how", ["format", "accept"])
def test_csv_by_pages(console, how):
    accept, query = ({"Accept": "text/csv"}, {}) if how == "accept" else ({}, {"format": "csv"})
    answer = ask(console.url, "GET", ROWS, headers=accept, limit=2, order="-orders", **query)
    assert answer.headers["content-type"].startswith("text/csv")
    first, *rows = csv.reader(io.StringIO(answer.body.decode(), newline=""))
    assert first == ["region", "minute", "orders", "revenue", "score", "tags"]
    assert rows[0] == ["ä", "2026-01-01T00:09:00.000000Z", "29", "7.25", "29.0", '["a",null]']
    following = ask(
        console.url,
        "GET",
        ROWS,
        headers=accept,
        limit=1,
        order="-orders",
        cursor=answer.headers["headrace-next"],
        **query,
    )
    assert following.body.decode().splitlines()[1].split(",")[2] == "27"


def test_an_answer_says_what_it_reflects(get):
    answer = get(ROWS, limit=1)
    assert decode_token(answer.headers["headrace-reflects"]) == {"orders": {0: 0, 1: 0}}
    assert answer.json["sequence"] == int(answer.headers["headrace-sequence"]) == 30


# --- reads that wait -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def second(our_log, tmp_path_factory):
    """A folder whose application changes with every test, and its console."""
    data = tmp_path_factory.mktemp("second")
    with ConsoleProcess(our_log.bootstrap_servers, data=data) as console:
        yield data, console.url


@pytest.fixture
def own(our_log, make_topic, second, request):
    """A shop of this test's own, and its console."""
    data, url = second
    shop = Shop(data, our_log.bootstrap_servers, topic=make_topic(f"own-{request.node.name}"[:200], 2))
    shop.apply([row("eu", 0, 1)], offsets={0: 0, 1: 0})
    return shop, url


def test_a_read_with_a_token_waits_until_the_view_reflects_the_write(own):
    shop, url = own
    written = ask(url, "POST", f"/v1/topics/{shop.topic}/records", {"value": 1, "partition": 1}).json
    answers = []
    reader = threading.Thread(
        target=lambda: answers.append(ask(url, "GET", ROWS, token=written["token"], wait_ms=60_000))
    )
    reader.start()
    reader.join(0.5)
    assert reader.is_alive(), "it answered before the view reflected the write"
    shop.apply([row("eu", 0, 2)], offsets={0: 0})  # not yet
    reader.join(0.3)
    assert reader.is_alive()
    shop.apply([row("eu", 0, 3)], offsets={1: 1})
    reader.join(90)
    assert orders(answers[0]) == [3]
    assert decode_token(answers[0].headers["headrace-reflects"]) == {shop.topic: {0: 0, 1: 1}}


def test_a_read_that_may_not_wait_longer_says_not_yet_and_what_is_missing(own):
    shop, url = own
    token = encode_token({shop.topic: {0: 5, 1: 2}, "another": {0: 9}})
    began = time.monotonic()
    answer = ask(url, "GET", ROWS, token=token, wait_ms=200)
    assert time.monotonic() - began >= 0.2
    assert (answer.status, answer.headers["retry-after"]) == (409, "1")
    assert answer.json["type"] == "urn:headrace:problem:not-yet"
    assert answer.json["missing"] == {shop.topic: {"0": 5, "1": 2}}


def test_a_token_of_what_the_view_does_not_read_is_refused_rather_than_waited_for(own):
    _, url = own
    answer = ask(url, "GET", ROWS, token=encode_token({"another": {0: 1}}))
    assert (answer.status, answer.json["type"]) == (400, "urn:headrace:problem:foreign-token")


def test_several_tokens_are_all_waited_for(own):
    shop, url = own
    tokens = [encode_token({shop.topic: {partition: 1}}) for partition in (0, 1)]
    shop.apply([row("eu", 0, 2)], offsets={0: 1})
    assert ask(url, "GET", ROWS, token=tokens[:1]).status == 200
    assert ask(url, "GET", ROWS, token=tokens, wait_ms=0).status == 409
    shop.apply([row("eu", 0, 3)], offsets={1: 1})
    assert ask(url, "GET", ROWS, token=tokens).status == 200


def test_a_view_that_is_built_anew_reflects_less_until_it_has_caught_up(own):
    shop, url = own
    shop.apply([row("eu", 0, 9)], offsets={0: 9})
    token = encode_token({shop.topic: {0: 9}})
    assert ask(url, "GET", ROWS, token=token).status == 200
    shop.begin("second")
    assert orders(ask(url, "GET", ROWS, token=token)) == [9], "the old rows stand until the new ones come"
    shop.apply([row("us", 0, 1)], offsets={0: 1})
    assert ask(url, "GET", ROWS, token=token, wait_ms=0).status == 409
    shop.apply([row("us", 0, 9)], offsets={0: 9})
    assert orders(ask(url, "GET", ROWS, token=token)) == [9]


def test_a_view_that_is_behind_says_by_how_much(own):
    shop, url = own
    ask(url, "POST", f"/v1/topics/{shop.topic}/records", {"records": [{"value": 1, "partition": 0}] * 3})
    view = ask(url, "GET", "/v1/views/revenue").json
    assert view["lag_records"] == 3
    assert view["freshness_s"] > 0
    shop.apply([], offsets={0: 3})
    view = ask(url, "GET", "/v1/views/revenue").json
    assert (view["lag_records"], view["freshness_s"]) == (0, 0.0)


def test_a_view_whose_driver_never_ran_is_not_built_yet(own):
    shop, url = own
    shop.store.drop("revenue")
    answer = ask(url, "GET", ROWS, patient=False)
    assert (answer.status, answer.json["type"]) == (503, "urn:headrace:problem:not-built")
    (view,) = ask(url, "GET", "/v1/views").json["views"]
    assert view["problem"] and view["reflected"] is None


def test_rows_of_one_moment_while_the_view_changes_all_the_time(own):
    """Every batch changes both rows: an answer that mixed two batches would show different numbers."""
    shop, url = own
    stop = threading.Event()

    def write():
        number = 1
        while not stop.is_set():
            shop.apply([row("eu", 0, number), row("us", 0, number)], offsets={0: number})
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = [ask(url, "GET", ROWS, order="-region", limit=5) for _ in range(30)]
    finally:
        stop.set()
        writer.join()
    for answer in seen:
        assert answer.status in (200, 503), answer.body
        if answer.status == 200 and len(answer.json["rows"]) == 2:
            first, second = orders(answer)
            assert first == second == answer.json["reflected"]["offsets"][shop.topic]["0"]
    assert any(answer.status == 200 for answer in seen)


# --- without an application, and what everybody follows ------------------------------------------


def test_a_console_without_a_data_folder_has_topics_and_no_views(our_log):
    with ConsoleProcess(our_log.bootstrap_servers) as console:
        assert ask(console.url, "GET", "/v1/views").json == {"views": []}
        answer = ask(console.url, "GET", "/v1/views/revenue/rows")
        assert answer.status == 404
        assert "--data" in answer.json["next"]


def test_the_live_stream_has_all_parts_every_second(console):
    from tests.integration.console.http_client import Events

    with Events(console.url, "/v1/live") as events:
        stream = iter(events)
        first, second = next(stream), next(stream)
    assert first.name == second.name == "status"
    assert first.data["at"] < second.data["at"]
    assert first.data["problems"] == {}
    (view,) = first.data["views"]
    assert view["sequence"] == 30


def test_metrics_are_what_prometheus_reads(get):
    from tests.integration.prometheus_text import parse

    get(ROWS, limit=1)
    found = parse(get("/metrics").body.decode())
    assert found["headrace_view_events_total"]["samples"] == {
        ("headrace_view_events_total", (("outcome", "on_time"), ("view", "revenue"))): 30
    }
    assert found["headrace_view_freshness_seconds"]["samples"]
    assert found["headrace_console_requests_total"]["kind"] == "counter"
