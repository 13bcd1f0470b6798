"""Records on their way into batches: one open batch for each partition, filled by a kernel."""

import random
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from headrace.client.record_sizes import wire_bytes
from headrace.client.write.record_block import RecordBlock
from headrace.client.write.transactions import OutputRecord
from headrace.kernels import RECORD_NUMBERS, TopicBatches, append_records, hash_key
from headrace.records import BatchHeader, Record, encode_record, write_record

__all__ = ["OpenBatches", "PlainBatch"]

BATCH_BYTES = 512 << 10
_FIRST_BYTES, _GROWTH = 4 << 10, 4
_MOST_BYTES = 16 << 20  # of memory for open batches
_MOST_SINGLES = 500
_PLAIN, _DELETE = ord("-"), ord("d")


@dataclass(frozen=True, slots=True)
class PlainBatch:
    """Records of one partition, encoded; what else a batch needs, its producer knows."""

    topic: str
    partition: int
    records: bytes | bytearray
    count: int
    base_timestamp_ms: int
    max_timestamp_ms: int


class OpenBatches:
    """Takes records in their order, and hands over batches that are full; `flush` hands over the others.

    `partitions` says how many a topic has; `full` takes a batch. Memory is bounded: all batches are
    handed over when they hold too much together.
    """

    def __init__(self, partitions: Callable[[str], int], full: Callable[[PlainBatch], None]) -> None:
        self._partitions, self._full = partitions, full
        self._topics: dict[str, TopicBatches] = {}
        self._singles = _Singles()
        self._held = 0

    def add(self, record: OutputRecord | RecordBlock) -> None:
        if isinstance(record, RecordBlock):
            self._add_singles()
            self._add_block(record)
        elif len(record.value or b"") >= BATCH_BYTES:
            self._add_singles()
            self._add_large(record)
        elif record.headers or record.partition is not None:
            self._add_singles()
            self._add_placed(record)
        else:
            self._singles.add(record)
            if self._singles.is_full:
                self._add_singles()

    def flush(self) -> None:
        """Hands over whatever is there."""
        self._add_singles()
        self._hand_over_all()
        if self._held > _MOST_BYTES:  # for a single record
            self._release()

    def clear(self) -> None:
        """Forgets everything, the topics' partitions too."""
        self._topics, self._held = {}, 0
        self._singles = _Singles()

    def _add_singles(self) -> None:
        if self._singles.count:
            block, self._singles = self._singles.block(), _Singles()
            self._add_block(block)

    def _add_block(self, block: RecordBlock) -> None:
        topics = {number: self._of(topic) for number, topic in block.topics.items()}
        for each in topics.values():
            each.unkeyed = random.randrange(each.partitions)  # noqa: S311 - it only has to be even
        done = 0
        while done < block.count:
            done, lack = append_records(
                block.octets, block.numbers, done, block.count, topics, block.timestamp_ms
            )
            if lack is not None and lack.needed >= BATCH_BYTES:
                self._add_large_of(block, done)
                done += 1
            elif lack is not None:
                self._make_room(block.topics[lack.topic], lack.partition, lack.needed)

    def _add_large_of(self, block: RecordBlock, number: int) -> None:
        """A large record of a block, whose value is not copied before it is encoded."""
        octets, first = memoryview(block.octets), RECORD_NUMBERS * number
        topic, letter, key_start, key_length, start, length, later = block.numbers[
            first : first + RECORD_NUMBERS
        ]
        key = bytes(octets[key_start : key_start + key_length]) if key_length >= 0 else None
        value = cast("bytes", octets[start : start + length])
        record = OutputRecord(block.topics[topic], key, value, timestamp_ms=block.timestamp_ms + later)
        self._add_large(record)
        if letter == _DELETE and key is not None:
            self._add_large(record._replace(value=None))

    def _add_large(self, record: OutputRecord) -> None:
        """A record that is a batch by itself: copied once, for there may be little room for it."""
        batches = self._of(record.topic)
        partition, at_ms = self._partition(record, batches), _timestamp(record)
        self._hand_over(record.topic, batches, partition)
        plain = Record(0, at_ms, record.key, record.value, record.headers)
        encoded = [encode_record(plain, _AT_ZERO._replace(base_timestamp=at_ms))]
        # Nobody else holds the batch while it is compressed and sent.
        self._full(PlainBatch(record.topic, partition, encoded.pop(), 1, at_ms, at_ms))

    def _partition(self, record: OutputRecord, batches: TopicBatches) -> int:
        if record.partition is not None:
            return record.partition
        by_key = hash_key(record.key) if record.key is not None else random.randrange(1 << 30)  # noqa: S311
        return by_key % batches.partitions

    def _add_placed(self, record: OutputRecord) -> None:
        """A record that names its partition, or has headers, which the kernel does not write."""
        batches = self._of(record.topic)
        partition = self._partition(record, batches)
        at_ms, batch = _timestamp(record), batches.batch(partition)
        needed = wire_bytes(record.key, record.value, record.headers)
        if batch.size + needed > batch.room:
            self._make_room(record.topic, partition, needed)
        base_ms = batch.base_timestamp if batch.count else at_ms
        plain = Record(batch.count, at_ms, record.key, record.value, record.headers)
        out = bytearray()
        write_record(out, plain, _AT_ZERO._replace(base_timestamp=base_ms))
        batches.append(partition, out, at_ms)

    def _of(self, topic: str) -> TopicBatches:
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicBatches(self._partitions(topic))
        return found

    def _make_room(self, topic: str, partition: int, needed: int) -> None:
        batches = self._topics[topic]
        room = batches.room(partition)
        size = batches.batch(partition).size
        wanted = min(max(_GROWTH * room, _FIRST_BYTES), BATCH_BYTES)
        if size and (room >= BATCH_BYTES or size + needed > wanted):
            self._hand_over(topic, batches, partition)
            size = 0
        if size + needed <= room:
            return
        wanted = max(wanted, needed)
        if self._held and self._held + wanted - room > _MOST_BYTES:
            self._hand_over_all()
            self._release()
            room = 0
        self._held += wanted - room
        batches.resize(partition, wanted)

    def _release(self) -> None:
        for each in self._topics.values():
            each.release()
        self._held = 0

    def _hand_over_all(self) -> None:
        for topic, batches in self._topics.items():
            for partition in batches.filled():
                self._hand_over(topic, batches, partition)

    def _hand_over(self, topic: str, batches: TopicBatches, partition: int) -> None:
        batch = batches.batch(partition)
        if batch.count:
            records = bytes(batches.records(partition))
            made = PlainBatch(
                topic, partition, records, batch.count, batch.base_timestamp, batch.max_timestamp
            )
            batches.empty(partition)
            self._full(made)


class _Singles:
    """Records that come one by one, put together into a block."""

    def __init__(self) -> None:
        self.count = 0
        self._octets, self._numbers = bytearray(), array("q")
        self._topics: dict[str, int] = {}
        self._base_ms: int | None = None

    @property
    def is_full(self) -> bool:
        return self.count >= _MOST_SINGLES or len(self._octets) >= BATCH_BYTES

    def add(self, record: OutputRecord) -> None:
        at_ms = _timestamp(record)
        self._base_ms = at_ms if self._base_ms is None else self._base_ms
        octets, key, value = self._octets, record.key, record.value
        start = len(octets)
        octets += key or b""
        between = len(octets)
        octets += value or b""
        number = self._topics.setdefault(record.topic, len(self._topics))
        key_length, length = -1 if key is None else len(key), -1 if value is None else len(value)
        self._numbers.extend((number, _PLAIN, start, key_length, between, length, at_ms - self._base_ms))
        self.count += 1

    def block(self) -> RecordBlock:
        topics = {number: topic for topic, number in self._topics.items()}
        octets = self._octets or bytearray(1)
        return RecordBlock(octets, self._numbers, self.count, topics, self._base_ms or 0)


def _timestamp(record: OutputRecord) -> int:
    return int(time.time() * 1000) if record.timestamp_ms is None else record.timestamp_ms


_AT_ZERO = BatchHeader(0, 0, -1, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1)
assert len(("topic", "letter", "key", "length", "value", "length", "later")) == RECORD_NUMBERS
