import contextlib
import socket
import threading
from pathlib import Path

import pytest

from headrace.errors import RetriableError
from headrace.records import check_batch, decode_batch, read_header
from headrace.storage.disk.disk import Disk
from headrace.testing.broker import BrokerProcess, running_broker
from headrace.wire import Api, ErrorCode, encode_request

from .conftest import WITHOUT_END_MS, Peer, batch_of, produce_fields


def values_in(answer) -> list[bytes]:
    data, position, found = bytes(answer.records), 0, []
    while position < len(data):
        header = check_batch(data, position, produced=False)
        found += [record.value for record in decode_batch(data[position : position + header.size_bytes])]
        position += header.size_bytes
    return found


def test_what_is_produced_is_fetched_byte_for_byte_but_for_the_offset(peer, topic):
    peer.produce(topic, batch_of(b"before"))
    batch = batch_of(b"one", b"two")
    assert peer.produce(topic, batch).base_offset == 1
    data = bytes(peer.fetch(topic, 1).records)
    assert read_header(data).base_offset == 1
    assert data[16:] == bytes(batch[16:])


def test_a_fetch_in_the_middle_of_a_batch_gets_the_whole_batch(peer, topic):
    peer.produce(topic, batch_of(b"a", b"b", b"c"))
    assert values_in(peer.fetch(topic, 2)) == [b"a", b"b", b"c"]


def test_a_fetch_at_the_end_waits_for_the_next_record(broker, peer, topic):
    answers = []
    reader = Peer(broker.port)
    thread = threading.Thread(
        target=lambda: answers.append(reader.fetch(topic, 0, wait_ms=WITHOUT_END_MS)), daemon=True
    )
    thread.start()
    wait_for_reader(broker, topic)
    peer.produce(topic, batch_of(b"at last"))
    thread.join(60)
    assert values_in(answers[0]) == [b"at last"]
    reader.close()


def wait_for_reader(broker, topic):
    """Until a fetch is parked at the partition."""
    import time

    deadline = time.monotonic() + 60
    while not broker.services.topics.partition(topic, 0)._readers:
        assert time.monotonic() < deadline, "no fetch was parked"
        time.sleep(0.005)


def test_min_bytes_holds_a_fetch_back_until_there_is_enough(peer, topic):
    peer.produce(topic, batch_of(b"x"))
    assert values_in(peer.fetch(topic, 0, wait_ms=200, min_bytes=1_000_000)) == [b"x"]


def test_an_answer_has_at_most_what_the_broker_allows_unless_the_reader_insists_on_more(broker, peer, topic):
    most = broker.settings.fetch_max_bytes
    each = batch_of(bytes(900_000))
    for _ in range(most // len(each) + 3):
        peer.produce(topic, each)
    everything = {"max_bytes": 50_000_000}
    assert most - len(each) < len(peer.fetch(topic, 0, **everything).records) <= most
    assert len(peer.fetch(topic, 0, min_bytes=most + 1, **everything).records) > most


def test_a_waiting_fetch_gathers_what_comes_until_there_is_enough(broker, peer):
    peer.create("gathering", partitions=3)
    size, answers = len(batch_of(b"x")), []
    peer.produce("gathering", batch_of(b"0"))
    fields = {
        "max_wait": WITHOUT_END_MS,
        "min_bytes": 4 * size,
        "topics": [
            {
                "topic": "gathering",
                "partitions": [
                    {"partition": each, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
                    for each in range(3)
                ],
            }
        ],
    }
    reader = Peer(broker.port)
    ask = lambda: answers.append(reader.request(Api.FETCH, 11, fields, wait_ms=WITHOUT_END_MS))  # noqa: E731
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    wait_for_reader(broker, "gathering")
    for partition, value in [(2, b"1"), (0, b"2"), (2, b"3")]:
        peer.produce("gathering", batch_of(value), partition=partition)
    thread.join(60)
    parts = answers[0].responses[0].partitions
    assert [values_in(part) for part in parts] == [[b"0", b"2"], [], [b"1", b"3"]]
    assert [part.high_watermark for part in parts] == [2, 0, 2]
    reader.close()


def test_a_fetch_that_finds_nothing_is_answered_when_its_time_is_over(broker, topic):
    # On the loop that the process uses: its timers are the ones that may run early.
    with BrokerProcess(Path(broker.settings.data).parent / f"{topic}-own") as own:
        peer = Peer(own.port)
        peer.create(topic)
        for wait_ms in range(1, 120):
            assert values_in(peer.fetch(topic, 0, wait_ms=wait_ms)) == []
        peer.close()


def test_a_parked_fetch_of_a_client_that_left_is_forgotten(broker, topic):
    reader = Peer(broker.port)
    thread = threading.Thread(target=_fetch_quietly, args=(reader, topic))
    thread.start()
    wait_for_reader(broker, topic)
    reader.socket.shutdown(2)
    thread.join(60)
    import time

    deadline = time.monotonic() + 60
    while broker.services.topics.partition(topic, 0)._readers:
        assert time.monotonic() < deadline, "the fetch is still parked"
        time.sleep(0.005)


def _fetch_quietly(reader: Peer, topic: str) -> None:
    with pytest.raises(RetriableError):
        reader.fetch(topic, 0, wait_ms=60_000)


def test_pipelined_produces_are_answered_in_order(peer, topic):
    frames = [
        encode_request(Api.PRODUCE, 9, n, "p", produce_fields(topic, batch_of(b"%d" % n))) for n in range(200)
    ]
    peer.socket.sendall(b"".join(frames))
    answered = []
    for _ in frames:
        frame = peer._receive()
        answered.append(int.from_bytes(frame[:4], "big"))
    assert answered == list(range(200))
    assert values_in(peer.fetch(topic, 0)) == [b"%d" % n for n in range(200)]


def test_acks_0_is_stored_and_not_answered(peer, topic):
    fields = produce_fields(topic, batch_of(b"quiet"), acks=0)
    peer.socket.sendall(encode_request(Api.PRODUCE, 9, 77, "p", fields))
    # The next answer on this connection is the fetch's own: had the produce been
    # answered, its correlation id would not fit.
    assert values_in(peer.fetch(topic, 0, wait_ms=10_000)) == [b"quiet"]


def test_append_time_replaces_the_producers_and_the_answer_says_so(broker, peer):
    peer.create("stamped", message_timestamp_type="LogAppendTime")
    answer = peer.produce("stamped", batch_of(b"x", timestamp_ms=1))
    data = bytes(peer.fetch("stamped", 0).records)
    header = check_batch(data, 0, produced=False)
    assert header.is_append_time
    assert header.max_timestamp == answer.log_append_time > 1_700_000_000_000


def test_a_batch_over_the_topics_limit_is_refused(peer):
    peer.create("small", max_message_bytes=200)
    assert peer.produce("small", batch_of(bytes(300))).error_code == ErrorCode.message_too_large
    assert peer.produce("small", batch_of(bytes(50))).error_code == 0


def _flip(batch: bytearray, position: int) -> bytearray:
    batch[position] ^= 1
    return batch


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda batch: _flip(batch, len(batch) - 1), ErrorCode.corrupt_message),
        (lambda batch: _flip(batch, 16), ErrorCode.corrupt_message),
        (lambda batch: batch[:-1], ErrorCode.invalid_record),
        (lambda batch: batch + batch, ErrorCode.invalid_record),
        (lambda batch: b"", ErrorCode.invalid_record),
        (lambda batch: None, ErrorCode.invalid_record),
        (lambda batch: b"not a batch", ErrorCode.invalid_record),
    ],
    ids=["crc", "magic", "cut", "two", "empty", "null", "noise"],
)
def test_spoiled_batches_are_refused_and_leave_no_trace(peer, topic, spoil, code):
    assert peer.produce(topic, spoil(batch_of(b"x"))).error_code == code
    assert peer.produce(topic, batch_of(b"good")).base_offset == 0


def test_the_internal_topic_cannot_be_written_by_clients(peer):
    refused = peer.produce("__consumer_offsets", batch_of(b"x"))
    assert refused.error_code == ErrorCode.invalid_topic_exception


def test_unknown_topics_and_partitions_have_kafkas_codes(peer, topic):
    unknown = ErrorCode.unknown_topic_or_partition
    assert peer.produce("nowhere", batch_of(b"x")).error_code == unknown
    assert peer.produce(topic, batch_of(b"x"), partition=5).error_code == unknown
    assert peer.produce(topic, batch_of(b"x"), acks=3).error_code == ErrorCode.invalid_required_acks
    assert peer.fetch("nowhere", 0).error_code == unknown
    assert peer.fetch(topic, 99).error_code == ErrorCode.offset_out_of_range


def test_max_bytes_cuts_but_the_first_batch_is_always_whole(peer, topic):
    for n in range(5):
        peer.produce(topic, batch_of(bytes([n]) * 1000))
    first = peer.fetch(topic, 0, max_bytes=10)
    assert values_in(first) == [bytes(1000)]
    two = peer.fetch(topic, 0, max_bytes=2500)
    assert values_in(two) == [bytes(1000), bytes([1]) * 1000]
    assert len(two.records) == 2 * len(batch_of(bytes(1000)))  # and no part of the third


def test_a_record_of_ten_megabytes_goes_in_and_out_in_windows(peer):
    peer.create("large", max_message_bytes=10_500_000)
    batch = batch_of(b"0123456789" * 1_000_000)
    assert peer.produce("large", batch).error_code == 0
    assert values_in(peer.fetch("large", 0, max_bytes=1)) == [b"0123456789" * 1_000_000]


def test_readers_that_are_slow_each_get_their_own_bytes(tmp_path):
    with BrokerProcess(tmp_path) as broker:
        port, count = int(broker.bootstrap.rpartition(":")[2]), 24
        peer = Peer(port)
        peer.create("slow")
        for number in range(count):
            peer.produce("slow", batch_of(bytes([number]) * 200_000))
        readers = []
        for first in range(0, count, 4):
            reader = Peer(port)
            reader.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32_768)
            part = {"partition": 0, "fetch_offset": first, "partition_max_bytes": 10_000_000}
            fields = {"max_wait": 0, "min_bytes": 1, "topics": [{"topic": "slow", "partitions": [part]}]}
            reader.socket.sendall(encode_request(Api.FETCH, 11, 1, "slow", fields))
            readers.append((first, reader, bytearray()))
        while unread := [each for each in readers if not is_whole(each[2])]:
            for _, reader, received in unread:
                received += reader.socket.recv(30_000)
        for first, reader, received in readers:
            assert received.endswith(peer.fetch("slow", first, max_bytes=10_000_000).records)
            reader.close()
        peer.close()


def is_whole(received: bytearray) -> bool:
    return len(received) >= 4 and len(received) == 4 + int.from_bytes(received[:4], "big")


class ColdDisk(Disk):
    """Nothing is ever in memory."""

    def pread_into(self, fd, buffer, position):
        return None


def test_what_is_not_in_memory_is_read_and_sent_all_the_same(tmp_path):
    with running_broker(tmp_path, disk=ColdDisk()) as broker, contextlib.closing(Peer(broker.port)) as peer:
        peer.create("cold")
        sent = [bytes([number]) * 300_000 for number in range(5)]
        for value in sent:
            peer.produce("cold", batch_of(value))
        assert values_in(peer.fetch("cold", 0, max_bytes=10_000_000)) == sent
