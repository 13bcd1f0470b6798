"""The raw fetcher against a live log, ours and Kafka."""

import time
import uuid

import pytest
from confluent_kafka import Producer
from topics import create_topic, delete_records, delete_topic, send

from headrace.client import EARLIEST, LATEST, Connection, RawFetcher
from headrace.client.connect.channel import Channel
from headrace.errors import RequestError, RetriableError
from headrace.records.columns import decode_columns
from headrace.testing.broker import BrokerProcess
from headrace.wire import Api

pytestmark = pytest.mark.xdist_group("spark")  # one Kafka serves these and the source's tests


def values(runs, start=None, end=None):
    batches = [decode_columns(run, start_offset=start, end_offset=end) for run in runs]
    return [value for batch in batches for value in batch["value"].to_pylist()]


def wait_for_end(fetcher, topic, offset):
    """Kafka writes the marker of a transaction after it has answered the commit."""
    while (end := fetcher.offsets(topic, LATEST)[0]) < offset:
        time.sleep(0.02)
    assert end == offset


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_range_brings_exactly_its_records(log, codec):
    topic = create_topic(log)
    sent = [b"%d " % number * 20 for number in range(1000)]
    send(log, topic, sent, compression_type=codec, batch_num_messages=100)
    with RawFetcher(log) as fetcher:
        assert fetcher.offsets(topic, LATEST) == {0: 1000}
        assert values(fetcher.fetch(topic, 0, 0, 1000)) == sent
        assert values(fetcher.fetch(topic, 0, 150, 777), 150, 777) == sent[150:777]


def test_what_was_written_since_the_end_was_asked_for_does_not_come(log):
    topic = create_topic(log)
    send(log, topic, [b"before"])
    with RawFetcher(log) as fetcher:
        ends = fetcher.offsets(topic, LATEST)
        send(log, topic, [b"since"])
        assert values(fetcher.fetch(topic, 0, 0, ends[0])) == [b"before"]


def test_batches_cut_by_a_small_fetch_are_fetched_again(log):
    topic = create_topic(log)
    sent = [b"%d" % number * 30 for number in range(500)]
    send(log, topic, sent, batch_num_messages=20)
    with RawFetcher(log, max_bytes=5000) as fetcher:
        runs = list(fetcher.fetch(topic, 0, 0, 500))
    assert len(runs) > 5
    assert values(runs) == sent


def test_a_batch_larger_than_a_fetch_still_comes_whole(log):
    topic = create_topic(log)
    send(log, topic, [b"x" * 500_000, b"y"], batch_num_messages=1)
    with RawFetcher(log, max_bytes=1000) as fetcher:
        assert values(fetcher.fetch(topic, 0, 0, 2)) == [b"x" * 500_000, b"y"]


def test_an_empty_range_asks_for_nothing(log):
    topic = create_topic(log)
    with RawFetcher(log) as fetcher:
        assert list(fetcher.fetch(topic, 0, 0, 0)) == []


def test_records_removed_before_they_were_read_are_told_not_skipped(log):
    topic = create_topic(log)
    send(log, topic, [b"a"] * 100, batch_num_messages=10)
    delete_records(log, topic, 40)
    with RawFetcher(log) as fetcher:
        assert fetcher.offsets(topic, EARLIEST) == {0: 40}
        with pytest.raises(RequestError, match=r"removed before they were read: the log now holds 40 to 100"):
            list(fetcher.fetch(topic, 0, 10, 100))


def test_a_range_beyond_the_end_is_refused(log):
    topic = create_topic(log)
    send(log, topic, [b"a"])
    with RawFetcher(log) as fetcher, pytest.raises(RequestError, match="are not there"):
        list(fetcher.fetch(topic, 0, 5, 6))


def test_a_topic_that_does_not_exist_is_named_with_the_command_that_makes_it(log):
    with RawFetcher(log) as fetcher, pytest.raises(RequestError, match="headrace topics create no-such"):
        fetcher.layout("no-such")


def test_a_topic_made_anew_is_not_taken_for_the_old_one(log):
    topic = create_topic(log)
    send(log, topic, [b"old"])
    with RawFetcher(log) as fetcher:
        old = fetcher.layout(topic).id
        delete_topic(log, topic)
        create_topic(log, name=topic)
        send(log, topic, [b"new"])
        with pytest.raises(RequestError, match="deleted and created again"):
            list(fetcher.fetch(topic, 0, 0, 1, topic_id=old))


def test_an_offset_is_found_by_time_and_is_the_end_where_nothing_is_later(log):
    topic = create_topic(log, partitions=2)
    client = Producer({"bootstrap.servers": log.bootstrap_servers})
    now_ms = time.time_ns() // 1_000_000  # an older one would fall to retention, a later one be refused
    for number in range(10):
        client.produce(topic, b"x", partition=0, timestamp=now_ms + 1000 * number)
    assert client.flush(30) == 0
    with RawFetcher(log) as fetcher:
        assert fetcher.offsets(topic, now_ms + 2500) == {0: 3, 1: 0}
        assert fetcher.offsets(topic, now_ms + 99_999) == {0: 10, 1: 0}


@pytest.mark.kafka
def test_records_of_an_aborted_transaction_are_not_seen(kafka_log):
    topic = create_topic(kafka_log)
    client = Producer(
        {"bootstrap.servers": kafka_log.bootstrap_servers, "transactional.id": uuid.uuid4().hex}
    )
    client.init_transactions(30)
    for number, keep in enumerate([True, False, False, True]):
        client.begin_transaction()
        client.produce(topic, f"{number}a", partition=0)
        client.flush(30)  # two batches a transaction
        client.produce(topic, f"{number}b", partition=0)
        client.flush(30)  # an abort would drop what was not sent yet
        client.commit_transaction(30) if keep else client.abort_transaction(30)
    with RawFetcher(kafka_log) as fetcher:
        wait_for_end(fetcher, topic, 12)  # eight records, four markers
        assert values(fetcher.fetch(topic, 0, 0, 12)) == [b"0a", b"0b", b"3a", b"3b"]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_fetch_goes_on_after_the_log_was_restarted(tmp_path, ahead):
    with BrokerProcess(tmp_path / "log") as broker:
        log = Connection(bootstrap_servers=broker.bootstrap, retry_timeout_ms=20_000)
        topic = create_topic(log)
        sent = [b"%d" % number * 30 for number in range(500)]
        send(log, topic, sent, batch_num_messages=20)
        with RawFetcher(log, max_bytes=5000) as fetcher:
            fetching = fetcher.fetch(topic, 0, 0, 500, ahead=ahead)
            first = next(fetching)
            broker.kill()
            broker.start()
            assert values([first, *fetching]) == sent


def test_what_comes_next_is_asked_for_while_the_caller_works(log, monkeypatch):
    topic = create_topic(log)
    sent = [b"%d" % number * 30 for number in range(500)]
    send(log, topic, sent, batch_num_messages=20)
    asked = []
    ask = Channel.ask
    monkeypatch.setattr(
        Channel, "ask", lambda channel, api, *rest: asked.append(api) or ask(channel, api, *rest)
    )
    with RawFetcher(log, max_bytes=5000) as fetcher:
        runs, fetches = [], []
        for run in fetcher.fetch(topic, 0, 0, 500, ahead=True):
            runs.append(run)
            fetches.append(asked.count(Api.FETCH))
    assert values(runs) == sent
    assert fetches[0] == 2  # the one that brought this run, and the next
    assert fetches[-1] == asked.count(Api.FETCH) <= len(runs) + 1


def test_a_fetcher_may_be_asked_something_else_while_it_reads_ahead(log):
    topic = create_topic(log, partitions=2)
    sent = [b"%d" % number * 30 for number in range(500)]
    for partition in (0, 1):
        send(log, topic, sent, batch_num_messages=20, partition=partition, enable_idempotence=True)
    with RawFetcher(log, max_bytes=5000) as fetcher:
        readings = [fetcher.fetch(topic, partition, 0, 500, ahead=True) for partition in (0, 1)]
        runs = [[next(reading)] for reading in readings]
        assert fetcher.offsets(topic, LATEST) == {0: 500, 1: 500}
        for got, reading in zip(runs, readings, strict=True):
            got.extend(reading)
    assert [values(got) for got in runs] == [sent, sent]


def test_a_log_that_is_not_there_is_given_up_on_with_its_address():
    nowhere = Connection(bootstrap_servers="127.0.0.1:1", retry_timeout_ms=200)
    with (
        RawFetcher(nowhere) as fetcher,
        pytest.raises(RetriableError, match=r"127\.0\.0\.1:1.*is the log running"),
    ):
        fetcher.layout("orders")
