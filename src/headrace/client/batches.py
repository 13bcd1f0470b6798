"""Whole record batches in what a fetch returned; no I/O.

A broker sends the bytes that are on its log from the batch that holds the wanted
offset, and cuts them at a size, not at a batch: the last one may be incomplete and
is fetched again. Markers of transactions take offsets and are no records.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from headrace.errors import CorruptionError

__all__ = ["AbortedTransaction", "Batch", "Runs", "visible_runs", "walk"]

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_END = 12  # a batch's length counts from here
_CRC_START = 21
_TRANSACTIONAL, _CONTROL = 0x10, 0x20
_ABORT_MARKER = 0


class Batch(NamedTuple):
    """Where one batch lies in a buffer, which offsets it spans, and whose it is."""

    start: int
    end: int
    base_offset: int
    next_offset: int
    attributes: int
    producer_id: int

    @property
    def control(self) -> bool:
        return bool(self.attributes & _CONTROL)

    @property
    def transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: the producer's records from `first_offset` up to its marker."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Runs:
    """Stretches of consecutive batches that hold visible records, and the offset after all of them."""

    runs: tuple[memoryview, ...]
    next_offset: int


def walk(buffer: memoryview) -> Iterator[Batch]:
    """Every whole batch in order; raises CorruptionError on one that is not what it claims to be."""
    position, end = 0, len(buffer)
    while end - position >= _HEADER.size:
        base, length, _, magic, crc, attributes, last_delta, _, _, producer, _, _, _ = _HEADER.unpack_from(
            buffer, position
        )
        batch_end = position + _LENGTH_END + length
        if magic != 2 or length < _HEADER.size - _LENGTH_END:
            raise CorruptionError(f"no record batch at offset {base}: magic {magic}, length {length}")
        if batch_end > end:
            return
        if crc32c(buffer[position + _CRC_START : batch_end]) != crc:
            raise CorruptionError(
                f"the record batch at offset {base} fails its checksum: damaged on its way or on the log"
            )
        yield Batch(position, batch_end, base, base + last_delta + 1, attributes, producer)
        position = batch_end


def visible_runs(buffer: memoryview, aborted: Iterable[AbortedTransaction], next_offset: int) -> Runs:
    """What a reader of committed records may see; `next_offset` stands if there is no whole batch.

    Leaves out markers and the records of aborted transactions, joining what is
    consecutive, so that the usual answer is one run and nothing is copied.
    """
    pending = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    open_aborts: set[int] = set()
    spans: list[list[int]] = []
    for batch in walk(buffer):
        next_offset = batch.next_offset
        while pending and pending[-1].first_offset < batch.next_offset:
            open_aborts.add(pending.pop().producer_id)
        if batch.control:
            if _is_abort(buffer, batch):
                open_aborts.discard(batch.producer_id)
        elif not (batch.transactional and batch.producer_id in open_aborts):
            if spans and spans[-1][1] == batch.start:
                spans[-1][1] = batch.end
            else:
                spans.append([batch.start, batch.end])
    return Runs(tuple(buffer[start:end] for start, end in spans), next_offset)


def _is_abort(buffer: memoryview, batch: Batch) -> bool:
    """Whether a marker says abort: its key is a version and a type, two bytes each.

    Before the key come the record's length, attributes, two deltas and the key's
    own length: one byte each in a batch of a single small record.
    """
    (kind,) = struct.unpack_from(">h", buffer, batch.start + _HEADER.size + 5 + 2)
    return bool(kind == _ABORT_MARKER)
