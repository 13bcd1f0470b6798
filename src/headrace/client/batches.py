"""Whole record batches in what a fetch returned; no I/O.

A broker sends the bytes that are on its log from the batch that holds the wanted
offset, and cuts them at a size, not at a batch: the last one may be incomplete and
is fetched again. Markers of transactions take offsets and are no records.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from headrace.records import BATCH_OVERHEAD_BYTES, HEADER_BYTES, BatchHeader, check_batch, read_header

__all__ = ["AbortedTransaction", "Runs", "batch_sizes", "visible_runs", "walk"]

_ABORT_MARKER = 0


class AbortedTransaction(NamedTuple):
    """A transaction that was aborted: the producer's records from `first_offset` up to its marker."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class Runs:
    """Stretches of consecutive batches that hold visible records, and the offset after all of them."""

    runs: tuple[memoryview, ...]
    next_offset: int


def walk(buffer: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch; raises CorruptionError on one that fails its checks."""
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if header.batch_length >= HEADER_BYTES - BATCH_OVERHEAD_BYTES and (
            header.size_bytes > len(buffer) - position
        ):
            return
        check_batch(buffer, position, produced=False)  # compaction leaves gaps
        yield position, header
        position += header.size_bytes


def batch_sizes(buffer: memoryview) -> Iterator[tuple[int, int, int]]:
    """Base offset, next offset and bytes of every batch whose header is there, as the header says.

    Nothing is checked: whoever reads the records does that.
    """
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if header.batch_length < HEADER_BYTES - BATCH_OVERHEAD_BYTES or header.last_offset_delta < 0:
            return
        yield header.base_offset, header.next_offset, header.size_bytes
        position += header.size_bytes


def visible_runs(buffer: memoryview, aborted: Iterable[AbortedTransaction], next_offset: int) -> Runs:
    """What a reader of committed records may see; `next_offset` stands if there is no whole batch.

    Leaves out markers and the records of aborted transactions, joining what is
    consecutive, so that the usual answer is one run and nothing is copied.
    """
    pending = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    open_aborts: set[int] = set()
    spans: list[list[int]] = []
    for position, header in walk(buffer):
        next_offset = header.next_offset
        while pending and pending[-1].first_offset < next_offset:
            open_aborts.add(pending.pop().producer_id)
        if header.is_control:
            if _is_abort(buffer, position):
                open_aborts.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborts):
            _extend(spans, position, position + header.size_bytes)
    return Runs(tuple(buffer[start:end] for start, end in spans), next_offset)


def _extend(spans: list[list[int]], start: int, end: int) -> None:
    if spans and spans[-1][1] == start:
        spans[-1][1] = end
    else:
        spans.append([start, end])


def _is_abort(buffer: memoryview, position: int) -> bool:
    """Whether a marker says abort: its key is a version and a type, two bytes each.

    Before the key come the record's length, attributes, two deltas and the key's
    own length: one byte each in a batch of a single small record.
    """
    (kind,) = struct.unpack_from(">h", buffer, position + HEADER_BYTES + 5 + 2)
    return bool(kind == _ABORT_MARKER)
