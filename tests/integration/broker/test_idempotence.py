"""Idempotent producers over the wire: raw retries, refusals, and what committed readers see.

The sequences that are compared with a real Kafka are in `tests/integration/parity`.
"""

import asyncio
import contextlib
import threading
import time

import confluent_kafka as ck
import pytest

from headrace.broker import Broker, BrokerSettings
from headrace.records import Marker, Record, decode_batch, encode_batch
from headrace.testing.batches import batches_in
from headrace.testing.broker import BrokerProcess
from headrace.wire import Api, ErrorCode

from .conftest import WITHOUT_END_MS, Peer

TIME_MS = int(time.time() * 1000)  # recent, or retention would rightly remove the records


def sent(sequence, *values, producer=1, epoch=0, transactional=False):
    return encode_batch(
        [Record(0, TIME_MS, None, value) for value in values or (b"v",)],
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def fetch(peer, topic, offset, *, committed=True, wait_ms=0):
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    fields = {
        "max_wait": wait_ms,
        "min_bytes": 1,
        "isolation_level": int(committed),
        "topics": [{"topic": topic, "partitions": [part]}],
    }
    return peer.request(Api.FETCH, 11, fields, wait_ms=wait_ms).responses[0].partitions[0]


def latest(peer, topic, *, committed, timestamp=-1):
    part = {"partition_index": 0, "timestamp": timestamp}
    fields = {"isolation_level": int(committed), "topics": [{"name": topic, "partitions": [part]}]}
    (answer,) = peer.request(Api.LIST_OFFSETS, 6, fields).topics
    assert answer.partitions[0].error_code == 0
    return answer.partitions[0].offset


def values(answer):
    data = bytes(answer.records or b"")
    return [
        record.value
        for position, header in batches_in(data)
        if not header.is_control
        for record in decode_batch(data, position)
    ]


# -- idempotence


def test_a_retry_gets_the_original_offset_and_the_log_holds_it_once(peer, topic):
    first = peer.produce(topic, sent(0, b"a", b"b"))
    peer.produce(topic, sent(2, b"c"))
    again = peer.produce(topic, sent(0, b"a", b"b"))
    assert (first.error_code, first.base_offset) == (again.error_code, again.base_offset) == (0, 0)
    assert values(peer.fetch(topic, 0)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (sent(5, epoch=2), ErrorCode.out_of_order_sequence_number),
        (sent(1, epoch=3), ErrorCode.out_of_order_sequence_number),
        (sent(0, epoch=1), ErrorCode.invalid_producer_epoch),
        (sent(-1, producer=9), ErrorCode.invalid_record),
    ],
    ids=["gap", "new epoch not at zero", "old epoch", "no sequence"],
)
def test_what_may_not_come_next_is_refused(peer, topic, batch, code):
    peer.produce(topic, sent(0, epoch=2))
    answer = peer.produce(topic, batch)
    assert (answer.error_code, answer.base_offset) == (code, -1)
    assert peer.produce(topic, sent(1, epoch=2)).base_offset == 1


def test_a_producer_that_is_not_known_begins_where_it_likes(peer, topic):
    assert peer.produce(topic, sent(33, producer=77)).error_code == 0


def test_a_retry_after_a_kill_gets_the_original_offset(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        with contextlib.closing(Peer(broker.port)) as peer:
            peer.create("once")
            offsets = [peer.produce("once", sent(number)).base_offset for number in range(7)]
        broker.kill()
        broker.start()
        with contextlib.closing(Peer(broker.port)) as peer:
            again = [peer.produce("once", sent(number)).base_offset for number in range(2, 7)]
            assert again == offsets[2:]
            assert peer.produce("once", sent(1)).error_code == ErrorCode.out_of_order_sequence_number
            assert peer.produce("once", sent(7)).base_offset == 7


def test_idle_producers_are_forgotten(start):
    broker = start(producer_id_expiration_ms=1, upkeep_interval_ms=50)
    with contextlib.closing(Peer(broker.port)) as peer:
        peer.create("idle")
        peer.produce("idle", sent(0))
        partition = broker.services.topics.partition("idle", 0)
        waited = threading.Event()
        while partition.log.producers():
            waited.wait(0.01)
        assert peer.produce("idle", sent(12)).error_code == 0


# -- what readers of committed records see


def test_a_transactional_batch_outside_of_a_transaction_is_refused(peer, topic):
    answer = peer.produce(topic, sent(0, transactional=True))
    assert answer.error_code == ErrorCode.transactional_id_authorization_failed
    assert peer.produce(topic, sent(0)).base_offset == 0


class Transactions:
    """A broker on this loop, whose log is written as the coordinator of transactions writes it."""

    def __init__(self, broker, peer):
        self.broker = broker
        self.peer = peer

    async def ask(self, call, *args, **named):
        return await asyncio.to_thread(call, self.peer, "t", *args, **named)

    async def send(self, batch):
        partition = self.broker.services.topics.partition("t", 0)
        partition.append(batch, now_ms=TIME_MS)
        await partition.synced()

    async def end(self, *, commit, producer=1):
        partition = self.broker.services.topics.partition("t", 0)
        partition.append_marker(Marker(producer, 0, 0, commit), now_ms=TIME_MS)
        await partition.synced()


def run(tmp_path, scenario):
    async def main():
        settings = BrokerSettings(data=str(tmp_path), listen="127.0.0.1:0")
        async with Broker(settings).serving() as broker:
            peer = await asyncio.to_thread(Peer, broker.port)
            try:
                await asyncio.to_thread(peer.create, "t")
                await scenario(Transactions(broker, peer))
            finally:
                await asyncio.to_thread(peer.close)

    asyncio.run(main())


def test_committed_readers_end_at_the_last_stable_offset_and_are_told_what_was_aborted(tmp_path):
    async def scenario(log):
        await log.send(sent(0, b"plain", producer=9))
        await log.send(sent(0, b"void", transactional=True))
        await log.send(sent(0, b"kept", producer=2, transactional=True))
        answer = await log.ask(fetch, 0)
        assert (values(answer), answer.last_stable_offset, answer.high_watermark) == ([b"plain"], 1, 3)
        answer = await log.ask(fetch, 0, committed=False)
        assert values(answer) == [b"plain", b"void", b"kept"]
        assert answer.aborted_transactions is None
        assert await log.ask(latest, committed=True) == 1
        assert await log.ask(latest, committed=False) == 3

        await log.end(commit=False)
        await log.end(commit=True, producer=2)
        answer = await log.ask(fetch, 0)
        assert values(answer) == [b"plain", b"void", b"kept"]
        aborted = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
        assert aborted == [(1, 1)]
        assert await log.ask(latest, committed=True) == 5

    run(tmp_path, scenario)


def test_a_record_above_the_last_stable_offset_is_not_found_by_time(tmp_path):
    async def scenario(log):
        await log.send(sent(0, b"open", transactional=True))
        assert await log.ask(latest, committed=True, timestamp=TIME_MS) == -1
        assert await log.ask(latest, committed=False, timestamp=TIME_MS) == 0

    run(tmp_path, scenario)


def test_a_long_poll_for_committed_records_waits_for_the_marker(tmp_path):
    async def scenario(log):
        await log.send(sent(0, b"a", transactional=True))
        poll = asyncio.create_task(log.ask(fetch, 0, wait_ms=WITHOUT_END_MS))
        partition = log.broker.services.topics.partition("t", 0)
        while not partition._readers:  # noqa: ASYNC110 - nothing tells that it waits
            await asyncio.sleep(0)
        await log.send(sent(1, b"b", transactional=True))  # wakes it, and it goes on waiting
        assert not poll.done()
        await log.end(commit=True)
        assert values(await poll) == [b"a", b"b"]

    run(tmp_path, scenario)


def consume(port, isolation):
    """What librdkafka gives an application, up to the end of the partition."""
    consumer = ck.Consumer(
        {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "group.id": isolation,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    consumer.assign([ck.TopicPartition("t", 0, 0)])
    found = []
    try:
        while True:
            message = consumer.poll(60)
            assert message is not None, "nothing within 60 s"
            if message.error() is not None:
                assert message.error().code() == ck.KafkaError._PARTITION_EOF
                return found
            found.append((message.offset(), message.value()))
    finally:
        consumer.close()


def test_librdkafka_leaves_out_what_was_aborted(tmp_path):
    async def scenario(log):
        for number in range(6):
            await log.send(sent(number, b"%d" % number, transactional=True))
            await log.end(commit=number % 2 == 0)
        await log.send(sent(6, b"open", transactional=True))
        committed = await asyncio.to_thread(consume, log.broker.port, "read_committed")
        assert committed == [(0, b"0"), (4, b"2"), (8, b"4")]
        everything = await asyncio.to_thread(consume, log.broker.port, "read_uncommitted")
        assert [value for _, value in everything] == [b"0", b"1", b"2", b"3", b"4", b"5", b"open"]

    run(tmp_path, scenario)
