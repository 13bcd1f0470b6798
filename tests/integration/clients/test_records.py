"""Records come back as they were sent, whichever client sends and whichever reads."""

import asyncio
import time
from collections.abc import Callable

import pytest
from kio.schema.errors import ErrorCode

from clients.driver import CODECS, Driver, DriverError, Message, Record
from clients.launch import CLIENTS
from clients.pool import ClientPool
from clients.raw import RawConnection, codecs_in, fetch_request
from clients.targets import Target

TEN_MIB = 10 * 1024 * 1024
NOW_MS = int(time.time() * 1000)  # recent, or retention would rightly remove the records
# Of a batch with one record that has neither key nor headers: 61 bytes of header, 13 of framing.
OVERHEAD_BYTES = 61 + 13


def messages_for(codec: str, count: int) -> list[Message]:
    return [
        Message(
            key=f"{codec}-{n}".encode(),
            value=f"{codec} {n} ".encode() * 20,
            headers=(("n", str(n).encode()),),
            partition=0,
            timestamp_ms=NOW_MS + n,
        )
        for n in range(count)
    ]


def as_sent(record: Record) -> Message:
    return Message(
        key=record.key,
        value=record.value,
        headers=record.headers,
        partition=record.partition,
        timestamp_ms=record.timestamp_ms,
    )


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_come_back_unchanged(
    client: Driver, new_topic: Callable[..., str], codec: str
):
    topic = new_topic()
    sent = messages_for(codec, 40)
    places = client.produce(topic, sent, codec=codec)
    found = client.read(topic, {0: 0}, 40)
    assert [as_sent(record) for record in found] == sent
    assert [record.offset for record in found] == [place.offset for place in places] == list(range(40))


@pytest.mark.parametrize("codec", CODECS)
def test_the_broker_keeps_the_codec_that_the_producer_chose(
    client: Driver, target: Target, new_topic: Callable[..., str], codec: str
):
    topic = new_topic()
    client.produce(topic, messages_for(codec, 40), codec=codec)

    async def stored() -> list[int]:
        connection = await RawConnection.open(target.bootstrap)
        answer = await connection.call(fetch_request(topic, 0))
        connection.close()
        return codecs_in(answer.responses[0].partitions[0].records)

    assert set(asyncio.run(stored())) == {CODECS.index(codec)}


@pytest.mark.parametrize("writer", CLIENTS)
def test_what_one_client_wrote_in_any_codec_every_other_reads(
    clients: ClientPool, new_topic: Callable[..., str], writer: str
):
    topic = new_topic()
    sent = [message for codec in CODECS for message in messages_for(codec, 10)]
    for codec in CODECS:
        clients[writer].produce(topic, messages_for(codec, 10), codec=codec)
    for reader in CLIENTS:
        found = clients[reader].read(topic, {0: 0}, len(sent))
        assert [as_sent(record) for record in found] == sent, f"read by {reader}"


def test_headers_keep_order_repetition_and_empty_values(client: Driver, new_topic: Callable[..., str]):
    topic = new_topic()
    headers = (("b", b"2"), ("a", b"1"), ("b", b"3"), ("empty", b""), ("größe", bytes(range(256))))
    client.produce(topic, [Message(value=b"v", headers=headers)])
    (record,) = client.read(topic, {0: 0}, 1)
    assert record.headers == headers


def test_a_header_may_have_no_value(client: Driver, new_topic: Callable[..., str]):
    topic = new_topic()
    client.produce(topic, [Message(value=b"v", headers=(("none", None), ("empty", b"")))])
    (record,) = client.read(topic, {0: 0}, 1)
    assert record.headers == (("none", None), ("empty", b""))


def test_null_and_empty_keys_and_values_are_told_apart(client: Driver, new_topic: Callable[..., str]):
    topic = new_topic()
    pairs = [(None, b"v"), (b"", b"v"), (b"k", None), (b"k", b""), (b"", b"")]
    client.produce(topic, [Message(key=key, value=value, partition=0) for key, value in pairs])
    found = client.read(topic, {0: 0}, len(pairs))
    assert [(record.key, record.value) for record in found] == pairs


def test_a_record_may_have_neither_key_nor_value(client: Driver, new_topic: Callable[..., str]):
    topic = new_topic()
    client.produce(topic, [Message(partition=0)])
    (record,) = client.read(topic, {0: 0}, 1)
    assert (record.key, record.value) == (None, None)


def test_many_records_over_several_partitions_keep_their_order(client: Driver, new_topic: Callable[..., str]):
    topic = new_topic(3)
    sent = [Message(value=str(n).encode() * 50, partition=n % 3) for n in range(3000)]
    client.produce(topic, sent)
    found = client.read(topic, {0: 0, 1: 0, 2: 0}, len(sent))
    for partition in range(3):
        mine = [record for record in found if record.partition == partition]
        assert [record.value for record in mine] == [m.value for m in sent if m.partition == partition]
        assert [record.offset for record in mine] == list(range(1000))


def test_reading_starts_at_the_offset_asked_for_even_within_a_batch(
    client: Driver, new_topic: Callable[..., str]
):
    topic = new_topic()
    client.produce(topic, messages_for("gzip", 20), codec="gzip")
    found = client.read(topic, {0: 13}, 7)
    assert [record.offset for record in found] == list(range(13, 20))


def test_a_record_of_ten_megabytes_fits_a_limit_of_exactly_its_size(
    client: Driver, new_topic: Callable[..., str]
):
    topic = new_topic(max_message_bytes=TEN_MIB)
    value = bytes(range(256)) * (TEN_MIB // 256)
    value = value[:-OVERHEAD_BYTES]
    client.produce(topic, [Message(value=value, partition=0)], max_request_bytes=2 * TEN_MIB)
    client.produce(topic, [Message(value=b"after", partition=0)])
    found = client.read(topic, {0: 0}, 2)
    assert found[0].value == value
    assert found[1].value == b"after"


def test_a_record_one_byte_over_the_limit_is_refused_and_nothing_is_kept(
    client: Driver, new_topic: Callable[..., str]
):
    topic = new_topic(max_message_bytes=TEN_MIB)
    value = b"x" * (TEN_MIB - OVERHEAD_BYTES + 1)
    with pytest.raises(DriverError) as refused:
        client.produce(topic, [Message(value=value, partition=0)], max_request_bytes=2 * TEN_MIB)
    assert refused.value.code == ErrorCode.message_too_large
    assert client.offset(topic, 0, "latest").offset == 0


def test_the_creators_timestamps_are_kept_by_default(client: Driver, new_topic: Callable[..., str]):
    topic = new_topic()
    client.produce(topic, [Message(value=b"v", partition=0, timestamp_ms=t) for t in (5000, 1000, 9000)])
    found = client.read(topic, {0: 0}, 3)
    assert [record.timestamp_ms for record in found] == [5000, 1000, 9000]
    assert not any(record.append_time for record in found)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_topic_of_append_time_gets_the_brokers_clock(
    client: Driver, new_topic: Callable[..., str], codec: str
):
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    client.produce(
        topic, [Message(value=b"v", partition=0, timestamp_ms=1000 + n) for n in range(3)], codec=codec
    )
    after = int(time.time() * 1000)
    found = client.read(topic, {0: 0}, 3)
    assert all(before <= record.timestamp_ms <= after for record in found)
    assert all(record.append_time for record in found)
