"""Bringing a snapshot of producers up to the end of the log, from batch headers alone."""

import logging
import struct
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import chain

from headrace.errors import CorruptionError
from headrace.records import BATCH_OVERHEAD_BYTES, HEADER_BYTES, decode_marker, read_header
from headrace.records.header import CONTROL_BIT, TRANSACTIONAL_BIT
from headrace.storage.producer_state import SyncedProducers
from headrace.storage.producers import REMEMBERED_BATCHES, Ended, ProducerBatch, last_sequence
from headrace.storage.reader import LogReader
from headrace.storage.segment import Segment

__all__ = ["replay"]

logger = logging.getLogger("headrace.storage")

CHUNK_BYTES = 4 * 1024 * 1024
_FIELDS = struct.Struct(">qi5s4xhi8xqqhi")
_SIGNATURE = b"\x00\x00\x00\x00\x02"  # leader epoch 0 and magic 2
_MIN_LENGTH = HEADER_BYTES - BATCH_OVERHEAD_BYTES
_IN_TRANSACTION = CONTROL_BIT | TRANSACTIONAL_BIT

Fields = tuple[int, int, bytes, int, int, int, int, int, int]  # as _FIELDS has them


def replay(reader: LogReader, producers: SyncedProducers, next_offset: int) -> int:
    """Takes in every batch from the snapshot's end to `next_offset`; the bytes walked over.

    Only headers and markers are looked at. Damage is passed over: what a producer
    sent there is not known, what it sent later is.
    """
    first = producers.table.next_offset
    segments = reader.segments
    rank = max(0, bisect_right(segments, first, key=lambda segment: segment.base_offset) - 1)
    walked = 0
    if first < next_offset:
        for segment in segments[rank:]:
            walked += _Replay(reader, segment, producers, first).run()
    producers.publish(next_offset)
    return walked


class _Replay:
    """The walk over one segment."""

    def __init__(self, reader: LogReader, segment: Segment, producers: SyncedProducers, first: int) -> None:
        self._reader = reader
        self._segment = segment
        self._producers = producers
        self._first = first  # what is below is known already
        self._latest: dict[int, deque[Fields]] = {}  # outside of transactions only these count
        self._fd = -1

    def run(self) -> int:
        segment, reader = self._segment, self._reader
        if not segment.size_bytes:
            return 0
        self._fd = reader.files.pin(segment.file)
        try:
            return self._walk()
        finally:
            reader.files.unpin(segment.file)

    def _walk(self) -> int:
        reader, segment = self._reader, self._segment
        expected, begin = segment.base_offset, 0
        if self._first > expected:
            expected, begin = reader.index(segment, self._fd).floor(self._first)
        position, examined = begin, False
        while position < segment.size_bytes:
            position, expected = self._headers(position, expected)
            if position >= segment.size_bytes:
                break
            damage = [d for d in reader.damage if d.path == segment.path and d.start <= position < d.end]
            if damage:
                position, expected = damage[0].end, damage[0].next_offset
            elif not examined:
                reader.examine(segment, self._fd)
                examined = True
            else:
                logger.error("%s: no batch at %d; producers behind it are not known", segment.path, position)
                break
        self._settle(chain.from_iterable(self._latest.values()))
        return position - begin

    def _headers(self, position: int, expected: int) -> tuple[int, int]:
        """Where the walk ended, at the end or before something that is not a header in its place.

        This loop is the speed of opening after a crash, together with the scan's.
        """
        disk, unpack = self._reader.files.disk, _FIELDS.unpack_from
        end, gaps = self._segment.size_bytes, self._segment.compacted
        first, latest = self._first, self._latest
        while position < end:
            chunk = disk.pread(self._fd, min(CHUNK_BYTES, end - position), position)
            start, last = 0, len(chunk) - HEADER_BYTES
            if last < 0:
                return position, expected
            while start <= last:
                fields = unpack(chunk, start)
                base, length, signature, attributes, delta, _, producer_id, _, _ = fields
                if base != expected and (not gaps or base < expected):
                    return position + start, expected
                if signature != _SIGNATURE or length < _MIN_LENGTH or delta < 0:
                    return position + start, expected
                if producer_id >= 0 and base >= first:
                    if attributes & _IN_TRANSACTION:
                        self._in_transaction(fields, position + start)
                    elif producer_id in latest:
                        latest[producer_id].append(fields)
                    else:
                        latest[producer_id] = deque([fields], REMEMBERED_BATCHES)
                expected = base + delta + 1
                start += length + BATCH_OVERHEAD_BYTES
            position += start
        return position, expected

    def _in_transaction(self, fields: Fields, position: int) -> None:
        """A batch or a marker whose order among its producer's counts."""
        self._settle(self._latest.pop(fields[6], ()))
        if fields[3] & CONTROL_BIT:
            self._control(position, fields[1] + BATCH_OVERHEAD_BYTES)
        else:
            self._producers.apply(_batch(fields))

    def _control(self, position: int, size: int) -> None:
        data = self._reader.files.disk.pread(self._fd, size, position)
        try:
            header = read_header(data)
            marker = decode_marker(header, data)
        except CorruptionError as error:
            logger.error("%s: at %d: %s", self._segment.path, position, error)
            return
        if marker is not None:
            self._producers.apply(Ended(marker, header.base_offset, header.max_timestamp))

    def _settle(self, batches: Iterable[Fields]) -> None:
        for fields in batches:
            self._producers.apply(_batch(fields))


def _batch(fields: Fields) -> ProducerBatch:
    base, _, _, attributes, delta, timestamp_ms, producer_id, epoch, sequence = fields
    return ProducerBatch(
        producer_id,
        epoch,
        sequence,
        last_sequence(sequence, delta),
        base,
        base + delta,
        timestamp_ms,
        attributes & TRANSACTIONAL_BIT != 0,
    )
