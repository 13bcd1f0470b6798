"""Produce and fetch requests are served where they arrive; what must wait for something takes its turn."""

import contextlib
import time

import pytest

from headrace.records import read_header
from headrace.storage import Disk
from headrace.wire import Api, encode_request

from .conftest import WITHOUT_END_MS, Peer, batch_of, produce_fields
from .test_produce_and_fetch import values_in, wait_for_reader


class ColdDisk(Disk):
    """Has in memory, of what is asked for without a wait, so many bytes and no more."""

    def __init__(self, warm_bytes: int) -> None:
        self.warm_bytes = warm_bytes

    def pread_nowait(self, fd: int, size: int, position: int):
        return super().pread(fd, min(size, self.warm_bytes), position) if self.warm_bytes else None


def fetch_frame(topic: str, offset: int, correlation_id: int, *, version: int = 12) -> bytes:
    part = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
    fields = {"max_wait": WITHOUT_END_MS, "min_bytes": 1, "topics": [{"topic": topic, "partitions": [part]}]}
    return bytes(encode_request(Api.FETCH, version, correlation_id, "peer", fields))


def next_correlation_id(peer: Peer) -> int:
    """Of the next answer on a connection."""
    data = b""
    while len(data) < 4:
        data += peer.socket.recv(4 - len(data))
    answer = b""
    while len(answer) < int.from_bytes(data, "big"):
        answer += peer.socket.recv(int.from_bytes(data, "big") - len(answer))
    return int.from_bytes(answer[:4], "big")


def test_what_is_asked_behind_a_long_poll_is_answered_behind_it(broker, peer, topic):
    with contextlib.closing(Peer(broker.port)) as reader:
        batch = bytes(batch_of(b"from the reader itself"))
        reader.socket.sendall(
            fetch_frame(topic, 0, 1)
            + bytes(encode_request(Api.METADATA, 12, 2, "peer", {"topics": None}))
            + bytes(encode_request(Api.PRODUCE, 9, 3, "peer", produce_fields(topic, batch)))
            + fetch_frame(topic, 0, 4)
        )
        wait_for_reader(broker, topic)
        assert broker.services.topics.partition(topic, 0).log.end_offset == 0
        peer.produce(topic, batch_of(b"at last"))
        assert [next_correlation_id(reader) for _ in range(4)] == [1, 2, 3, 4]
        reader.socket.sendall(fetch_frame(topic, 2, 5))  # and the next is served at once again
        wait_for_reader(broker, topic)
        peer.produce(topic, batch_of(b"more"))
        assert next_correlation_id(reader) == 5


@pytest.mark.parametrize("warm_bytes", [0, 40])
def test_records_that_are_not_in_memory_are_served_all_the_same(start, warm_bytes):
    broker = start(disk=ColdDisk(warm_bytes))
    with contextlib.closing(Peer(broker.port)) as peer, contextlib.closing(Peer(broker.port)) as reader:
        peer.create("cold")
        for value in (b"a", b"b" * 5000):
            peer.produce("cold", batch_of(value))
        assert values_in(reader.fetch("cold", 0)) == [b"a", b"b" * 5000]
        reader.socket.sendall(fetch_frame("cold", 2, 9) + fetch_frame("cold", 0, 10))
        wait_for_reader(broker, "cold")
        peer.produce("cold", batch_of(b"c"))
        assert [next_correlation_id(reader) for _ in range(2)] == [9, 10]


def test_a_large_produce_request_that_cannot_be_read_gives_its_memory_back(start):
    broker = start()
    with contextlib.closing(Peer(broker.port)) as peer:
        frame = bytearray(
            encode_request(Api.PRODUCE, 9, 1, "peer", produce_fields("t", bytes(batch_of(bytes(200_000)))))
        )
        frame[4 + 14] = 0x7F  # a transactional id that goes on over everything
        frame[-200_100:] = b"\xff" * 200_100
        peer.socket.sendall(frame)
        assert peer.socket.recv(1) == b""  # closed
    deadline = time.monotonic() + 60
    while broker.services.memory.held_bytes:
        assert time.monotonic() < deadline, "the memory was kept"
        time.sleep(0.005)


def test_pipelined_requests_keep_their_order_when_one_of_them_must_be_looked_into(start):
    broker = start(check_records=True)
    with contextlib.closing(Peer(broker.port)) as peer:
        peer.create("t", max_message_bytes=8 << 20)
        large, small = bytes(batch_of(bytes(3 << 20))), bytes(batch_of(b"small"))
        for number, batch in enumerate((small, large, small)):
            fields = produce_fields("t", batch)
            peer.socket.sendall(encode_request(Api.PRODUCE, 9, number, "peer", fields))
        assert [next_correlation_id(peer) for _ in range(3)] == [0, 1, 2]
        sizes = [len(bytes(peer.fetch("t", offset, max_bytes=1).records)) for offset in range(3)]
        assert sizes == [len(small), len(large), len(small)]
        assert read_header(bytes(peer.fetch("t", 1, max_bytes=1).records)).base_offset == 1
