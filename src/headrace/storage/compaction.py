"""Compaction: the newest record of every key stays, offsets never change.

Sealed segments are read twice: once for the newest offset of each key, once to
copy what stays. Neighbours are merged into files of at most `segment.bytes`.
A new file is written beside the old ones, synced, and put in force by one
rename; its name says which range it stands for, so that a crash at any moment
leaves either the old files or the new one in force, and the others are removed
at the next open. Readers in the midst of an old file keep it.

A tombstone first gets a delete horizon, written into its batch as Kafka does;
once that has passed, the next run drops it. Records without a key and control
batches always stay, and so does the newest sealed record, so that a reader can
always walk up to the end.

Only segments below the last stable offset are touched: there every transaction
is decided, and the records of aborted ones go. A batch from which a producer's
sequence goes on stays, if need be without records.
"""

import contextlib
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from headrace.errors import CorruptionError
from headrace.records import BatchHeader, Record, decode_batch, read_header, rewrite_batch
from headrace.storage.aborted import AbortedTransaction
from headrace.storage.disk import write_all
from headrace.storage.index import SparseIndex
from headrace.storage.reader import LogReader
from headrace.storage.segment import Segment, compacted_name
from headrace.storage.topic_config import TopicConfig

__all__ = ["Compaction"]

_WRITE_BYTES = 1024 * 1024
_OFFSET_SPAN = 2**31 - 1

Swap = Callable[[list[Segment], Segment], None]
Ranges = dict[int, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One run over a partition. The caller keeps retention and other runs away meanwhile."""

    reader: LogReader
    segments: tuple[Segment, ...]  # at the beginning of the run: what is sealed meanwhile is left alone
    config: TopicConfig
    start_offset: int
    stable_offset: int
    aborted: Sequence[AbortedTransaction]
    last_batches: frozenset[int]  # base offsets of the batches that producers go on from
    now_ms: int

    def _cleanable(self) -> tuple[Segment, ...]:
        """Sealed segments in which every transaction is decided."""
        bounds = [segment.base_offset for segment in self.segments[1:]]
        return self.segments[: bisect_right(bounds, self.stable_offset)]

    def is_due(self) -> bool:
        """Whether enough was sealed since the last run, or tombstones may have outlived their time."""
        sealed = self._cleanable()
        dirty = sum(segment.size_bytes for segment in sealed if not segment.compacted)
        total = sum(segment.size_bytes for segment in sealed)
        if dirty and dirty >= self.config.min_cleanable_dirty_ratio * total:
            return True
        return any(s.compacted and 0 < s.horizon_ms <= self.now_ms for s in sealed)

    def run(self, swap: Swap) -> int:
        """Rewrites every group of sealed segments, oldest first; the bytes saved.

        `swap` puts a new segment in the place of old ones and removes their files.
        """
        newest, last_offset = self._newest_offsets()
        damaged = {damage.path for damage in self.reader.damage}
        run = 1 + max((segment.run for segment in self.segments), default=0)
        keeper = _Keeper(
            newest=newest,
            last_offset=last_offset,
            start_offset=self.start_offset,
            aborted=_ranges(self.aborted),
            last_batches=self.last_batches,
            now_ms=self.now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
            # What a tombstone deletes may be among the segments that cannot be rewritten.
            may_drop_tombstones=not any(s.path in damaged for s in self.segments),
        )
        saved = 0
        for group, next_offset in self._groups(damaged):
            saved += self._rewrite(group, next_offset, run, keeper, swap)
        return saved

    def _newest_offsets(self) -> tuple[dict[bytes, int], int]:
        newest: dict[bytes, int] = {}
        last_offset = -1
        void = _ranges(self.aborted)
        for segment in self._cleanable():
            for batch in _batches(self.reader, segment):
                header = read_header(batch)
                if header.is_control or _is_aborted(header, void):
                    last_offset = header.last_offset
                    continue
                for record in decode_batch(batch):
                    last_offset = record.offset
                    if record.key is not None:
                        newest[record.key] = record.offset
        return newest, last_offset

    def _groups(self, damaged: set[Path]) -> Iterator[tuple[list[Segment], int]]:
        """Neighbours that fit into one file, each with the offset that follows."""
        segments = self.segments[: len(self._cleanable()) + 1]
        group: list[Segment] = []
        for segment, following in pairwise(segments):
            if segment.path in damaged or (group and not self._fits(group, segment, following.base_offset)):
                if group:
                    yield group, segment.base_offset
                group = []
            if segment.path not in damaged:
                group.append(segment)
        if group:
            yield group, segments[-1].base_offset

    def _fits(self, group: list[Segment], segment: Segment, next_offset: int) -> bool:
        size = sum(s.size_bytes for s in group) + segment.size_bytes
        return size <= self.config.segment_bytes and next_offset - group[0].base_offset <= _OFFSET_SPAN

    def _rewrite(
        self, group: list[Segment], next_offset: int, run: int, keeper: "_Keeper", swap: Swap
    ) -> int:
        name = compacted_name(group[0].base_offset, next_offset, run)
        path, draft = self.reader.directory / name, self.reader.directory / f"{name}.tmp"
        segment = Segment(path, group[0].base_offset, next_offset=next_offset, run=run)
        segment.horizon_ms = 0
        try:
            changed = self._write(draft, group, segment, keeper)
            if not changed and len(group) == 1 and group[0].compacted:
                group[0].horizon_ms = segment.horizon_ms
                self.reader.files.disk.unlink(draft)
                return 0
            self.reader.files.disk.rename(draft, path)
            self.reader.files.disk.sync_directory(path.parent)
        except OSError:
            with contextlib.suppress(OSError):
                self.reader.files.disk.unlink(draft)
            raise
        swap(group, segment)
        return sum(old.size_bytes for old in group) - segment.size_bytes

    def _write(self, path: Path, group: list[Segment], segment: Segment, keeper: "_Keeper") -> bool:
        """Copies what stays of the group to `path`, filling in the segment; whether anything was left out."""
        disk = self.reader.files.disk
        index = SparseIndex(segment.base_offset, self.config.index_interval_bytes)
        out: list[bytes | bytearray] = []
        changed, waiting, written = False, 0, 0
        fd = disk.open(path, write=True, create=True)
        try:
            for old in group:
                for batch in _batches(self.reader, old):
                    kept = keeper.what_stays_of(batch)
                    changed = changed or kept is not batch
                    if kept is None:
                        continue
                    header = read_header(kept)
                    index.add(header.base_offset, written + waiting, header.max_timestamp)
                    segment.note_horizon(header.delete_horizon_ms)
                    out.append(kept)
                    waiting += len(kept)
                    if waiting >= _WRITE_BYTES:
                        written = write_all(disk, fd, out, written)
                        out, waiting = [], 0
            segment.size_bytes = write_all(disk, fd, out, written)
            disk.sync(fd)
        finally:
            disk.close(fd)
        segment.index, segment.largest_timestamp = index, index.largest_timestamp
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keeper:
    """Decides which records stay. Pure."""

    newest: dict[bytes, int]
    last_offset: int
    start_offset: int
    aborted: "Ranges"
    last_batches: frozenset[int]
    now_ms: int
    delete_retention_ms: int
    may_drop_tombstones: bool

    def what_stays_of(self, batch: bytes | bytearray) -> bytes | bytearray | None:
        """The batch itself if all of it stays, a smaller one, or None."""
        header = read_header(batch)
        if header.is_control:
            return batch
        horizon_ms = header.delete_horizon_ms
        expired = self.may_drop_tombstones and horizon_ms is not None and horizon_ms <= self.now_ms
        void = _is_aborted(header, self.aborted)
        records = decode_batch(batch)
        kept = [] if void else [record for record in records if self._stays(record, expired)]
        if not kept:
            return self._without_records(header, batch)
        begins_waiting = horizon_ms is None and any(r.value is None and r.key is not None for r in kept)
        if len(kept) == len(records) and not begins_waiting:
            return batch
        return rewrite_batch(
            header, kept, delete_horizon_ms=self.now_ms + self.delete_retention_ms if begins_waiting else None
        )

    def _without_records(self, header: BatchHeader, batch: bytes | bytearray) -> bytes | bytearray | None:
        """None, unless a producer's sequence or a reader's walk needs the batch."""
        needed = header.producer_id >= 0 and header.base_offset in self.last_batches
        if not needed and not header.base_offset <= self.last_offset <= header.last_offset:
            return None
        return batch if not header.record_count else rewrite_batch(header, [])

    def _stays(self, record: Record, expired: bool) -> bool:
        if record.offset == self.last_offset or record.key is None:
            return True
        if record.offset < self.start_offset or self.newest[record.key] != record.offset:
            return False
        return record.value is not None or not expired


def _ranges(aborted: Sequence[AbortedTransaction]) -> Ranges:
    """First and last offsets of each producer's aborted transactions, in order."""
    ranges: Ranges = {}
    for producer_id, first_offset, last_offset in aborted:
        ranges.setdefault(producer_id, []).append((first_offset, last_offset))
    return ranges


def _is_aborted(header: BatchHeader, aborted: Ranges) -> bool:
    ranges = aborted.get(header.producer_id) if header.is_transactional else None
    if not ranges:
        return False
    rank = bisect_right(ranges, header.base_offset, key=lambda pair: pair[0]) - 1
    return rank >= 0 and header.base_offset <= ranges[rank][1]


def _batches(reader: LogReader, segment: Segment) -> Iterator[bytes | bytearray]:
    """Every intact batch of a segment, in order."""
    if segment.size_bytes == 0:
        return
    for place in reader.places(segment, -1):
        try:
            batch = reader.read_batch(segment, place)
        except CorruptionError:
            continue  # recorded; the segment is then left as it is
        yield batch
