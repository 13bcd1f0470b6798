"""Records to topics, each batch once, on our log and on a Kafka."""

import contextlib
import itertools
import random
import time

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from reading import read

from headrace.client import admin
from headrace.client.topics import TopicSettings
from headrace.client.write import OutputRecord, RecordSink, records_of
from headrace.errors import FencedError, RequestError, RetriableError

_names = itertools.count()


@pytest.fixture
def topic():
    return f"sink-{next(_names)}"


def sink(log, topic, query="q", **settings):
    return RecordSink(log, topic, query, topics={topic: TopicSettings(partitions=2)}, **settings)


def records(topic, *values):
    return [OutputRecord(topic, b"k", value.encode()) for value in values]


def values(log, topic):
    return sorted(each["value"].decode() for each in read(log, topic))


def test_each_batch_is_written_once(log, topic):
    first = sink(log, topic)
    assert first.open() == -1
    assert first.write(0, records(topic, "a", "b"))
    assert not first.write(0, records(topic, "again"))
    assert first.write(2, records(topic, "c")), "batches without records leave no trace, so numbers have gaps"
    assert not first.write(1, records(topic, "too late"))
    first.close()
    second = sink(log, topic)
    assert not second.write(2, records(topic, "again"))
    assert second.open() == 2
    assert second.write(3, records(topic, "d"))
    second.close()
    assert values(log, topic) == ["a", "b", "c", "d"]


def test_keys_headers_partitions_and_times_are_kept(log, topic):
    writer, now_ms = sink(log, topic), int(time.time() * 1000)
    given = [
        OutputRecord(topic, None, None, (("h", b"1"), ("h", None)), 1, now_ms),
        OutputRecord(topic, b"", b"", (), 0, None),
    ]
    writer.write(0, given)
    writer.close()
    empty, null = read(log, topic)
    assert (empty["partition"], empty["key"], empty["value"], empty["headers"]) == (0, b"", b"", [])
    assert (null["partition"], null["key"], null["value"]) == (1, None, None)
    assert null["headers"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    assert round(null["timestamp"].timestamp() * 1000) == now_ms


def test_records_come_from_columns_too(log, topic):
    headers = pa.array([[{"key": "h", "value": b"x"}], None])
    table = pa.table({"key": ["a", None], "value": [b"1", b"2"], "headers": headers, "partition": [1, 0]})
    writer = sink(log, topic)
    writer.write(0, records_of(topic, table))
    writer.close()
    second, first = read(log, topic)
    assert (second["key"], second["value"], second["headers"]) == (None, b"2", [])
    assert (first["key"], first["value"], first["headers"]) == (b"a", b"1", [{"key": "h", "value": b"x"}])


def test_a_new_query_counts_anew(log, topic):
    old = sink(log, topic, "old")
    old.write(5, records(topic, "a"))
    new = sink(log, topic, "new")
    assert new.open() == -1
    assert new.write(0, records(topic, "b"))
    with pytest.raises(FencedError, match="must stop"):
        old.write(6, records(topic, "zombie"))
    new.close()
    old.close()
    assert values(log, topic) == ["a", "b"]


def test_a_writer_that_is_fenced_between_two_records_is_told_so(log, topic):
    old = sink(log, topic)
    old.write(0, records(topic, "a"))
    new = sink(log, topic)
    assert new.open() == 0

    def interrupted():
        first, second = records(topic, "zombie", "another")
        yield first
        with contextlib.suppress(KafkaException, SystemError):  # how the library says that it is fenced
            old._writer._producer.flush(30)
        yield second

    with pytest.raises(FencedError, match="must stop"):
        old.write(1, interrupted())
    new.close()
    old.close()
    assert values(log, topic) == ["a"]


def test_a_zombie_is_fenced_and_its_open_batch_is_gone(log, topic):
    old = sink(log, topic)
    old.write(0, records(topic, "a"))

    def interrupted():
        yield from records(topic, "half")
        new.open()
        yield from records(topic, "zombie")

    new = sink(log, topic)
    with pytest.raises(FencedError):
        old.write(1, interrupted())
    assert new.write(1, records(topic, "b"))
    new.close()
    old.close()
    assert values(log, topic) == ["a", "b"]


def test_a_batch_that_fails_half_way_leaves_nothing_and_can_be_repeated(log, topic):
    def broken():
        yield from records(topic, "half")
        raise ZeroDivisionError

    writer = sink(log, topic)
    writer.write(0, records(topic, "a"))
    with pytest.raises(ZeroDivisionError):
        writer.write(1, broken())
    assert writer.write(1, records(topic, "b"))
    writer.close()
    assert values(log, topic) == ["a", "b"]


def test_a_record_that_the_log_refuses_stops_the_batch(log, topic):
    writer = RecordSink(log, topic, "q", topics={topic: TopicSettings(configs={"max.message.bytes": "2000"})})
    noise = random.Random(1).randbytes(10_000)
    with pytest.raises(RequestError, match=r"max\.message\.bytes"):
        writer.write(
            0,
            [OutputRecord(topic, b"k", noise)],
        )
    assert writer.write(0, records(topic, "small"))
    writer.close()
    assert values(log, topic) == ["small"]


@pytest.mark.parametrize("behind", [0, 1])
def test_it_is_told_why_however_soon_the_log_refuses(log, topic, monkeypatch, behind):
    """Before the batch ends, or before its last records are handed over."""
    writer = RecordSink(log, topic, "q", topics={topic: TopicSettings(configs={"max.message.bytes": "2000"})})
    noise = random.Random(1).randbytes(10_000)
    assert writer.write(0, records(topic, "a"))
    opened = writer._writer._producer

    def refused_by_now():
        deadline = time.monotonic() + 60
        while len(opened):
            assert time.monotonic() < deadline
            opened.poll(0.05)

    def batch():
        yield OutputRecord(topic, b"k", noise)
        refused_by_now()
        yield from records(topic, *(["b"] * behind))

    if not behind:
        monkeypatch.setattr(
            "headrace.client.write.transactions.reached",
            lambda step: step == "rows written" and refused_by_now(),
        )
    with pytest.raises(RequestError, match=r"max\.message\.bytes"):
        writer.write(1, batch() if behind else [OutputRecord(topic, b"k", noise)])
    assert writer.write(1, records(topic, "small"))
    writer.close()
    assert values(log, topic) == ["a", "small"]


def test_the_number_is_found_when_the_broker_has_forgotten_the_group(log, topic):
    writer = sink(log, topic)
    writer.write(7, records(topic, "a"))
    writer.close()
    group = f"headrace-{topic}"
    client = admin(log)
    client.delete_consumer_groups([group])[group].result(20)
    again = sink(log, topic)
    assert again.open() == 7
    assert not again.write(7, records(topic, "again"))
    again.close()
    assert values(log, topic) == ["a"]


def test_topics_that_cannot_be_made_are_named(log):
    with pytest.raises(RequestError, match="cannot be created"):
        RecordSink(log, "x", "q", topics={"no spaces": TopicSettings()}).open()


def test_a_log_that_is_away_is_a_reason_to_try_again():
    from headrace.client import Connection

    nowhere = Connection(bootstrap_servers="127.0.0.1:1", retry_timeout_ms=500)
    with pytest.raises(RetriableError):
        RecordSink(nowhere, "x", "q", topics={"t": TopicSettings()}).open()
