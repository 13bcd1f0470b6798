"""Records, many at a time, into the batches of their topics' partitions."""

import ctypes
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from headrace.kernels.shared_library import INT, POINTER, declared

__all__ = ["NoRoom", "TopicBatches", "append_records", "hash_key"]

_from_buffer = ctypes.c_char.from_buffer


@cache
def _library() -> ctypes.CDLL:
    return declared(
        {"append_records": [POINTER, POINTER, INT, INT, POINTER, INT, POINTER], "hash_key": [POINTER, INT]}
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        ("octets", POINTER),
        *((name, INT) for name in ("room", "size", "count", "base_timestamp", "max_timestamp")),
    )
    octets: int | None
    room: int
    size: int
    count: int
    base_timestamp: int
    max_timestamp: int


class _Topic(ctypes.Structure):
    _fields_ = (("batches", POINTER), ("partitions", INT), ("unkeyed", INT))


class _Lack(ctypes.Structure):
    _fields_ = tuple((name, INT) for name in ("topic", "partition", "needed"))


@dataclass(frozen=True, slots=True)
class NoRoom:
    """A topic by its number, the partition whose batch has no room, and how much a record needs there."""

    topic: int
    partition: int
    needed: int


class TopicBatches:
    """A growing batch for each partition of a topic, without its header.

    `unkeyed` is the partition of records that have no key.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions, self.unkeyed = partitions, 0
        self._batches = (_Batch * partitions)()
        self._octets: list[bytearray | None] = [None] * partitions

    def filled(self) -> list[int]:
        """The partitions whose batches have records."""
        return [number for number, each in enumerate(self._batches) if each.count]

    def batch(self, partition: int) -> _Batch:
        """Size, count and timestamps of a batch."""
        return self._batches[partition]

    def room(self, partition: int) -> int:
        return self._batches[partition].room

    def records(self, partition: int) -> memoryview:
        """What is in a batch, until it is emptied or gets more."""
        octets = self._octets[partition]
        return memoryview(octets or b"")[: self._batches[partition].size]

    def resize(self, partition: int, room: int) -> None:
        """Gives a batch this much room; it keeps its records."""
        kept, octets = self.records(partition), bytearray(room)
        octets[: len(kept)] = kept
        kept.release()
        batch = self._batches[partition]
        batch.octets, batch.room = ctypes.addressof(_from_buffer(octets)), room
        self._octets[partition] = octets

    def append(self, partition: int, record: bytes | bytearray, timestamp_ms: int) -> None:
        """Appends one record that is encoded already; there must be room for it."""
        batch, octets = self._batches[partition], self._octets[partition]
        assert octets is not None and batch.size + len(record) <= batch.room
        octets[batch.size : batch.size + len(record)] = record
        if not batch.count:
            batch.base_timestamp = batch.max_timestamp = timestamp_ms
        batch.max_timestamp = max(batch.max_timestamp, timestamp_ms)
        batch.size, batch.count = batch.size + len(record), batch.count + 1

    def release(self) -> None:
        """Gives up all memory; nothing may be in it."""
        for partition, batch in enumerate(self._batches):
            batch.octets, batch.room, self._octets[partition] = None, 0, None

    def empty(self, partition: int) -> None:
        batch = self._batches[partition]
        batch.size = batch.count = 0


def append_records(
    octets: bytearray | memoryview,
    numbers: "array[int]",
    begin: int,
    end: int,
    topics: Mapping[int, TopicBatches],
    timestamp_ms: int,
) -> tuple[int, NoRoom | None]:
    """Appends these records to the batches of their topics, by the hash of their keys.

    Returns how many are done, and the batch that had no room for the next, if not all.
    """
    passed = (_Topic * (max(topics) + 1))()
    for number, each in topics.items():
        passed[number] = _Topic(ctypes.addressof(each._batches), each.partitions, each.unkeyed)
    lack = _Lack()
    done = _library().append_records(
        ctypes.byref(_from_buffer(octets)),
        numbers.buffer_info()[0],
        begin,
        end,
        passed,
        timestamp_ms,
        ctypes.byref(lack),
    )
    return int(done), None if done == end else NoRoom(lack.topic, lack.partition, lack.needed)


def hash_key(key: bytes) -> int:
    """Murmur2 as Kafka's own clients take it: modulo the number of partitions, the partition of a key."""
    return int(_library().hash_key(key, len(key)))
