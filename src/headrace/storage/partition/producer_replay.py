"""Bringing a snapshot of producers up to the end of the log, from batch headers alone."""

import logging
import sys
from bisect import bisect_right
from typing import NamedTuple

from headrace.errors import CorruptionError
from headrace.records import BATCH_OVERHEAD_BYTES, HEADER_BYTES, decode_marker, read_header
from headrace.storage.producers import PRODUCER_HEADER, AppendedMarker, ProducerHeaders, SyncedProducers
from headrace.storage.reading import PartitionReader
from headrace.storage.segments import Segment

__all__ = ["ScannedHeaders", "replay_producers"]

logger = logging.getLogger("headrace.storage")

CHUNK_BYTES = 4 * 1024 * 1024
_TAKEN_IN_AT = 10_000
_SIGNATURE = b"\x00\x00\x00\x00\x02"  # leader epoch 0 and magic 2
_MIN_LENGTH = HEADER_BYTES - BATCH_OVERHEAD_BYTES


class ScannedHeaders(NamedTuple):
    """What recovery's scan noted of producers: of everything from this place to the segment's end."""

    segment: Segment
    position: int
    headers: ProducerHeaders


def replay_producers(
    reader: PartitionReader,
    producers: SyncedProducers,
    next_offset: int,
    scanned: ScannedHeaders | None = None,
) -> int:
    """Takes in every batch from the snapshot's end to `next_offset`; the bytes walked over.

    Only headers and markers are looked at, and not again those that were `scanned`.
    Damage is passed over: what a producer sent there is not known, what it sent
    later is.
    """
    first = producers.table.next_offset
    segments = reader.segments
    rank = max(0, bisect_right(segments, first, key=lambda segment: segment.base_offset) - 1)
    walked = 0
    if first < next_offset:
        for segment in segments[rank:]:
            known = (
                scanned
                if scanned is not None and scanned.segment is segment and scanned.headers.is_whole
                else None
            )
            walked += _Replay(reader, segment, producers, first, known).run()
    producers.publish(next_offset)
    return walked


class _Replay:
    """The walk over one segment."""

    def __init__(
        self,
        reader: PartitionReader,
        segment: Segment,
        producers: SyncedProducers,
        first: int,
        scanned: ScannedHeaders | None,
    ) -> None:
        self._reader = reader
        self._segment = segment
        self._producers = producers
        self._first = first  # what is below is known already
        self._noted = scanned
        self._end = segment.size_bytes if scanned is None else scanned.position
        self._fd = -1

    def run(self) -> int:
        segment, reader = self._segment, self._reader
        if not segment.size_bytes:
            return 0
        self._fd = reader.files.pin(segment.file)
        try:
            walked = self._walk()
            if self._noted is not None:
                self._take_in(self._noted.headers)
            return walked
        finally:
            reader.files.unpin(segment.file)

    def _walk(self) -> int:
        reader, segment = self._reader, self._segment
        expected, begin = segment.base_offset, 0
        if self._first > expected:
            expected, begin = reader.index(segment, self._fd).floor(self._first)
        position, examined = begin, False
        headers = ProducerHeaders(sys.maxsize)  # they are taken in before they become many
        while position < self._end:
            position, expected = self._headers(position, expected, headers)
            if position >= self._end:
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
        self._take_in(headers)
        return max(0, position - begin)

    def _headers(self, position: int, expected: int, headers: ProducerHeaders) -> tuple[int, int]:
        """Where the walk ended, at the end or before something that is not a header in its place.

        This loop is the speed of opening after a crash, together with the scan's.
        """
        disk, unpack, note = self._reader.files.disk, PRODUCER_HEADER.unpack_from, headers.note
        end, gaps, first = self._end, self._segment.compacted, self._first
        while position < end:
            chunk = disk.pread(self._fd, min(CHUNK_BYTES, end - position), position)
            start, last = 0, len(chunk) - HEADER_BYTES
            if last < 0:
                return position, expected
            while start <= last:
                header = unpack(chunk, start)
                base, length, signature, _, _, delta, _, producer_id, _, _ = header
                if base != expected and (not gaps or base < expected):
                    return position + start, expected
                if signature != _SIGNATURE or length < _MIN_LENGTH or delta < 0:
                    return position + start, expected
                if producer_id >= 0 and base >= first:
                    note(header, position + start)
                expected = base + delta + 1
                start += length + BATCH_OVERHEAD_BYTES
            position += start
            if headers.in_transactions > _TAKEN_IN_AT:
                self._take_in(headers)
        return position, expected

    def _take_in(self, headers: ProducerHeaders) -> None:
        for entry in headers.entries(self._first, self._marker):
            self._producers.apply(entry)
        headers.forget()

    def _marker(self, position: int, size: int) -> AppendedMarker | None:
        data = self._reader.files.disk.pread(self._fd, size, position)
        try:
            header = read_header(data)
            marker = decode_marker(header, data)
        except CorruptionError as error:
            logger.error("%s: at %d: %s", self._segment.path, position, error)
            return None
        return (
            AppendedMarker(marker, header.base_offset, header.max_timestamp) if marker is not None else None
        )
