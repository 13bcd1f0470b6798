"""Requests that are sent again and again, known by their bytes.

Theory of operation. A reader who keeps up sends the same fetch after each answer, and a
producer the same request around other records: what differs is the correlation id, the
records or offsets, and the order of the partitions. So of a request for one topic that
was decoded once its *shape* is kept, the bytes that stay the same. The next request is
compared with them, and only the rest of it is read. The answer has a shape, too.

What does not fit a shape is decoded as any other request: nothing is refused here.
Whatever fits has the body that the general codec reads, and gets the answer that the
general codec writes; `tests/property/wire` holds them to it.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from headrace.kernels import ProducedBatch, RepeatedFetch, RepeatedProduce, address_of
from headrace.wire.fast_codec import BY_ID, FETCH_WITHOUT_REPLICA, Unusual, read_size, short
from headrace.wire.schemas import MESSAGES
from headrace.wire.values import Frame, write_uvarint

__all__ = ["FetchShape", "ProduceShape"]

_PRODUCE, _FETCH = 0, 1
_HEADER_AT = 8  # behind API key, version and correlation id
_UNFIT = (Unusual, struct.error, IndexError)
_int32_at = struct.Struct(">i").unpack_from


def _behind_header(frame: bytearray) -> int:
    """Where the body begins; Unusual if there are tagged fields before it."""
    length = int.from_bytes(frame[_HEADER_AT : _HEADER_AT + 2], "big", signed=True)
    position = _HEADER_AT + 2 + max(length, 0)
    if frame[position]:
        raise Unusual
    return position + 1


def _one_topic(frame: bytearray, position: int, by_id: bool) -> tuple[bytes, int]:
    """Behind the number of topics, the id, or length and name, of the only one; and where it ends."""
    if short(frame, position) != 1:
        raise Unusual
    end = position + 17 if by_id else position + 2 + short(frame, position + 1)
    if end >= len(frame):
        raise Unusual
    return bytes(frame[position + 1 : end]), end


# --- produce ----------------------------------------------------------------------------------


class ProduceShape:
    """A produce request for one topic, outside of transactions, whatever partitions and records it has."""

    __slots__ = ("_again", "_head", "_topic", "version")
    _start_answer = struct.Struct(">iiB")
    _add_part = struct.Struct(">ihqqqBBB").pack  # at the end: no record errors, no message, no tagged fields
    _end_answer = struct.Struct(">BiB").pack

    def __init__(self, frame: bytes, topic: bytes, version: int) -> None:
        """Use `of`."""
        self._head = frame[_HEADER_AT:]
        self._again = RepeatedProduce(frame)
        self._topic = b"\2" + topic  # one of them
        self.version = version

    @classmethod
    def of(cls, frame: bytearray, version: int) -> "ProduceShape | None":
        """Of a request that has been decoded; None if it is not one of these."""
        if version < MESSAGES[_PRODUCE].flexible_request:
            return None
        try:
            position = _behind_header(frame)
            if frame[position]:  # a transactional id
                return None
            topic, end = _one_topic(frame, position + 7, version >= BY_ID)
        except _UNFIT:
            return None
        return cls(bytes(frame[:end]), topic, version)

    def plain_batch(self, address: int, size: int) -> ProducedBatch | None:
        """The only batch of the next request, which is `size` bytes there, if it is as plain as can be.

        It is whole and intact then, and as `records.check_batch` demands of a producer's.
        """
        return self._again.plain_batch(address, size)

    def again(self, frame: bytearray) -> list[tuple[int, memoryview]] | None:
        """Partitions and records of the next request, if it is of this shape and version."""
        position = _HEADER_AT + len(self._head)
        if frame[_HEADER_AT:position] != self._head:
            return None
        found = []
        try:
            view, end = memoryview(frame), len(frame)
            count, position = short(frame, position), position + 1
            for _ in range(count):
                (index,) = _int32_at(frame, position)
                size, start = read_size(frame, position + 4)
                position = start + size
                if position >= end or frame[position]:
                    return None
                found.append((index, view[start:position]))
                position += 1
            if frame[position] or frame[position + 1]:
                return None
        except _UNFIT:
            return None
        return found

    @property
    def head(self) -> bytes:
        """What the answer says before its partitions, behind correlation id and tagged fields."""
        return self._topic

    def answer(
        self, correlation_id: int, throttle_ms: int, parts: Sequence[Mapping[str, Any]]
    ) -> Frame | None:
        """The whole answer, given the fields of each partition's; None if something went wrong with one."""
        out = Frame(9)
        out += self._topic
        write_uvarint(out, len(parts) + 1)
        for part in parts:
            if part["error_code"]:
                return None
            place = part["index"], 0, part["base_offset"], part.get("log_append_time", -1)
            out += self._add_part(*place, part["log_start_offset"], 1, 0, 0)
        out += self._end_answer(0, throttle_ms, 0)
        self._start_answer.pack_into(out, 0, len(out) - 4, correlation_id, 0)
        return out


# --- fetch ------------------------------------------------------------------------------------


class FetchShape:
    """A fetch of one topic, from whatever offsets, its partitions in any order."""

    __slots__ = ("again", "indexes", "version")
    _each_part = struct.Struct(">i4sq17s")  # its number, what is as it was, its offset, what is as it was
    _behind_parts = b"\0\1\1\0"  # no tagged fields, nothing forgotten, no rack, no tagged fields

    def __init__(self, frame: bytes, start: int, head: bytes, indexes: list[int], version: int) -> None:
        """Use `of`."""
        self.again = RepeatedFetch(frame, start, head, indexes)
        self.indexes = indexes
        self.version = version

    @classmethod
    def of(cls, frame: bytearray, version: int) -> "FetchShape | None":
        """Of a request that has been decoded; None if it is not one of these."""
        if version < MESSAGES[_FETCH].flexible_request:
            return None
        try:
            position = _behind_header(frame) + (21 if version >= FETCH_WITHOUT_REPLICA else 25)
            topic, position = _one_topic(frame, position, version >= BY_ID)
            count, start = short(frame, position), position + 1
        except _UNFIT:
            return None
        end = start + count * cls._each_part.size
        if frame[end:] != cls._behind_parts:
            return None
        indexes = [each[0] for each in cls._each_part.iter_unpack(memoryview(frame)[start:end])]
        if len(set(indexes)) < count:
            return None
        head = b"\2" + topic + frame[position:start]  # one of them, and how many partitions
        return cls(bytes(frame), start, head, indexes, version)

    def offsets(self, frame: bytearray) -> dict[int, int] | None:
        """The offset of each partition, in their order, if the next request is of this shape."""
        again = self.again
        if not again.matches(address_of(frame), len(frame)):
            return None
        return {self.indexes[place]: again.offsets[place] for place in again.order}
