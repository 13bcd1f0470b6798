"""Records whose keys and values are encoded already, many in one piece of memory."""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from headrace.client.write.transactions import OutputRecord
from headrace.kernels import RECORD_NUMBERS

__all__ = ["RecordBlock", "one_record_at_a_time"]

_DELETE = ord("d")


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Keys and values in `octets`, to be read before the next block is asked for.

    Seven `numbers` for each record: which of the topics it is for; a letter, of which `d` says that
    a tombstone of its key follows; start and length of key and value (-1: none); and by how many
    milliseconds its timestamp is later than `timestamp_ms`.
    """

    octets: bytearray | memoryview
    numbers: "array[int]"
    count: int
    topics: Mapping[int, str]
    timestamp_ms: int

    def records(self) -> Iterator[OutputRecord]:
        """One by one."""
        octets, numbers = self.octets, self.numbers
        for at in range(0, RECORD_NUMBERS * self.count, RECORD_NUMBERS):
            topic, letter, key_start, key_length, start, length, later = numbers[at : at + RECORD_NUMBERS]
            key = bytes(octets[key_start : key_start + key_length]) if key_length >= 0 else None
            value = bytes(octets[start : start + length]) if length >= 0 else None
            name, at_ms = self.topics[topic], self.timestamp_ms + later
            yield OutputRecord(name, key, value, timestamp_ms=at_ms)
            if letter == _DELETE and key is not None:
                yield OutputRecord(name, key, None, timestamp_ms=at_ms)


def one_record_at_a_time(records: "Iterable[OutputRecord | RecordBlock]") -> Iterator[OutputRecord]:
    """The records without blocks."""
    for each in records:
        if isinstance(each, RecordBlock):
            yield from each.records()
        else:
            yield each
