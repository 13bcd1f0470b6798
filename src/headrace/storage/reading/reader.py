"""The reading half of a partition: from an offset to bytes, around damage.

Theory of operation. Readers look at two tuples, `segments` and `damage`, which
writers replace whole; so a reader works on a consistent picture without a lock.
To find an offset, the in-memory tail of recent batches is asked first, then the
sparse index, then headers are walked. Every header walked over must be in its
place; the CRC is checked as the bytes are read. What fails is examined once,
recorded as `Damage`, and from then on walked around.
"""

import contextlib
import logging
import struct
import threading
from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.records import BATCH_OVERHEAD_BYTES, HEADER_BYTES
from headrace.storage.disk import Damage, UnreadableBytes, UnreadablePlaces, save_damage
from headrace.storage.reading.extent import Extent
from headrace.storage.reading.offset_checks import wholly_wrong, with_checks, wrong_stretches
from headrace.storage.segments import (
    CheckedIndex,
    Files,
    Segment,
    SparseIndex,
    find_next_batch,
    load_sealed,
    recorded_sealed_bytes,
    scan,
)

__all__ = ["BatchPlace", "PartitionReader", "Tail"]

logger = logging.getLogger("headrace.storage")

_OFFSET_OUT_OF_RANGE = 1

_WALK_BYTES = 32 * 1024
_CHECKED_BYTES = 1024 * 1024
_FIELDS = struct.Struct(">qiibIhiqq")
_MIN_LENGTH = HEADER_BYTES - BATCH_OVERHEAD_BYTES
_MAX_OFFSET = 2**63 - 1


class BatchPlace(NamedTuple):
    """A batch whose header was seen in its place."""

    position: int
    size_bytes: int
    base_offset: int
    next_offset: int
    max_timestamp: int

    @property
    def start(self) -> int:
        return self.position

    @property
    def end(self) -> int:
        return self.position + self.size_bytes


class Tail:
    """Base offsets and positions of the newest batches of the active segment.

    The committing thread adds, the event loop looks up: positions are added
    before offsets, so that a found offset always has its position.
    """

    __slots__ = ("offsets", "positions", "segment")
    LIMIT = 4096

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.offsets: list[int] = []
        self.positions: list[int] = []

    def trimmed(self) -> "Tail":
        """Itself, or a new one with the newer half once it is long."""
        if len(self.offsets) <= 2 * self.LIMIT:
            return self
        shorter = Tail(self.segment)
        shorter.positions = self.positions[-self.LIMIT :]
        shorter.offsets = self.offsets[-self.LIMIT :]
        return shorter


class _Misplaced(Exception):  # noqa: N818 - never leaves this module
    """A header that is not in its place, seen while walking from a known one."""


class PartitionReader:
    """Finds and verifies batches. Any thread may read; `lock` guards the two tuples' writers."""

    def __init__(self, directory: Path, files: Files, interval_bytes: int) -> None:
        self.directory = directory
        self.files = files
        self.interval_bytes = interval_bytes
        self.lock = threading.Lock()
        self.segments: tuple[Segment, ...] = ()
        self.damage: tuple[Damage, ...] = ()
        self.high_watermark = _MAX_OFFSET  # the offset after the last synced record, once that is known
        self.tail: Tail | None = None
        self.unreadable = UnreadablePlaces()

    # -- finding

    def extent(
        self, offset: int, max_bytes: int, *, wait: bool = True, before: int | None = None
    ) -> Extent | None:
        """The bytes from the batch holding `offset` on; None if no batch at or after it is there yet.

        With `before`, an offset behind `offset` at which a batch begins or will begin, it
        ends there at the latest, whatever is synced meanwhile. Raises CorruptionError if
        the offset is in damage, BlockingIOError if `wait` is false and the answer is not
        in memory.
        """
        for damage in self.damage:
            if damage.first_offset <= offset < damage.next_offset:
                raise damage.error()
        while True:
            segments = self.segments
            rank = bisect_right(segments, offset, key=_base_offset) - 1
            if rank < 0:  # retention was faster
                raise out_of_range(offset, segments[0].base_offset, self.high_watermark)
            bad = self.unreadable.in_file(segments[rank].path)
            if bad is not None and not self.unreadable.is_due(bad, offset):
                raise bad.error()
            try:
                return self._extent_in(segments[rank:], offset, max_bytes, wait, before)
            except BlockingIOError:
                raise
            except FileNotFoundError as error:
                if segments is self.segments:
                    self.unreadable.note_way(segments[rank].path, offset, error)
                    raise DiskError(f"{error.filename} is gone; restore it from a copy") from error
                # Retention or compaction removed the file after we looked: look again.
            except OSError as error:
                raise self.unreadable.note_way(segments[rank].path, offset, error) from error

    def _extent_in(
        self, segments: tuple[Segment, ...], offset: int, max_bytes: int, wait: bool, before: int | None
    ) -> Extent | None:
        for segment in segments:
            if before is not None and segment.base_offset >= before:
                return None
            if segment.size_bytes == 0 and (segment.compacted or segment is segments[-1]):
                continue
            fd = self.files.pin(segment.file)
            try:
                place = self.find(segment, fd, offset, wait=wait)
                if place is not None:
                    if before is not None and place.base_offset >= before:
                        self.files.unpin(segment.file)
                        return None
                    end = segment.size_bytes  # first: what is found in the tail afterwards reaches as far
                    if before is not None:
                        end = min(end, self._position_of(segment, fd, before, wait, otherwise=end))
                    if segment.compacted:
                        index = self.index(segment, fd, wait=wait)
                        upto = place.position + max(max_bytes, place.size_bytes)
                        self.check_offsets(segment, fd, index, place.position, upto, wait=wait)
                    if self.unreadable:
                        most = self._readable_bytes(segment, fd, place, offset, wait)
                        max_bytes = max_bytes if most is None else min(max_bytes, most)
                    return self._pinned_extent(segment, fd, place, max_bytes, end)
            except BaseException:
                self.files.unpin(segment.file)
                raise
            self.files.unpin(segment.file)
        return None

    def _readable_bytes(
        self, segment: Segment, fd: int, place: BatchPlace, offset: int, wait: bool
    ) -> int | None:
        """How many bytes from a batch on may be offered; None if nothing is known against any.

        In a place that could not be read each batch is read before it is offered; DiskError if
        that fails.
        """
        bad = self.unreadable.in_file(segment.path)
        if bad is None:
            return None
        start, end = place.position, place.position + place.size_bytes
        if bad.end == bad.start and bad.offset == offset:
            self.unreadable.was_read(bad, 0, 0)  # it has been found by now
        if start >= bad.end:
            return None
        if end <= bad.start:
            return bad.start - start
        if not wait:
            raise BlockingIOError("the disk must be asked whether it reads this by now")
        try:
            self.files.disk.pread(fd, place.size_bytes, start)
        except OSError as error:
            raise self.unreadable.failed_again(bad, offset, error) from error
        self.unreadable.was_read(bad, start, end)
        return place.size_bytes

    def read_unreadable_again(self) -> None:
        """Tries the places that the disk would not read, as far as it is time to; waits for the disk."""
        for segment in self.segments:
            bad = self.unreadable.in_file(segment.path)
            if bad is not None and self.unreadable.is_due(bad, bad.tried):
                self._try_again(segment, bad)

    def _try_again(self, segment: Segment, bad: UnreadableBytes) -> None:
        try:
            fd = self.files.pin(segment.file)
            try:
                if bad.end > bad.start:
                    self.files.disk.pread(fd, bad.end - bad.start, bad.start)
                else:
                    self._read_header_of(segment, fd, bad.offset)
            finally:
                self.files.unpin(segment.file)
        except CorruptionError:  # it can be read, and is recorded as what it is
            self.unreadable.was_read(bad, 0, bad.end)
        except OSError as error:
            self.unreadable.failed_again(bad, bad.tried, error)
        else:
            self.unreadable.was_read(bad, 0, bad.end)

    def _read_header_of(self, segment: Segment, fd: int, offset: int) -> None:
        """Goes the way to an offset; also a place that memory knows is looked at."""
        place = self.find(segment, fd, offset)
        if place is not None:
            self.files.disk.pread(fd, HEADER_BYTES, place.position)

    def _position_of(self, segment: Segment, fd: int, offset: int, wait: bool, *, otherwise: int) -> int:
        """Where the first batch from `offset` on stands; `otherwise` if there is none in this segment."""
        tail = self.tail
        if tail is not None and tail.segment is segment and tail.offsets and tail.offsets[0] <= offset:
            rank = bisect_left(tail.offsets, offset)
            return tail.positions[rank] if rank < len(tail.offsets) else otherwise
        if offset >= self._offset_after(segment):
            return otherwise
        try:
            place = self.find(segment, fd, offset, wait=wait)
        except CorruptionError:  # no extent reaches into damage
            return otherwise
        return place.position if place is not None else otherwise

    def _pinned_extent(
        self, segment: Segment, fd: int, place: BatchPlace, max_bytes: int, end: int
    ) -> Extent:
        for damage in self.damage:
            if damage.path == segment.path and place.position < damage.start:
                end = min(end, damage.start)
        whole = end - place.position
        size = min(whole, max(max_bytes, place.size_bytes))
        if size < whole:
            size = self._without_cut_batch(segment, place.position, size)
        return Extent(
            self,
            segment,
            fd,
            position=place.position,
            size_bytes=size,
            base_offset=place.base_offset,
            cut=size < whole,
        )

    def _without_cut_batch(self, segment: Segment, position: int, size: int) -> int:
        """At most `size` bytes from `position` on, without a batch that is cut, as far as memory tells.

        The part of it would be of no use to its reader, who asks for all of it again.
        At least half of `size`, lest a sparse index leave nothing of few small batches.
        """
        tail, index, end = self.tail, segment.index, position + size
        if tail is not None and tail.segment is segment and tail.offsets and tail.positions[0] <= position:
            boundary = tail.positions[bisect_right(tail.positions, end) - 1]
        else:
            boundary = index.floor_of_position(end) if index is not None else end
        return boundary - position if boundary - position >= size // 2 else size

    def find(self, segment: Segment, fd: int, offset: int, *, wait: bool = True) -> BatchPlace | None:
        """The batch of this segment that holds `offset`, or the next one if compaction removed it."""
        tail = self.tail
        if tail is not None and tail.segment is segment:
            rank = bisect_right(tail.offsets, offset)
            if rank:
                return self._place_in_tail(tail, rank - 1)
        for _ in range(3):
            try:
                return self._find_by_index(segment, fd, offset, wait)
            except _Misplaced:
                if not wait:
                    raise BlockingIOError("the segment must be examined first") from None
                self.examine(segment, fd)
        raise RuntimeError(f"{segment.path}: an index rebuilt from the segment does not fit it")

    def _find_by_index(self, segment: Segment, fd: int, offset: int, wait: bool) -> BatchPlace | None:
        index = self.index(segment, fd, wait=wait)
        following, position = index.floor(offset)
        self.check_offsets(segment, fd, index, position, position, wait=wait)
        for place in self.walk(segment, fd, following, position, wait=wait):
            following = place.next_offset
            if offset < following:
                if isinstance(place, Damage):
                    raise place.error()
                return place
        self._check_complete(segment, following)
        return None

    def _check_complete(self, segment: Segment, next_offset: int) -> None:
        """A sealed segment reaches to the next one, unless compaction made it or its end was cut off."""
        if segment.compacted or segment is self.segments[-1]:
            return
        limit, size = self._offset_after(segment), segment.size_bytes
        if next_offset < limit:
            damage = Damage(segment.path, size, size, next_offset, limit)
            self.record([damage])
            raise damage.error()

    def _place_in_tail(self, tail: Tail, rank: int) -> BatchPlace:
        positions, offsets = tail.positions, tail.offsets
        position, base = positions[rank], offsets[rank]
        size = tail.segment.size_bytes
        end = positions[rank + 1] if rank + 1 < len(offsets) else size
        following = offsets[rank + 1] if rank + 1 < len(offsets) else _MAX_OFFSET
        return BatchPlace(position, end - position, base, following, -1)

    def walk(
        self, segment: Segment, fd: int, offset: int, position: int, *, wait: bool = True
    ) -> Iterator[BatchPlace | Damage]:
        """Batches from the one of base `offset` at `position` on, and the damage between them."""
        pread = self.files.disk.pread if wait else self.files.disk.pread_nowait
        gaps, end, expected = segment.compacted, segment.size_bytes, offset
        known = {d.start: d for d in self.damage if d.path == segment.path}
        for damage in known.values():
            if damage.start < position < damage.end:  # an index entry from before the damage
                position, expected = damage.start, damage.first_offset
        window: bytes | bytearray = b""
        window_at, most = position, _WALK_BYTES
        while position < end:
            if position in known:
                yield known[position]
                position, expected = known[position].end, known[position].next_offset
                continue
            start = position - window_at
            if start + HEADER_BYTES > len(window):
                try:
                    read = pread(fd, min(most, end - position), position)
                except OSError:
                    if most == HEADER_BYTES:
                        raise
                    most = HEADER_BYTES  # something behind this header cannot be read, perhaps not the header
                    continue
                if read is None:
                    raise BlockingIOError("the headers are not in memory")
                window, window_at, start = read, position, 0
                if len(window) < HEADER_BYTES:
                    raise _Misplaced
            base, length, epoch, magic, _, _, delta, _, largest = _FIELDS.unpack_from(window, start)
            size = length + BATCH_OVERHEAD_BYTES
            in_place = base == expected or (gaps and base > expected)
            if not in_place or magic != 2 or epoch != 0 or length < _MIN_LENGTH or delta < 0:
                raise _Misplaced
            if position + size > end:
                raise _Misplaced
            expected = base + delta + 1
            yield BatchPlace(position, size, base, expected, largest)
            position += size

    def walk_noting(
        self, segment: Segment, fd: int, offset: int, position: int
    ) -> Iterator[BatchPlace | Damage]:
        """As `walk`, waiting for the disk; DiskError at a header that it does not read, which is noted."""
        try:
            for place in self.walk(segment, fd, offset, position):
                offset = place.next_offset
                yield place
        except OSError as error:
            raise self.unreadable.note_way(segment.path, offset, error) from error

    def places(self, segment: Segment, timestamp_ms: int) -> Iterator[BatchPlace]:
        """Batches from an index entry before anything that late on; damage is passed over.

        DiskError where the disk does not read, as with `indexed`.
        """
        with self.indexed(segment) as (fd, index):
            offset, position = index.floor_of_time(timestamp_ms)
            examined = False
            while position < segment.size_bytes:
                until = position + _CHECKED_BYTES if segment.compacted else segment.size_bytes
                self.check_offsets(segment, fd, index, position, until)
                try:
                    for place in self.walk_noting(segment, fd, offset, position):
                        if place.start >= until:
                            break
                        offset, position = place.next_offset, place.end
                        if isinstance(place, BatchPlace):
                            yield place
                    else:
                        return
                except _Misplaced:
                    if examined:
                        raise RuntimeError(f"{segment.path}: changed while it was read") from None
                    index, examined = self.examine(segment, fd), True

    def read_batch(self, segment: Segment, place: BatchPlace) -> bytes | bytearray:
        """The verified bytes of one batch; records the damage and raises CorruptionError if it fails."""
        fd = self.files.pin(segment.file)
        with self._pinned_extent(segment, fd, place, place.size_bytes, segment.size_bytes) as extent:
            chunk = extent.read_chunk(place.size_bytes)
            assert chunk is not None
            return chunk

    def largest_timestamp(self, segment: Segment) -> int:
        """Of the whole segment; -1 if it is empty."""
        if segment.largest_timestamp is not None:
            return segment.largest_timestamp
        if segment.size_bytes == 0:
            return -1
        with self.indexed(segment) as (_, index):
            largest = index.largest_timestamp
        if segment is not self.segments[-1]:
            segment.largest_timestamp = largest
        return largest

    # -- indexes

    @contextlib.contextmanager
    def indexed(self, segment: Segment) -> Iterator[tuple[int, SparseIndex]]:
        """The segment's descriptor and its index, for work on the segment as a whole; waits for the disk.

        What the disk does not read, also within the block, is noted, and DiskError is raised.
        A segment that retention or compaction removed meanwhile is a FileNotFoundError.
        """
        with self.noting(segment, segment.base_offset):
            fd = self.files.pin(segment.file)
            try:
                yield fd, self.index(segment, fd)
            finally:
                self.files.unpin(segment.file)

    @contextlib.contextmanager
    def noting(self, segment: Segment, offset: int) -> Iterator[None]:
        """What the disk does not read on the way to `offset` is noted, and DiskError is raised."""
        try:
            yield
        except OSError as error:
            is_removed = not any(each is segment for each in self.segments)
            if isinstance(error, BlockingIOError) or (isinstance(error, FileNotFoundError) and is_removed):
                raise
            raise self.unreadable.note_way(segment.path, offset, error) from error

    def index(self, segment: Segment, fd: int, *, wait: bool = True) -> SparseIndex:
        """The segment's index, loaded or rebuilt if need be."""
        index = self.files.indexes.touch(segment)
        if index is not None:
            return index
        if not wait:
            raise BlockingIOError("the index is not in memory")
        index = self._load_index(segment)
        if index is None:
            return self.examine(segment, fd)
        self.files.indexes.keep(segment, index)
        return index

    def _load_index(self, segment: Segment) -> SparseIndex | None:
        index = self._sealed_index(segment)
        if index is None and self.files.disk.exists(segment.index_path):
            logger.warning("%s does not fit its segment; rebuilding it", segment.index_path)
        return index

    def _sealed_index(self, segment: Segment) -> SparseIndex | None:
        try:
            data = self.files.disk.read_file(segment.index_path)
        except FileNotFoundError:
            return None
        return load_sealed(
            data,
            base_offset=segment.base_offset,
            segment_bytes=segment.size_bytes,
            interval_bytes=self.interval_bytes,
            compacted=segment.compacted,
        )

    def examine(self, segment: Segment, fd: int) -> SparseIndex:
        """Checks every batch of the segment, rebuilds its index, records all damage in it.

        The index of a compacted segment is kept, if it is what was written: nothing else tells
        which offsets are right. Without it, only whether all of them are is known; where they
        are not, no index is made that would say that they are.
        """
        kept = self._kept_checks(segment) if segment.compacted else None
        if kept is not None:
            found = self._wrong_stretches(segment, fd, kept, range(len(kept)))
        else:
            found = self._wholly_wrong(segment, fd) if segment.compacted else []
        unexplained = bool(found) and kept is None
        index = SparseIndex(segment.base_offset, self.interval_bytes)
        expected = self._scan_around(segment, fd, index, found)
        end, limit = segment.size_bytes, self._offset_after(segment)
        cut_at = self._bytes_once(segment) if segment.compacted else end
        if expected < limit and segment is not self.segments[-1] and (not segment.compacted or cut_at > end):
            found.append(Damage(segment.path, end, cut_at, expected, limit))
        self.record(found)
        if segment.compacted:
            index = kept if kept is not None else with_checks(self.files.disk, fd, index, end)
        if unexplained:
            self.files.indexes.keep(segment, index)
        else:
            self._keep_index(segment, index, expected)
        return index

    def _scan_around(self, segment: Segment, fd: int, index: SparseIndex, found: list[Damage]) -> int:
        """Scans the segment but for damage that was found, and adds what it finds; the offset behind it."""
        end, limit, known = segment.size_bytes, self._offset_after(segment), deque(found)
        position, expected = 0, segment.base_offset
        while True:
            while known and known[0].start < position:
                known.popleft()
            ahead = known[0] if known else None
            stop = scan(
                self.files.disk,
                fd,
                position=position,
                end=end if ahead is None else ahead.start,
                next_offset=expected,
                index=index,
                gaps=segment.compacted,
            )
            if stop.whole and ahead is None:
                return stop.next_offset
            if stop.whole:
                damage = known.popleft()  # once: of a segment without a byte it has none either
            else:
                damage = self._diagnose(segment, fd, stop.position, stop.next_offset, limit)
                found.append(damage)
            position, expected = damage.end, damage.next_offset

    def _kept_checks(self, segment: Segment) -> CheckedIndex | None:
        """The index that was written with the segment, if it is still what it was."""
        index = segment.index if segment.index is not None else self._sealed_index(segment)
        return index if isinstance(index, CheckedIndex) else None

    # -- base offsets of compacted segments

    def check_offsets(
        self, segment: Segment, fd: int, index: SparseIndex, start: int, end: int, *, wait: bool = True
    ) -> None:
        """Compares base offsets from `start` to `end`, and a little further, with what was written.

        Of a compacted segment, and once for each index that is loaded: elsewhere a base offset
        follows from the batch before. What differs is recorded as damage, from one entry of the
        index to the next. BlockingIOError if `wait` is false and the disk must be asked.
        """
        if not isinstance(index, CheckedIndex):
            return
        ranks = index.not_compared(start, end)
        if ranks and not wait:
            raise BlockingIOError("base offsets must be compared first")
        if ranks:
            self.record(self._wrong_stretches(segment, fd, index, ranks))

    def _wrong_stretches(
        self, segment: Segment, fd: int, index: CheckedIndex, ranks: Iterable[int]
    ) -> list[Damage]:
        return wrong_stretches(self.files.disk, fd, segment, index, ranks, self._offset_after(segment))

    def _wholly_wrong(self, segment: Segment, fd: int) -> list[Damage]:
        return wholly_wrong(self.files.disk, fd, segment, self._offset_after(segment))

    # -- keeping indexes

    def _bytes_once(self, segment: Segment) -> int:
        """How long a sealed segment was, as far as its index tells: with gaps, nothing else does."""
        try:
            data = self.files.disk.read_file(segment.index_path)
        except FileNotFoundError:
            return segment.size_bytes
        return recorded_sealed_bytes(data, base_offset=segment.base_offset) or segment.size_bytes

    def _keep_index(self, segment: Segment, index: SparseIndex, next_offset: int) -> None:
        if segment is self.segments[-1]:
            return  # the index of the active segment is our own, in memory, and being added to
        self.files.indexes.keep(segment, index)
        with contextlib.suppress(OSError):  # it can be rebuilt again
            self.save_index(segment, index, next_offset)

    def save_index(self, segment: Segment, index: SparseIndex, next_offset: int) -> None:
        """Writes the index of a sealed segment, durably."""
        data = index.sealed_bytes(next_offset=next_offset, segment_bytes=segment.size_bytes)
        self.files.disk.replace_file(segment.index_path, data)

    # -- damage

    def note_damage(self, segment: Segment, fd: int, position: int, expected: int) -> Damage:
        """Records that the batch at `position`, which should begin at offset `expected`, is damaged."""
        damage = self._diagnose(segment, fd, position, expected, self._offset_after(segment))
        self.record([damage])
        return damage

    def _diagnose(self, segment: Segment, fd: int, position: int, expected: int, limit: int) -> Damage:
        end = segment.size_bytes
        found = find_next_batch(
            self.files.disk, fd, position=position, end=end, min_offset=expected, max_offset=limit
        )
        stop, following = found if found is not None else (end, limit)
        return Damage(segment.path, position, stop, expected, following)

    def _offset_after(self, segment: Segment) -> int:
        segments = self.segments
        rank = bisect_right(segments, segment.base_offset, key=_base_offset)
        return segments[rank].base_offset if rank < len(segments) else self.high_watermark

    def offset_bound(self, segment: Segment, position: int) -> int:
        """An offset that no batch before `position` reaches, not much higher than the next one's."""
        index = self.files.indexes.touch(segment) if position < segment.size_bytes else None
        bound = index.ceiling(position) if index is not None else None
        return bound if bound is not None else self._offset_after(segment)

    def record(self, found: list[Damage]) -> None:
        """Publishes damage to readers, reports it and keeps it for the next open."""
        with self.lock:
            known = set(self.damage)
            fresh = [damage for damage in found if damage not in known]
            if not fresh:
                return
            self.damage = tuple(sorted((*self.damage, *fresh), key=lambda d: (d.first_offset, d.start)))
            for damage in fresh:
                logger.error("%s", damage.error())
            with contextlib.suppress(OSError):  # it is found again when it is read again
                save_damage(self.files.disk, self.directory / "damage", self.damage)


def out_of_range(offset: int, start: int, end: int) -> RequestError:
    return RequestError(
        f"offset {offset} is outside the log, which holds {start} to {end}", code=_OFFSET_OUT_OF_RANGE
    )


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
