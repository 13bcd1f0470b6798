"""The record batches in a fetch response; no I/O.

A broker sends the bytes of its log from the batch that holds the requested offset on, and
cuts them at a size, not at a batch: the last one may be incomplete and is fetched again.
Transaction markers take offsets but are not records.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headrace.errors import CorruptionError
from headrace.records import (
    BATCH_OVERHEAD_BYTES,
    HEADER_BYTES,
    BatchHeader,
    Codec,
    check_batch,
    decompress,
    read_header,
)

__all__ = [
    "AbortedRecords",
    "BatchRuns",
    "batch_sizes",
    "batch_spans",
    "bounded_runs",
    "visible_runs",
    "walk",
]

_ABORT_MARKER = 0
_UNKNOWN_RATIO = 10.0


class AbortedRecords(NamedTuple):
    """An aborted transaction: the producer's records from `first_offset` up to its marker."""

    producer_id: int
    first_offset: int


@dataclass(frozen=True, slots=True)
class BatchRuns:
    """Runs of consecutive batches with visible records, and the offset after all of them."""

    runs: tuple[memoryview, ...]
    next_offset: int
    is_compressed: bool = False  # some of them


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


def batch_sizes(buffer: memoryview) -> list[tuple[int, int, int]]:
    """Base offset, next offset and decoded size of every batch whose header is complete.

    Nothing is checked: that is for readers of the records. The size of a compressed batch is an
    estimate (`_ratios`): decompressing all of them would cost as much as reading them.
    """
    headers = list(_headers(buffer))
    ratios = _ratios(buffer, headers)
    return [
        (header.base_offset, header.next_offset, round(header.size_bytes * ratios.get(header.codec, 1.0)))
        for _, header in headers
    ]


def bounded_runs(run: memoryview, max_bytes: int) -> Iterator[memoryview]:
    """A checked run in parts that take about `max_bytes` decoded; each has one batch at least."""
    headers = list(_headers(run))
    ratios = _ratios(run, headers)
    start, decoded = 0, 0.0
    for position, header in headers:
        size = header.size_bytes * ratios.get(header.codec, 1.0)
        if position > start and decoded + size > max_bytes:
            yield run[start:position]
            start, decoded = position, 0.0
        decoded += size
    yield run[start:]


def _headers(buffer: memoryview) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every batch whose header is complete, as the header says."""
    position = 0
    while len(buffer) - position >= HEADER_BYTES:
        header = read_header(buffer, position)
        if header.batch_length < HEADER_BYTES - BATCH_OVERHEAD_BYTES or header.last_offset_delta < 0:
            return
        yield position, header
        position += header.size_bytes


def _ratios(buffer: memoryview, headers: Sequence[tuple[int, BatchHeader]]) -> dict[int, float]:
    """By codec, how many times larger batches are when decoded: the most that was found in a few.

    Decompresses, of each codec, the first whole batch and the one with the most records for its size, which
    usually expands most. Where there is no whole batch to try, a large ratio is assumed.
    """
    found: dict[int, float] = {}
    for codec in {header.codec for _, header in headers} - {Codec.NONE}:
        whole = [
            (position, header)
            for position, header in headers
            if header.codec == codec and position + header.size_bytes <= len(buffer)
        ]
        tried = [whole[0], max(whole, key=_density)] if whole else []
        found[codec] = max((_ratio(buffer, *each) for each in dict.fromkeys(tried)), default=_UNKNOWN_RATIO)
    return found


def _density(batch: tuple[int, BatchHeader]) -> float:
    return batch[1].record_count / batch[1].size_bytes


def _ratio(buffer: memoryview, position: int, header: BatchHeader) -> float:
    try:
        plain = decompress(header.codec, buffer[position + HEADER_BYTES : position + header.size_bytes])
    except CorruptionError:  # who reads the records says what is wrong with them
        return _UNKNOWN_RATIO
    return max(1.0, (HEADER_BYTES + len(plain)) / header.size_bytes)


def batch_spans(run: memoryview) -> Iterator[tuple[int, int, int]]:
    """Base offset, next offset and number of records of every batch of a checked run."""
    position = 0
    while position < len(run):
        header = read_header(run, position)
        yield header.base_offset, header.next_offset, header.record_count
        position += header.size_bytes


def visible_runs(
    buffer: memoryview, aborted: Iterable[AbortedRecords], next_offset: int, end: int | None = None
) -> BatchRuns:
    """What a reader of committed records may see; `next_offset` is kept if there is no whole batch.

    Leaves out markers, the records of aborted transactions, and batches that begin at `end` or later: a
    broker sends what was written since the end was asked for, too. Joins consecutive batches, so that the
    usual response is one run and nothing is copied.
    """
    pending = sorted(aborted, key=lambda each: each.first_offset, reverse=True)
    open_aborts: set[int] = set()
    spans: list[list[int]] = []
    is_compressed = False
    for position, header in walk(buffer):
        if end is not None and header.base_offset >= end:
            next_offset = max(next_offset, end)
            break
        next_offset = header.next_offset
        is_compressed |= header.codec != Codec.NONE
        while pending and pending[-1].first_offset < next_offset:
            open_aborts.add(pending.pop().producer_id)
        if header.is_control:
            if _is_abort(buffer, position):
                open_aborts.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborts):
            _extend(spans, position, position + header.size_bytes)
    return BatchRuns(tuple(buffer[start:end] for start, end in spans), next_offset, is_compressed)


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
