"""One small batch, in one call, to a file and two sockets."""

import ctypes
import errno
import os
import socket
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from headrace.kernels.requests import ROOM_BYTES, STANDING_FIELDS, Came, LaneCall
from headrace.kernels.shared_library import address_of
from headrace.records import Record, encode_batch, stamp
from headrace.wire import Api, encode_request, encode_response
from headrace.wire.repeated_requests import FetchShape, ProduceShape

TOPIC = {"topic_id": uuid.uuid4(), "name": "t"}
PRODUCE, FETCH = 10, 16
BASE_OFFSET, LOG_START, POSITION, PARTITION = 1000, 3, 5, 4
IN_MODIFY = 2


@dataclass
class Road:
    """A call with both ends of its sockets, and what it is to carry."""

    call: LaneCall
    shape: FetchShape
    room: bytearray
    frame: bytearray
    batch: bytearray  # as it is to be kept
    start: int
    producer: socket.socket
    reader: socket.socket
    file: int

    def go(self) -> Came:
        call, numbers, address = self.call, self.call.numbers, address_of(self.frame)
        numbers[call.FRAME], numbers[call.BATCH], numbers[call.SIZE] = (
            address,
            address + self.start,
            len(self.batch),
        )
        numbers[call.PARTITION], numbers[call.COUNT], numbers[call.LOG_START] = PARTITION, 2, LOG_START
        numbers[call.FILE], numbers[call.POSITION], numbers[call.BASE_OFFSET] = (
            self.file,
            POSITION,
            BASE_OFFSET,
        )
        return call.commit()

    def told(self) -> bytes:
        return received(self.reader)

    def acknowledged(self) -> bytes:
        return received(self.producer)


def received(end: socket.socket) -> bytes:
    try:
        return end.recv(ROOM_BYTES)
    except BlockingIOError:
        return b""


@pytest.fixture
def road(tmp_path: Path) -> Iterator[Road]:
    batch = bytearray(encode_batch([Record(n, 7, b"k", b"v%d" % n) for n in range(2)]))
    parts = [{"index": PARTITION, "records": bytes(batch)}]
    fields = {"acks": -1, "timeout": 1, "topic_data": [{**TOPIC, "partition_data": parts}]}
    frame = bytearray(encode_request(Api.PRODUCE, PRODUCE, 11, "c", fields)[4:])
    asked = [{"partition": index, "fetch_offset": BASE_OFFSET} for index in (9, PARTITION)]
    topics = [{"topic_id": TOPIC["topic_id"], "topic": TOPIC["name"], "partitions": asked}]
    fetch = bytearray(encode_request(Api.FETCH, FETCH, 12, "c", {"topics": topics})[4:])
    produces, reads = ProduceShape.of(frame, PRODUCE), FetchShape.of(fetch, FETCH)
    assert produces is not None
    assert reads is not None
    reads.again.keep(memoryview(fetch), committed=True)
    reads.again.standings[STANDING_FIELDS + 3] = LOG_START
    room = bytearray(ROOM_BYTES)
    producer, producers = socket.socketpair()
    reader, readers = socket.socketpair()
    file = os.open(tmp_path / "segment", os.O_RDWR | os.O_CREAT)
    call = LaneCall(produces.head, producer=producers.fileno(), others=-1, room=address_of(room))
    call.numbers[call.READER], call.numbers[call.FETCH] = readers.fileno(), reads.again.address
    call.numbers[call.CHOSEN] = 1
    for end in (producer, reader, readers, producers):
        end.setblocking(False)
    stamp(batch, 0, BASE_OFFSET, 0)
    yield Road(call, reads, room, frame, batch, frame.index(batch[16:]) - 16, producer, reader, file)
    for end in (producer, reader, readers, producers):
        end.close()
    os.close(file)


def expected_acknowledgement() -> bytes:
    part = {"index": PARTITION, "base_offset": BASE_OFFSET, "log_start_offset": LOG_START}
    return encode_response(
        Api.PRODUCE, PRODUCE, 11, {"responses": [{**TOPIC, "partition_responses": [part]}]}
    )


def expected_answer(batch: bytes) -> bytes:
    end = BASE_OFFSET + 2
    there = {"high_watermark": end, "last_stable_offset": end, "log_start_offset": LOG_START}
    nothing = dict.fromkeys(there, 0)
    parts = [
        {"partition_index": 9, "aborted_transactions": (), "records": b"", **nothing},
        {"partition_index": PARTITION, "aborted_transactions": (), "records": batch, **there},
    ]
    responses = [{"topic_id": TOPIC["topic_id"], "topic": TOPIC["name"], "partitions": parts}]
    return encode_response(Api.FETCH, FETCH, 12, {"responses": responses})


def test_the_batch_is_in_the_file_and_both_are_answered(road: Road):
    assert road.go() is Came.COMMITTED
    assert os.pread(road.file, 1 << 16, 0) == bytes(POSITION) + road.batch
    assert road.told() == expected_answer(bytes(road.batch))
    assert road.acknowledged() == expected_acknowledgement()
    numbers, call = road.call.numbers, road.call
    assert numbers[call.TOLD] == numbers[call.TOLD_SENT] == len(expected_answer(bytes(road.batch)))
    assert numbers[call.ACKNOWLEDGED] == numbers[call.ACKNOWLEDGED_SENT] == len(expected_acknowledgement())
    assert numbers[call.SYNCED_NS] > 0
    assert not numbers[call.AWAITED]


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_it_is_told_when_others_have_something_to_do_by_then(road: Road, tmp_path):
    library = ctypes.CDLL(None)
    others = library.inotify_init()  # readable once the file is written to
    try:
        library.inotify_add_watch(others, bytes(tmp_path / "segment"), IN_MODIFY)
        road.call.numbers[road.call.OTHERS] = others
        assert road.go() is Came.COMMITTED
        assert road.call.numbers[road.call.AWAITED] == 1
        assert road.acknowledged() == expected_acknowledgement()
    finally:
        os.close(others)


def test_where_nobody_reads_the_producer_is_answered_alone(road: Road):
    road.call.numbers[road.call.READER] = -1
    assert road.go() is Came.COMMITTED
    assert road.told() == b""
    assert road.acknowledged() == expected_acknowledgement()
    assert road.call.numbers[road.call.TOLD] == 0


def test_while_others_have_something_to_do_nothing_is_done(road: Road):
    road.producer.send(b"x")  # its other end is readable now
    call, before = road.call, bytes(road.frame)
    call.numbers[call.OTHERS] = call.numbers[call.PRODUCER]
    assert road.go() is Came.NOT_ALONE
    assert os.fstat(road.file).st_size == 0
    assert (road.told(), road.acknowledged()) == (b"", b"")
    assert bytes(road.frame) == before


@pytest.mark.parametrize(
    ("file", "came", "error"),
    [
        (("/dev/full", os.O_RDWR), Came.NOT_WRITTEN, errno.ENOSPC),
        (("/dev/null", os.O_RDONLY), Came.NOT_WRITTEN, errno.EBADF),
        (("/dev/null", os.O_RDWR), Came.NOT_SYNCED, errno.EINVAL),
    ],
)
def test_what_the_disk_refuses_is_answered_to_nobody_and_is_as_it_came(road: Road, file, came, error):
    before = bytes(road.frame)
    os.dup2(os.open(*file), road.file)
    assert road.go() is came
    assert road.call.numbers[road.call.ERROR] == error
    assert (road.told(), road.acknowledged()) == (b"", b"")
    unlike = [at for at, octet in enumerate(before) if road.frame[at] != octet]
    assert set(unlike) <= set(range(road.start + 12, road.start + 16))  # the leader epoch, which is nobody's


def test_what_a_socket_does_not_take_is_left_in_the_room(road: Road):
    call = road.call
    with socket.socket(fileno=os.dup(call.numbers[call.READER])) as full:
        full.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                full.send(bytes(1 << 16))
    assert road.go() is Came.COMMITTED
    assert call.numbers[call.TOLD_SENT] == 0
    told = call.numbers[call.TOLD]
    assert bytes(road.room[:told]) == expected_answer(bytes(road.batch))
    assert road.acknowledged() == expected_acknowledgement()
