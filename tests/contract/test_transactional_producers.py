"""What both producers of transactions promise: the one of the client library, and the one of our own.

On our log, and, in the long form, on a real Kafka.
"""

import os
import time
import uuid
from array import array
from contextlib import closing
from itertools import pairwise

import pytest

from headrace.client import EARLIEST, LARGE_RECORD_CONFIGS, LATEST, Connection, RawFetcher
from headrace.client.connect.brokers import Brokers
from headrace.client.topics import TopicSettings, ensure_topics
from headrace.client.write import (
    BatchProducer,
    OutputRecord,
    RecordBlock,
    RecordTooLarge,
    TransactionalProducer,
    TransactionExpired,
)
from headrace.errors import ConfigError, FencedError, RetriableError
from headrace.records import decode_columns
from headrace.testing.broker import running_broker
from headrace.testing.kafka import KafkaServer, PeerUnavailable
from headrace.wire import Api

AT_MS = 1_700_000_000_000
PARTITIONS = 4


@pytest.fixture(
    scope="module",
    params=["headrace", pytest.param("kafka", marks=[pytest.mark.slow, pytest.mark.kafka])],
)
def connection(request, tmp_path_factory):
    if request.param == "headrace":
        with running_broker(tmp_path_factory.mktemp("log")) as broker:
            yield Connection(bootstrap_servers=f"127.0.0.1:{broker.port}")
        return
    try:
        server = KafkaServer(quick=True)
    except PeerUnavailable as reason:
        pytest.skip(str(reason))
    with server:
        yield Connection(bootstrap_servers=server.bootstrap)


@pytest.fixture(params=["library", "own", "own before version 2"])
def kind(request, monkeypatch):
    if request.param == "library":
        return TransactionalProducer
    if request.param != "own":  # brokers that have not agreed on version 2 of transactions
        monkeypatch.setattr(Brokers, "features", lambda _: {})
    return BatchProducer


@pytest.fixture
def topic(connection) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    ensure_topics(connection, {name: TopicSettings(partitions=PARTITIONS, configs=LARGE_RECORD_CONFIGS)})
    return name


@pytest.fixture
def producer(kind, connection):
    opened = kind(connection, f"p-{uuid.uuid4().hex[:8]}")
    opened.take_over()
    yield opened
    opened.close()


def committed(connection: Connection, topic: str) -> dict[int, list[tuple]]:
    """Timestamp, key, value and headers of every record of a committed transaction, by partition."""
    found: dict[int, list[tuple]] = {}
    with RawFetcher(connection) as fetcher:
        starts, ends = fetcher.offsets(topic, EARLIEST), fetcher.offsets(topic, LATEST, committed=False)
        for partition, start in starts.items():
            for run in fetcher.fetch(topic, partition, start, ends[partition]):
                columns = decode_columns(run, columns=("timestamp", "key", "value", "headers"))
                names = (columns[each].to_pylist() for each in ("timestamp", "key", "value", "headers"))
                for at, *others in zip(*names, strict=True):
                    found.setdefault(partition, []).append((round(at.timestamp() * 1000), *others))
    return found


def block(topic: str, rows: list[tuple[bytes | None, bytes | None, str]]) -> RecordBlock:
    octets, numbers = bytearray(b"."), array("q")
    for key, value, letter in rows:
        key_length, length = -1 if key is None else len(key), -1 if value is None else len(value)
        numbers.extend((0, ord(letter), len(octets), key_length, len(octets) + max(key_length, 0), length, 0))
        octets += (key or b"") + (value or b"")
    return RecordBlock(octets, numbers, len(rows), {0: topic}, AT_MS)


def nothing(_):
    return ()


ROWS = [(b"key %d" % n, b"value %d" % n * 20, "d" if n % 7 == 0 else "c") for n in range(300)]


def test_records_go_where_the_hash_of_their_key_says_in_their_order(connection, topic, producer):
    producer.transact(
        [OutputRecord(topic, key, value, timestamp_ms=AT_MS) for key, value, _ in ROWS], nothing
    )
    found = committed(connection, topic)
    assert sorted(value for each in found.values() for _, _, value, _ in each) == sorted(
        row[1] for row in ROWS
    )
    order = {value: n for n, (_, value, _) in enumerate(ROWS)}
    for records in found.values():
        assert [order[each[2]] for each in records] == sorted(order[each[2]] for each in records)
    if isinstance(producer, BatchProducer):
        library = TransactionalProducer(connection, "the-library")
        library.take_over()
        again = f"{topic}-again"
        ensure_topics(connection, {again: TopicSettings(partitions=PARTITIONS)})
        library.transact(
            [OutputRecord(again, key, value, timestamp_ms=AT_MS) for key, value, _ in ROWS], nothing
        )
        library.close()
        assert committed(connection, again) == found


def test_a_block_is_the_same_records_with_tombstones_behind_deletes(connection, topic, producer):
    producer.transact([block(topic, ROWS)], nothing)
    told = [each for records in committed(connection, topic).values() for each in records]
    deletes = [row[0] for row in ROWS if row[2] == "d"]
    assert sorted(each[1] for each in told if each[2] is None) == sorted(deletes)
    assert sorted(each[2] for each in told if each[2] is not None) == sorted(row[1] for row in ROWS)
    for records in committed(connection, topic).values():
        for before, after in pairwise(records):
            assert after[2] is not None or before[1] == after[1], "a tombstone stands behind its delete"


def test_the_last_records_know_where_every_partition_ends(connection, topic, producer):
    told = []

    def last(offsets):
        told.append(dict(offsets))
        return [OutputRecord(topic, b"end", b"end", partition=3, timestamp_ms=AT_MS)]

    producer.transact([block(topic, ROWS), OutputRecord(topic, b"one", b"more")], last)
    producer.transact([OutputRecord(topic, b"next", b"one", partition=2)], last)
    found = committed(connection, topic)
    first, second = told
    assert sum(first.values()) == len(ROWS) + sum(row[2] == "d" for row in ROWS) + 1
    assert set(second) == {(topic, 2)} and second[topic, 2] > first[topic, 2]
    assert found[3][-1][:3] == (AT_MS, b"end", b"end")


def test_headers_partitions_and_timestamps_are_kept(connection, topic, producer):
    headers = (("id", b"7"), ("empty", b""))
    producer.transact(
        [
            OutputRecord(topic, b"a", b"1", headers, 1, AT_MS),
            OutputRecord(topic, None, None, (), 1, AT_MS + 5),
            OutputRecord(topic, b"b", b"2", headers, 1, AT_MS - 5),
        ],
        nothing,
    )
    (records,) = committed(connection, topic).values()
    assert [each[:3] for each in records] == [
        (AT_MS, b"a", b"1"), (AT_MS + 5, None, None), (AT_MS - 5, b"b", b"2"),
    ]  # fmt: skip
    assert records[0][3] == records[2][3] and records[0][3] != records[1][3]


def test_records_of_all_sizes_go_through_in_their_order(connection, topic, producer):
    sizes = [10, 3_000_000, 20, 400_000, 400_000, 400_000, 5]
    rows = [OutputRecord(topic, b"k", b"%d" % n * size, timestamp_ms=AT_MS) for n, size in enumerate(sizes)]
    producer.transact(rows, nothing)
    (records,) = committed(connection, topic).values()
    assert [len(each[2]) for each in records] == sizes


def test_a_transaction_that_fails_leaves_nothing_and_the_next_one_works(connection, topic, producer):
    def failing():
        yield block(topic, ROWS)
        yield OutputRecord(topic, b"never", b"x" * 600_000)
        raise KeyError("of the caller")

    with pytest.raises(KeyError):
        producer.transact(failing(), nothing)
    with pytest.raises(RetriableError, match="take it over"):
        producer.transact([], nothing)
    producer.take_over()
    producer.transact([OutputRecord(topic, b"k", b"after", timestamp_ms=AT_MS)], nothing)
    records = [each for each in committed(connection, topic).values() if each]
    assert [[each[2] for each in several] for several in records] == [[b"after"]]


def test_a_newer_owner_fences_the_older_one_for_good(connection, topic, kind):
    name = f"p-{uuid.uuid4().hex[:8]}"
    older, newer = kind(connection, name), kind(connection, name)
    older.take_over()
    older.transact([OutputRecord(topic, b"k", b"1")], nothing)
    newer.take_over()
    with pytest.raises(FencedError):
        older.transact([OutputRecord(topic, b"k", b"2")], nothing)
    newer.transact([OutputRecord(topic, b"k", b"3")], nothing)
    (records,) = committed(connection, topic).values()
    assert [each[2] for each in records] == [b"1", b"3"]
    newer.close()


def test_taking_over_ends_what_the_last_owner_has_left_open(connection, topic, kind):
    name = f"p-{uuid.uuid4().hex[:8]}"
    older, newer = kind(connection, name), kind(connection, name)
    older.take_over()

    def interrupted():
        yield block(topic, ROWS * 20)
        newer.take_over()
        yield OutputRecord(topic, b"k", b"too late")

    with pytest.raises(FencedError):
        older.transact(interrupted(), nothing)
    newer.transact([OutputRecord(topic, b"k", b"mine", timestamp_ms=AT_MS)], nothing)
    newer.close()
    records = [each for several in committed(connection, topic).values() for each in several]
    assert [each[2] for each in records] == [b"mine"]


def test_a_record_beyond_the_topics_limit_is_refused_by_name(connection, kind):
    name = f"small-{uuid.uuid4().hex[:8]}"
    ensure_topics(connection, {name: TopicSettings(partitions=1, configs={"max.message.bytes": "2000"})})
    producer = kind(connection, f"p-{uuid.uuid4().hex[:8]}")
    producer.take_over()
    with pytest.raises(RecordTooLarge, match=name):
        producer.transact([OutputRecord(name, b"k", os.urandom(5_000))], nothing)


def epoch_of(connection, name):
    with closing(Brokers(connection, {Api.FIND_COORDINATOR: 4, Api.DESCRIBE_TRANSACTIONS: 0})) as brokers:
        wanted = {"key_type": 1, "coordinator_keys": [f"headrace-{name}"]}
        (found,) = brokers.ask(brokers.any(), Api.FIND_COORDINATOR, wanted).coordinators
        fields = {"transactional_ids": [f"headrace-{name}"]}
        answer = brokers.ask(brokers.at(found.host, found.port), Api.DESCRIBE_TRANSACTIONS, fields)
        return answer.transaction_states[0].producer_epoch


@pytest.mark.parametrize("version", [2, 1, 0])
def test_each_transaction_has_an_epoch_of_its_own_where_the_brokers_have_agreed_on_that(
    connection, topic, version, monkeypatch
):
    if version < 2:
        monkeypatch.setattr(Brokers, "features", lambda _: {"transaction.version": version})
    name = f"p-{uuid.uuid4().hex[:8]}"
    producer = BatchProducer(connection, name)
    producer.take_over()
    first = epoch_of(connection, name)
    for number in range(3):
        producer.transact([OutputRecord(topic, b"k", b"%d" % number, timestamp_ms=AT_MS)], nothing)
    assert epoch_of(connection, name) - first == (3 if version == 2 else 0)
    producer.close()
    assert sum(map(len, committed(connection, topic).values())) == 3


def until_it_has_ended(connection, topic):
    """Yields what is surely sent at once, and then waits until its transaction has ended by itself."""
    yield OutputRecord(topic, b"k", os.urandom(3_000_000), partition=0)
    yield OutputRecord(topic, b"k", os.urandom(3_000_000), partition=0)
    deadline = time.monotonic() + 60
    with RawFetcher(connection) as fetcher:
        while not fetcher.offsets(topic, LATEST)[0]:
            assert time.monotonic() < deadline, "the log never ended the transaction"
            time.sleep(0.01)
    yield OutputRecord(topic, b"k", b"too late", partition=0)


def test_a_transaction_that_takes_too_long_is_no_takeover(connection, topic):
    producer = BatchProducer(connection, f"p-{uuid.uuid4().hex[:8]}", timeouts_ms=[500])
    producer.take_over()
    with pytest.raises(TransactionExpired, match=r"0\.5 s"):
        producer.transact(until_it_has_ended(connection, topic), nothing)
    producer.take_over()
    producer.transact([OutputRecord(topic, b"k", b"again", timestamp_ms=AT_MS)], nothing)
    assert [each[2] for several in committed(connection, topic).values() for each in several] == [b"again"]
    producer.close()


def test_who_is_taken_over_after_its_time_is_fenced(connection, topic):
    name = f"p-{uuid.uuid4().hex[:8]}"
    older, newer = (BatchProducer(connection, name, timeouts_ms=[500]) for _ in range(2))
    older.take_over()

    def taken_over():
        for record in until_it_has_ended(connection, topic):
            if record.value == b"too late":
                newer.take_over()
            yield record

    with pytest.raises(FencedError):
        older.transact(taken_over(), nothing)
    newer.transact([OutputRecord(topic, b"k", b"mine", timestamp_ms=AT_MS)], nothing)
    newer.close()


def test_the_longest_time_that_the_log_allows_is_asked_for(connection):
    """Its own, or Kafka's, maximum is 15 minutes unless somebody has set another."""
    producer = BatchProducer(
        connection, f"p-{uuid.uuid4().hex[:8]}", timeouts_ms=[10**9, 900_001, 900_000, 1]
    )
    producer.take_over()
    assert producer.timeout_ms == 900_000
    producer.close()
    refused = BatchProducer(connection, f"p-{uuid.uuid4().hex[:8]}", timeouts_ms=[900_001])
    with pytest.raises(ConfigError, match="transaction_max_timeout_ms"):
        refused.take_over()


def test_records_are_written_where_they_must_begin_or_not_at_all(connection, topic, producer):
    first = [OutputRecord(topic, b"k", b"%d" % each, partition=1, timestamp_ms=AT_MS) for each in range(3)]
    beside = OutputRecord(topic, b"k", b"beside", partition=2, timestamp_ms=AT_MS)
    producer.write([*first, beside], first_offset=0)
    producer.write([first[0]], first_offset=4)  # after the marker of the transaction
    with pytest.raises(RetriableError, match="offset 6 instead of 5"):
        producer.write([first[1], beside], first_offset=5)
    found = committed(connection, topic)
    assert [each[2] for each in found[1]] == [b"0", b"1", b"2", b"0"]
    assert [each[2] for each in found[2]] == [b"beside"]


def test_a_record_that_no_topic_takes_is_refused_before_it_is_sent(connection, topic, producer):
    with pytest.raises(RecordTooLarge, match=topic):
        producer.write([OutputRecord(topic, b"k", bytes(65 << 20), partition=0)])
