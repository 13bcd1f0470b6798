import ctypes
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.wire import FrameAssembler, MalformedError
from headrace.wire.frame_assembler import FIRST_BUFFER_BYTES, SMALL_FRAME_BYTES, FrameBuffers


def address(buffer: bytearray) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


class Stream:
    """Feeds bytes to an assembler in pieces and keeps what it emits."""

    def __init__(self, *, max_bytes: int = 10_000_000, grants: bool = True) -> None:
        self.frames: list[bytes] = []
        self.reserved: list[int] = []
        self.grants = grants
        self.assembler = FrameAssembler(
            memoryview(bytearray(SMALL_FRAME_BYTES)),
            max_bytes=max_bytes,
            reserve=self._reserve,
            emit=lambda frame: self.frames.append(bytes(frame)),
        )

    def _reserve(self, size: int) -> bool:
        if self.grants:
            self.reserved.append(size)
        return self.grants

    def feed(self, data: bytes, most: int = 1 << 30) -> int:
        """Feeds until everything is taken or the assembler is blocked; how much was taken."""
        position = 0
        while position < len(data) and not self.assembler.blocked:
            buffer = self.assembler.buffer()
            piece = data[position : position + min(len(buffer), most)]
            buffer[: len(piece)] = piece
            self.assembler.received(len(piece))
            position += len(piece)
        return position


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


def test_frames_come_out_whole_however_the_stream_is_cut():
    draw = random.Random(7)
    sizes = [8, 100, SMALL_FRAME_BYTES, SMALL_FRAME_BYTES + 1, 9, 300_000, 8, 70_000, 64]
    bodies = [draw.randbytes(size) for size in sizes]
    for most in (3, 1000, 65_536, 1 << 30):
        stream = Stream()
        stream.feed(framed(*bodies), most)
        assert stream.frames == bodies
        assert not stream.assembler.in_the_middle


def test_only_large_frames_reserve_memory():
    stream = Stream()
    stream.feed(framed(bytes(8), bytes(SMALL_FRAME_BYTES), bytes(SMALL_FRAME_BYTES + 1)))
    assert stream.reserved == [SMALL_FRAME_BYTES + 1]


def test_what_is_reserved_grows_with_what_arrives_and_ends_at_the_frames_size():
    stream = Stream()
    data = framed(bytes(9_000_000))
    stream.feed(data[:100])
    assert sum(stream.reserved) < 1_200_000
    stream.feed(data[100:3_000_000])
    assert sum(stream.reserved) < 6_500_000
    stream.feed(data[3_000_000:])
    assert sum(stream.reserved) == 9_000_000
    assert [len(frame) for frame in stream.frames] == [9_000_000]


def test_growth_that_is_refused_blocks_until_it_is_granted():
    stream = Stream()
    data = framed(random.Random(3).randbytes(5_000_000))
    stream.feed(data[:100])
    stream.grants = False
    taken = 100 + stream.feed(data[100:])
    assert stream.assembler.blocked
    stream.grants = True
    stream.assembler.unblock()
    stream.feed(data[taken:])
    assert stream.frames == [data[4:]]


def test_an_abandoned_frame_holds_nothing():
    stream = Stream()
    stream.feed(framed(bytes(500_000))[:1000])
    assert stream.assembler.reserved_bytes == 500_000
    stream.assembler.abandon()
    assert stream.assembler.reserved_bytes == 0
    assert not stream.assembler.in_the_middle


def test_a_refused_reservation_blocks_until_it_is_granted():
    stream = Stream(grants=False)
    data = framed(bytes(range(8)), bytes(100_000), b"the last")
    taken = stream.feed(data)
    assert stream.assembler.blocked
    assert stream.frames == [bytes(range(8))]
    stream.grants = True
    stream.assembler.unblock()
    stream.feed(data[taken:])
    assert [len(frame) for frame in stream.frames] == [8, 100_000, 8]


@pytest.mark.parametrize("size", [-1, 0, 7, 1_000_001, 2**31 - 1, -(2**31)])
def test_absurd_lengths_are_refused_before_anything_is_reserved(size):
    stream = Stream(max_bytes=1_000_000)
    with pytest.raises(MalformedError, match="max_request_bytes"):
        stream.feed(size.to_bytes(4, "big", signed=True) + bytes(20))
    assert stream.reserved == []


def test_half_a_frame_is_known_to_be_half():
    stream = Stream()
    stream.feed(framed(bytes(100))[:50])
    assert stream.assembler.in_the_middle
    stream.feed(framed(bytes(100))[50:])
    assert not stream.assembler.in_the_middle


def test_a_frame_s_memory_is_used_again():
    buffers = FrameBuffers(10 * FIRST_BUFFER_BYTES)
    for size in (1_000_000, 1_000_000, 999_000, 1_100_000, 600_000):
        buffer = buffers.take(size)
        assert len(buffer) == size
        place = address(buffer)
        buffers.give_back(buffer)
        del buffer
        again = buffers.take(size)
        assert (len(again), address(again)) == (size, place)
        buffers.give_back(again)


def test_memory_that_somebody_looks_at_is_not_used_again():
    buffers = FrameBuffers(10 * FIRST_BUFFER_BYTES)
    first = buffers.take(1_000_000)
    first[:5] = b"first"
    records = memoryview(first)[:5]
    buffers.give_back(first)
    second = buffers.take(1_000_000)
    second[:6] = b"second"
    assert records == b"first"


def test_no_more_memory_is_kept_than_allowed():
    buffers = FrameBuffers(2 * FIRST_BUFFER_BYTES)
    taken = [buffers.take(1_000_000) for _ in range(3)]
    places = [address(buffer) for buffer in taken]
    for buffer in taken:
        buffers.give_back(buffer)
    again = [buffers.take(1_000_000) for _ in range(3)]
    assert {address(buffer) for buffer in again[:2]} == set(places[:2])
    assert again[2] is not taken[2]


def test_a_buffer_that_grew_for_a_very_large_frame_is_not_kept():
    buffers = FrameBuffers(10 * FIRST_BUFFER_BYTES)
    buffers.give_back(bytearray(FIRST_BUFFER_BYTES + 1))
    assert len(buffers.take(FIRST_BUFFER_BYTES)) == FIRST_BUFFER_BYTES


@given(sizes=st.lists(st.integers(SMALL_FRAME_BYTES + 1, FIRST_BUFFER_BYTES), max_size=20))
def test_a_buffer_has_the_size_that_was_asked_for(sizes):
    buffers = FrameBuffers(3 * FIRST_BUFFER_BYTES)
    for size in sizes:
        buffer = buffers.take(size)
        assert len(buffer) == size
        buffers.give_back(buffer)


def test_buffers_of_a_size_that_is_no_longer_used_make_room_for_others():
    buffers, large, small = FrameBuffers(4 * FIRST_BUFFER_BYTES), FIRST_BUFFER_BYTES, 200_000
    for taken in ([buffers.take(large) for _ in range(4)], [buffers.take(small) for _ in range(8)]):
        for buffer in taken:
            buffers.give_back(buffer)
    again = [buffers.take(small) for _ in range(8)]
    assert {id(buffer) for buffer in again} == {id(buffer) for buffer in taken}
    for buffer in again:
        buffers.give_back(buffer)
    rooms = sum(room * len(kept) for room, kept in buffers._kept.items())
    assert rooms <= 4 * FIRST_BUFFER_BYTES
    assert len(buffers._kept[large]) == 2  # no more went than had to
