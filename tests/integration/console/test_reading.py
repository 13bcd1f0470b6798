"""Records of topics over HTTP: pages from any place, tails, and resuming them."""

import json
import threading

import pytest
from confluent_kafka.admin import NewPartitions
from tests.integration.console.http_client import Events, ask
from websockets.sync.client import connect

from headrace.client import admin, producer

NOON_MS = 1_767_268_800_000


@pytest.fixture(scope="module")
def write(our_log):
    """Writes values, each a second after the one before, and waits until they are on disk."""
    client = producer(our_log)

    def write(topic, values, partition=0, key=None, start_ms=NOON_MS, headers=None):
        for index, value in enumerate(values):
            client.produce(topic, value, key, partition, timestamp=start_ms + 1000 * index, headers=headers)
        assert client.flush(30) == 0

    return write


@pytest.fixture(scope="module")
def filled(make_topic, write):
    """Two partitions of 50 records each, whose times alternate; retention must not touch these dates."""
    topic = make_topic("filled", 2, retention_ms=-1)
    write(topic, [f'{{"n":{2 * index}}}'.encode() for index in range(50)], 0, b"even")
    write(topic, [f'{{"n":{2 * index + 1}}}'.encode() for index in range(50)], 1, b"odd", NOON_MS + 500)
    return topic


def numbers(answer):
    return [each["value"]["n"] for each in answer.json["records"]]


def test_partitions_are_merged_by_time_and_pages_go_on_where_they_ended(get, filled):
    path, seen, cursor = f"/v1/topics/{filled}/records", [], None
    while True:
        page = get(path, limit=7, cursor=cursor)
        seen += numbers(page)
        cursor = page.json["next"]
        if cursor is None:
            break
    assert seen == list(range(100))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"partition": 1, "limit": 2}, [1, 3]),
        ({"partition": 0, "offset": 48}, [96, 98]),
        ({"partition": 0, "offset": 50}, []),
        ({"time": "2026-01-01T12:00:48.200Z"}, [97, 98, 99]),
        ({"time": "2027-01-01T00:00:00Z"}, []),
        ({"from": "end-3"}, [97, 98, 99]),
        ({"from": "end-500", "limit": 2}, [98, 99]),
        ({"from": "latest"}, []),
        ({"from": "earliest", "limit": 1}, [0]),
        ({"search": '"N":4', "limit": 3}, [4, 40, 41]),
        ({"key": "odd", "limit": 2}, [1, 3]),
        ({"search": "odd", "from": "end-2"}, [97, 99]),
        ({"search": "nothing has this"}, []),
    ],
)
def test_where_a_page_begins_and_what_is_kept(get, filled, query, found):
    answer = get(f"/v1/topics/{filled}/records", **query)
    assert answer.status == 200
    assert numbers(answer) == found


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"offset": 3}, 400),
        ({"partition": 7}, 404),
        ({"partition": 0, "offset": 51}, 410),
        ({"cursor": "0:51"}, 410),
        ({"cursor": "x"}, 400),
        ({"from": "somewhere"}, 400),
        ({"time": "noon"}, 400),
        ({"limit": 0}, 400),
    ],
)
def test_places_that_are_none(get, filled, query, status):
    answer = get(f"/v1/topics/{filled}/records", **query)
    assert (answer.status, answer.headers["content-type"]) == (status, "application/problem+json")


def test_a_topic_that_does_not_exist(get, console):
    assert get("/v1/topics/nowhere/records").status == 404
    with Events(console.url, "/v1/topics/nowhere/records") as events:
        assert events.status == 404


def test_a_search_stops_at_its_bound_and_goes_on_from_there(our_log, make_topic, write):
    from headrace.testing.console import ConsoleProcess

    topic = make_topic("searched", 1, retention_ms=-1)
    write(topic, [b"x" * 1000 for _ in range(30)] + [b"needle"])
    with ConsoleProcess(our_log.bootstrap_servers, max_scan_bytes=10_000) as console:
        path, cursor, found, pages = f"/v1/topics/{topic}/records", None, [], 0
        while True:
            page = ask(console.url, "GET", path, search="needle", cursor=cursor).json
            found += page["records"]
            pages += 1
            assert page["scanned_bytes"] <= 11_000
            cursor = page["next"]
            if cursor is None:
                break
    assert [each["value"] for each in found] == ["needle"]
    assert pages == 4


def test_records_that_were_removed_are_told_as_a_gap(get, console, make_topic, write, our_log):
    from confluent_kafka import TopicPartition

    topic = make_topic("ring", 1, retention_ms=-1)
    write(topic, [b"1"] * 10)
    client = admin(our_log)  # lives as long as its futures
    client.delete_records([TopicPartition(topic, 0, 6)])[TopicPartition(topic, 0)].result(30)
    page = get(f"/v1/topics/{topic}/records", cursor="0:2").json
    assert page["gaps"] == [{"partition": 0, "start": 2, "end": 6}]
    assert [each["offset"] for each in page["records"]] == [6, 7, 8, 9]
    assert get(f"/v1/topics/{topic}/records", partition=0, offset=2).status == 410
    with Events(console.url, f"/v1/topics/{topic}/records", last_id="0:2") as events:
        stream = iter(events)
        names = [next(stream) for _ in range(3)]
    assert [each.name for each in names] == ["start", "gap", "records"]
    assert names[1].id == "0:2"
    assert names[2].id == "0:10"


def taken(events, count):
    """The offsets by partition of the first `count` records, and the id of the last event."""
    found, last = [], None
    for event in events:
        last = event.id
        if event.name == "records":
            found += [(each["partition"], each["offset"]) for each in event.data["records"]]
        if len(found) >= count:
            return found, last
    raise AssertionError("the stream ended")


def test_a_tail_begins_now_and_brings_what_comes(console, make_topic, write):
    topic = make_topic("tailed", 2, retention_ms=-1)
    write(topic, [b"old"] * 5)
    with Events(console.url, f"/v1/topics/{topic}/records") as events:
        stream = iter(events)
        start = next(stream)
        assert (start.name, start.id) == ("start", "0:5,1:0")
        write(topic, [b"new"] * 3, 0)
        write(topic, [b"new"] * 2, 1)
        found, last = taken(stream, 5)
    assert sorted(found) == [(0, 5), (0, 6), (0, 7), (1, 0), (1, 1)]
    assert last == "0:8,1:2"


def test_a_tail_resumes_exactly_where_it_was_cut(console, make_topic, write):
    topic = make_topic("resumed", 3, retention_ms=-1)
    path, seen, last = f"/v1/topics/{topic}/records?from=earliest", [], None
    for lap in range(6):
        for partition in range(3):
            write(topic, [b"%d" % lap] * 4, partition)
        with Events(console.url, path, last_id=last) as events:
            found, last = taken(events, 1)
            seen += found
    with Events(console.url, path, last_id=last) as events:
        while len(seen) < 72:
            found, last = taken(events, 1)
            seen += found
    assert len(seen) == len(set(seen)) == 72


def test_a_tail_of_a_part(console, make_topic, write):
    topic = make_topic("parted", 2, retention_ms=-1)
    write(topic, [b"a", b"needle", b"c"], 0)
    write(topic, [b"needle"], 1)
    with Events(console.url, f"/v1/topics/{topic}/records?from=earliest&partition=0&search=NEEDLE") as events:
        stream = iter(events)
        found, _ = taken(stream, 1)
        write(topic, [b"no", b"a needle"], 0)
        more, last = taken(stream, 1)
    assert (found, more, last) == ([(0, 1)], [(0, 4)], "0:5")


def test_partitions_that_come_later_are_read_from_their_beginning(console, make_topic, write, our_log):
    topic, client = make_topic("widened", 1, retention_ms=-1), admin(our_log)
    with Events(console.url, f"/v1/topics/{topic}/records") as events:
        stream = iter(events)
        assert next(stream).name == "start"
        client.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
        write(topic, [b"new"], 1)
        found, last = taken(stream, 1)
    assert (found, last) == ([(1, 0)], "0:0,1:1")


def test_a_web_socket_brings_the_same_events(console, make_topic, write):
    topic = make_topic("socketed", 1, retention_ms=-1)
    write(topic, [b'{"a":\n1}', b"two"])
    address = console.url.replace("http", "ws") + f"/v1/topics/{topic}/records"
    with connect(f"{address}?from=earliest", open_timeout=60) as socket:
        start, records = json.loads(socket.recv(30)), json.loads(socket.recv(30))
    assert (start["event"], start["id"]) == ("start", "0:0")
    assert (records["event"], records["id"]) == ("records", "0:2")
    assert [each["value"] for each in records["records"]] == [{"a": 1}, "two"]
    with connect(f"{address}?since=0:1", open_timeout=60) as socket:
        assert json.loads(socket.recv(30))["id"] == "0:1"
        assert [each["offset"] for each in json.loads(socket.recv(30))["records"]] == [1]


def test_a_fast_topic_is_gathered_into_few_events(console, make_topic, our_log):
    topic = make_topic("fast", 1)
    client, stop = producer(our_log, linger_ms=5), threading.Event()

    def produce():
        count = 0
        while count < 4000 and not stop.is_set():
            client.produce(topic, b"%d" % count)
            client.poll(0)
            count += 1
            if count % 100 == 0:
                stop.wait(0.05)
        client.flush(30)

    with Events(console.url, f"/v1/topics/{topic}/records") as events:
        stream = iter(events)
        next(stream)
        thread = threading.Thread(target=produce)
        thread.start()
        sizes = []
        while sum(sizes) < 4000:
            event = next(stream)
            if event.name == "records":
                sizes.append(len(event.data["records"]))
        stop.set()
        thread.join()
    # 4,000 records in two seconds or more, and at most twenty events a second.
    assert sum(sizes) == 4000
    assert len(sizes) <= 400


def test_hostile_data_is_data(get, make_topic, write):
    topic = make_topic("hostile", 1, retention_ms=-1)
    markup = b'<script>alert("x")</script>\x00\r\n\r\ndata: x\n\nevent: y'
    write(
        topic,
        [markup, b'{"a":"\\u2028</script>"}', b"\xed\xa0\x80", b'{"a":1e999}', b"NaN"],
        headers=[("<b>", markup)],
    )
    answer = get(f"/v1/topics/{topic}/records")
    first, second, third, fourth, fifth = answer.json["records"]
    assert (first["value"], first["encoding"]) == (markup.decode(), "text")
    assert first["headers"][0] == {"name": "<b>", "value": markup.decode(), "encoding": "text"}
    assert second["value"] == {"a": "\u2028</script>"}
    assert third["encoding"] == "base64"
    assert fourth["encoding"] in ("json", "text")
    assert fifth == {**fifth, "value": "NaN", "encoding": "text"}
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
