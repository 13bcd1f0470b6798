"""Requests that are the same again, their answers, and all that lies between in one call.

Calls of microseconds, so what they take is kept in arrays of numbers, addresses among them;
each class keeps alive what it has the address of.
"""

from array import array
from enum import IntEnum
from typing import NamedTuple

from headrace.kernels.shared_library import address_of, brief, library

__all__ = [
    "ROOM_BYTES",
    "STANDING_FIELDS",
    "Came",
    "LaneCall",
    "ProducedBatch",
    "RepeatedFetch",
    "RepeatedProduce",
]

ROOM_BYTES = 64 * 1024
"""What the answers may need that are written here, a reader's and a producer's, records included."""
STANDING_FIELDS = 4  # index, high watermark, last stable offset, log start
_ANSWER_BYTES, _PART_BYTES = 512, 48  # more than an answer has besides its partitions, and a partition's
_brief = brief()
_match_fetch, _write_fetched = _brief.match_fetch, _brief.write_fetched
_find_plain_batch = _brief.find_plain_batch
_commit_alone = library().commit_alone


class Came(IntEnum):
    """What came of a batch on its lane."""

    NOT_ALONE = 0
    NOT_WRITTEN = 1
    NOT_SYNCED = 2
    COMMITTED = 3


_CAME = tuple(Came)


def _zeros(count: int) -> "array[int]":
    return array("q", bytes(8 * count))


def _place(numbers: "array[int]") -> int:
    return numbers.buffer_info()[0]


class RepeatedFetch:
    """A fetch request for one topic, and where its partitions stand.

    `offsets` and `standings` are in the order of the partitions in the first request;
    `order` has the places of those in the last one.
    """

    __slots__ = (
        *("_frame", "_head", "_places", "_shape", "_start", "_struct"),
        *("address", "count", "offsets", "order", "standings"),
    )

    def __init__(self, frame: bytes, start: int, head: bytes, indexes: list[int]) -> None:
        """The partitions begin at `start` of the request; `head` is the answer's before its partitions."""
        self._shape = frame
        self._start = start
        self._frame = bytearray(frame)
        self._head = bytearray(head)
        self.count = count = len(indexes)
        self.offsets, self.order = _zeros(count), array("q", range(count))
        self.standings = _zeros(STANDING_FIELDS * count)
        self.standings[::STANDING_FIELDS] = array("q", indexes)
        self._places = _place(self.offsets), _place(self.order)
        kept = address_of(self._frame), address_of(self._head), len(head), _place(self.standings)
        self._struct = array("q", (*kept, _place(self.order), count, 0))
        self.address = _place(self._struct)

    def matches(self, address: int, size: int) -> bool:
        """Whether the bytes there are this request, from other offsets or in another order; notes both."""
        return bool(_match_fetch(address, size, self._shape, self._start, self.count, *self._places))

    def keep(self, frame: memoryview, *, committed: bool) -> None:
        """The request, which matches, is the one to be answered, and so is its reader's kind."""
        self._frame[:] = frame
        self._struct[-1] = committed

    @property
    def frame(self) -> bytearray:
        """A copy of what was kept."""
        return self._frame.copy()

    def answer(self, room: int, *, chosen: int = -1, records: bytes = b"") -> int:
        """Writes the whole answer to what was kept to an address; its size.

        Records has the partition at place `chosen` only.
        """
        return int(_write_fetched(room, self.address, chosen, records, len(records)))

    def has_room(self, records: int) -> bool:
        """Whether the answer with so many bytes of records, and a producer's, fit into `ROOM_BYTES`."""
        return _ANSWER_BYTES * 2 + _PART_BYTES * self.count + records <= ROOM_BYTES


class ProducedBatch(NamedTuple):
    """The only batch of a produce request: for which partition, where it is, what it says of itself."""

    partition: int
    start: int
    size_bytes: int
    record_count: int
    base_timestamp: int
    max_timestamp: int


class RepeatedProduce:
    """A produce request, up to where its partitions begin."""

    __slots__ = ("_address", "_found", "_frame")

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        self._found = _zeros(len(ProducedBatch._fields))
        self._address = _place(self._found)

    def plain_batch(self, address: int, size: int) -> ProducedBatch | None:
        """What the bytes there carry, if they begin like this one and carry one batch as plain as can be."""
        if not _find_plain_batch(address, size, self._frame, len(self._frame), self._address):
            return None
        return ProducedBatch._make(self._found)


class LaneCall:
    """The way of one small batch that came alone: to the disk, its reader and its producer.

    What the kernel is told and tells, in `numbers`, by the constants below.
    """

    BATCH, SIZE, FRAME, PARTITION, COUNT, FILE, POSITION, BASE_OFFSET, LOG_START = range(9)
    HEAD, HEAD_SIZE, OTHERS, PRODUCER, READER, FETCH, CHOSEN, ROOM = range(9, 17)
    ERROR, SYNCED_NS, TOLD, TOLD_SENT, ACKNOWLEDGED, ACKNOWLEDGED_SENT, AWAITED = range(17, 24)

    __slots__ = ("_address", "_head", "numbers")

    def __init__(self, head: bytes, *, producer: int, others: int, room: int) -> None:
        """The producer's answer says `head` before its partitions; `room` is for two answers."""
        self._head = bytearray(head)
        self.numbers = numbers = _zeros(24)
        numbers[self.HEAD], numbers[self.HEAD_SIZE] = address_of(self._head), len(head)
        numbers[self.PRODUCER], numbers[self.OTHERS], numbers[self.ROOM] = producer, others, room
        self._address = _place(numbers)

    def commit(self) -> Came:
        """Goes all of the way, without Python's lock."""
        came: Came = _CAME[_commit_alone(self._address)]
        return came
