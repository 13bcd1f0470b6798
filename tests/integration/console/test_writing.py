import base64
import json
import time

import pytest

from headrace.console.write.tokens import decode_token


@pytest.fixture(scope="module")
def topic(make_topic):
    return make_topic("writing", 3)


def records(get, topic):
    return get(f"/v1/topics/{topic}/records", limit=1000).json["records"]


def test_one_record_is_answered_with_its_place_and_a_token(get, post, topic):
    answer = post(f"/v1/topics/{topic}/records", {"value": {"amount": 12345678901234567890123}, "key": "ada"})
    assert answer.status == 200
    ((place,), token) = answer.json["records"], decode_token(answer.json["token"])
    assert token == {topic: {place["partition"]: place["offset"] + 1}}
    page = get(f"/v1/topics/{topic}/records", partition=place["partition"], offset=place["offset"], limit=1)
    (found,) = page.json["records"]
    assert (found["key"], found["encoding"]) == ("ada", "json")
    assert b'{"amount":12345678901234567890123}' in page.body


def test_many_records_with_all_that_a_record_has(get, post, make_topic):
    topic = make_topic("writing-many", 2, retention_ms=-1)
    sent = [
        {"value": None, "key": "gone", "partition": 1},
        {"value_base64": base64.b64encode(b"\xff\x00").decode(), "key_base64": "/w==", "partition": 1},
        {
            "value": "text",
            "headers": {"trace": "ü", "none": None},
            "partition": 0,
            "timestamp": "2026-01-01T00:00:00.123Z",
        },
    ]
    answer = post(f"/v1/topics/{topic}/records", {"records": sent})
    assert [(each["partition"], each["offset"]) for each in answer.json["records"]] == [
        (1, 0),
        (1, 1),
        (0, 0),
    ]
    first, second, third = sorted(records(get, topic), key=lambda each: (-each["partition"], each["offset"]))
    assert (first["value"], first["encoding"], first["key"]) == (None, None, "gone")
    assert (second["value"], second["encoding"]) == ("/wA=", "base64")
    assert (second["key"], second["key_encoding"]) == ("/w==", "base64")
    assert (third["value"], third["timestamp"]) == ("text", "2026-01-01T00:00:00.123Z")
    assert [(each["name"], each["value"]) for each in third["headers"]] == [("trace", "ü"), ("none", None)]


def test_a_key_goes_where_kafka_would_put_it(post, topic, our_log):
    from headrace.client import producer

    places = {}
    client = producer(our_log, partitioner="murmur2_random")
    for key in ("a", "b", "c", "d", "e"):
        client.produce(
            topic,
            b"1",
            key.encode(),
            on_delivery=lambda _, message: places.update({message.key(): message.partition()}),
        )
    client.flush(30)
    for key, partition in places.items():
        answer = post(f"/v1/topics/{topic}/records", {"value": 1, "key": key.decode()})
        assert answer.json["records"][0]["partition"] == partition


EVENT = {"id": "7", "source": "/shop", "specversion": "1.0", "type": "order", "partitionkey": "ada"}


@pytest.mark.parametrize("mode", ["structured", "batched", "binary"])
def test_cloud_events_are_records_in_kafkas_binding(get, post, make_topic, mode):
    topic = make_topic(f"events-{mode}")
    path, whole = (
        f"/v1/topics/{topic}/events",
        {**EVENT, "datacontenttype": "application/json", "data": {"a": 1}},
    )
    match mode:
        case "structured":
            answer = post(path, whole, content_type="application/cloudevents+json")
        case "batched":
            answer = post(path, [whole], content_type="application/cloudevents-batch+json; charset=utf-8")
        case "binary":
            headers = {f"ce_{name}": value for name, value in EVENT.items()}
            answer = post(path, b'{"a":1}', content_type="application/json", **headers)
    assert answer.status == 200
    (found,) = records(get, topic)
    assert (found["key"], found["value"]) == ("ada", {"a": 1})
    headers = {each["name"]: each["value"] for each in found["headers"]}
    assert headers == {
        **{f"ce_{name}": value for name, value in EVENT.items()},
        "content-type": "application/json",
    }


def test_what_the_log_refuses_is_told_for_each_record(get, post, make_topic):
    topic = make_topic("small", 2, max_message_bytes=1000)
    sent = [{"value": 1, "partition": 0}, {"value": "x" * 5000, "partition": 1}]
    answer = post(f"/v1/topics/{topic}/records", {"records": sent})
    assert answer.status == 207
    assert answer.json["records"][0] == {"partition": 0, "offset": 0}
    assert answer.json["records"][1]["error"]["status"] == 413
    assert decode_token(answer.json["token"]) == {topic: {0: 1}}
    answer = post(f"/v1/topics/{topic}/records", sent[1])
    assert (answer.status, answer.headers["content-type"]) == (413, "application/problem+json")


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/v1/topics/nowhere/records", {"value": 1}, {}, 404),
        ("/v1/topics/no%20where/records", {"value": 1}, {}, 404),
        ("/v1/topics/__headrace_audit/records", {"value": 1}, {}, 403),
        ("/v1/topics/writing/records", {"value": 1, "partition": 9}, {}, 400),
        ("/v1/topics/writing/records", {"records": [{"value": 1}, {}]}, {}, 400),
        ("/v1/topics/writing/records", {"records": [], "more": 1}, {}, 400),
        ("/v1/topics/writing/records", b"{", {"content_type": "application/json"}, 400),
        ("/v1/topics/writing/records", b"1", {"content_type": "text/plain"}, 415),
        ("/v1/topics/writing/records", b"1", {}, 415),
        ("/v1/topics/writing/records?x=1", {"value": 1}, {}, 400),
        ("/v1/topics/writing/records", {"records": [{"value": 1}] * 10_001}, {}, 413),
        (
            "/v1/topics/writing/records",
            b"1" * (8 * 1024 * 1024 + 1),
            {"content_type": "application/json"},
            413,
        ),
        ("/v1/topics/writing/events", {"a": 1}, {}, 415),
        ("/v1/topics/writing/events", {"id": "1"}, {"content_type": "application/cloudevents+json"}, 400),
    ],
)
def test_refusals_say_what_to_do(post, topic, path, body, headers, status):
    answer = post(path, body, **headers)
    assert answer.status == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["detail"] and answer.json["next"]


def test_no_topic_is_made_by_writing_to_it(post, get, our_log):
    from headrace.client import admin

    post("/v1/topics/never-made/records", {"value": 1})
    assert "never-made" not in admin(our_log).list_topics(timeout=30).topics


def test_nothing_at_all_is_written_as_nothing(post, topic):
    answer = post(f"/v1/topics/{topic}/records", {"records": []})
    assert (answer.status, answer.json["records"]) == (200, [])


def test_every_change_is_in_the_audit_topic_whatever_became_of_it(get, post, topic):
    for earlier in range(2):  # a page of entries before those that are looked at
        post(f"/v1/topics/{topic}/records", {"value": earlier})
    post(f"/v1/topics/{topic}/records", {"value": "a secret of the customer"})
    post(f"/v1/topics/{topic}/records", {"value": 1, "partition": 99})
    newest = get("/v1/audit", limit=2).json
    refused, done = newest["entries"]
    assert (done["who"], done["from"], done["target"], done["outcome"]) == (
        "local",
        "127.0.0.1",
        topic,
        "done",
    )
    assert done["notes"] == {"topic": topic, "written": 1, "failed": 0}
    assert (refused["outcome"], refused["status"]) == ("refused", 400)
    assert "customer" not in json.dumps(newest)
    older = get("/v1/audit", limit=2, cursor=newest["next"]).json["entries"]
    assert [each["offset"] for each in older] == [refused["offset"] - 2, refused["offset"] - 3]


def test_a_log_that_is_away_is_said_so_and_comes_back(tmp_path):
    from tests.integration.console.http_client import ask

    from headrace.testing.broker import BrokerProcess
    from headrace.testing.console import ConsoleProcess

    with BrokerProcess(tmp_path / "log") as broker, ConsoleProcess(broker.bootstrap) as console:
        assert ask(console.url, "GET", "/healthz").json == {"status": "ok", "log": "ok", "driver": None}
        broker.stop()
        away = ask(console.url, "POST", "/v1/topics/orders/records", {"value": 1})
        assert (away.status, away.headers["retry-after"]) == (503, "1")
        assert ask(console.url, "GET", "/healthz", patient=False).status == 503
        broker.start()
        from confluent_kafka.admin import NewTopic

        from headrace.client import Connection, admin

        client = admin(Connection(bootstrap_servers=broker.bootstrap))
        client.create_topics([NewTopic("orders", 1)])["orders"].result(30)
        deadline = time.monotonic() + 90
        while (back := ask(console.url, "POST", "/v1/topics/orders/records", {"value": 1})).status == 503:
            assert time.monotonic() < deadline, back.body
        assert back.status == 200
