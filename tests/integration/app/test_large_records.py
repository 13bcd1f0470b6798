"""What a log takes stops no application: records at its limits, whatever is made of them."""

import json
import random

import pytest
from app_runs import catch_up, counting, event, headers_of, new_topic, read, reflected, send
from confluent_kafka.admin import ConfigResource, NewTopic
from topics import create_topic

from headrace.cli.main import run
from headrace.client import admin, producer

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("applications")]
LIMIT = 1_048_588  # what a topic takes by default
TIMEOUT_S = 240


def send_largest(log, topic, make, *, key=None, headers=()):
    """Sends the largest value that `make` gives for a size and the topic still takes."""
    client = producer(log, message_max_bytes=10_000_000)

    def is_taken(size):
        refused = []
        client.produce(
            topic,
            make(size),
            key,
            partition=0,
            headers=list(headers),
            on_delivery=lambda error, _: refused.extend([error] if error else []),
        )
        assert client.flush(TIMEOUT_S) == 0
        return not refused

    size = LIMIT - len(key or b"") - sum(len(name) + len(value) for name, value in headers)
    while not is_taken(size):
        size -= 1
        assert size > 0, "the topic takes nothing"
    assert not is_taken(size + 1)
    return make(size)


def noise(size):
    return b"\xff" + random.Random(1).randbytes(size - 1)


def padded(second, size):
    """An event of that many bytes of JSON, whose place no codec makes much smaller."""
    bare = event(second, "")
    room = size - len(json.dumps(bare).encode())
    return json.dumps({**bare, "place": random.Random(2).randbytes(room).hex()[:room]}).encode()


def limit_of(log, topic):
    client, asked = admin(log), ConfigResource(ConfigResource.Type.TOPIC, topic)
    return int(client.describe_configs([asked])[asked].result(TIMEOUT_S)["max.message.bytes"].value)


def test_records_as_large_as_a_topic_takes_stop_nothing_and_are_sent_again(spark, our_log, tmp_path):
    topic, store, copies = new_topic(), f"sqlite:///{tmp_path}/views.db", new_topic()
    app = counting(topic, store=store, copies=copies)
    for each in (topic, f"{app.name}.dead", copies):  # those of an older version, with the broker's limit
        create_topic(our_log, 1, each)
    chosen = NewTopic(f"{app.name}.late", 1, 1, config={"max.message.bytes": "50000"})
    client = admin(our_log)
    client.create_topics([chosen])[chosen.topic].result(TIMEOUT_S)

    sent = [send_largest(our_log, topic, noise)]
    sent.append(send_largest(our_log, topic, noise, key=noise(1_000_000)))
    sent.append(send_largest(our_log, topic, noise, headers=[("h", noise(1_000_000))]))
    many = [(f"h{number}", b"v") for number in range(20_000)]
    send(our_log, topic, [b"{"], headers=many)
    row = send_largest(our_log, topic, lambda size: padded(100, size))
    send_largest(our_log, topic, lambda size: padded(1, size))  # late
    send(our_log, topic, [event(200)])

    catch_up(app, our_log, tmp_path / "data")
    counters = reflected(store).counters
    assert (counters["dead"], counters["dropped"], counters["on_time"]) == (4, 1, 2)
    letters = read(our_log, f"{app.name}.dead")
    assert [each["value"] for each in letters] == [*sent, b"{"], "they are whole"
    assert letters[1]["key"] == noise(1_000_000)
    assert headers_of(letters[2])["h"] == noise(1_000_000)
    assert len(letters[3]["headers"]) > 20_000
    places = [json.loads(each["value"])["place"] for each in read(our_log, copies)]
    assert places == [json.loads(row)["place"]] * 2 + ["here"]
    (late,) = read(our_log, f"{app.name}.late")
    assert len(late["value"]) < 50_000, "its topic was given a limit by somebody"
    assert int(headers_of(late)["headrace.late.truncated"]) > 1_000_000

    again = ["deadletters", "redrive", f"{app.name}.dead", "--bootstrap", our_log.bootstrap_servers]
    assert run(again) == 0
    assert limit_of(our_log, topic) > LIMIT
    catch_up(app, our_log, tmp_path / "data")
    assert reflected(store).counters["dead"] == 8, "each came again, and cannot be read as before"
    assert [each["value"] for each in read(our_log, f"{app.name}.dead")] == [*sent, b"{"] * 2
