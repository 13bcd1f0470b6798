"""One run of compaction over a partition: whether it is due, the two passes, putting files in force."""

import contextlib
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from headrace.errors import CorruptionError, DiskError
from headrace.records import read_header
from headrace.storage.compaction.batch_reader import RawBatch, last_offset_in, read_batches
from headrace.storage.compaction.markers import AbortedRanges
from headrace.storage.disk import Disk, read_number, write_all, write_number
from headrace.storage.producers import AbortedTransaction
from headrace.storage.reading import OffsetsSum, PartitionReader
from headrace.storage.segments import CheckedIndex, Segment, compacted_name
from headrace.storage.topic_config import TopicConfig

if TYPE_CHECKING:
    from headrace.storage.compaction.offset_map import OffsetMap
    from headrace.storage.compaction.record_filter import RecordFilter

__all__ = ["Compaction", "CompactionLimits", "Stopped", "read_clean_end", "write_clean_end"]

logger = logging.getLogger("headrace.storage")

_WRITE_BYTES = 1024 * 1024
_OFFSET_SPAN = 2**31 - 1
_NEVER_MS = 2**63 - 1

Swap = Callable[[list[Segment], Segment], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionLimits:
    """`map_bytes` for the newest offsets of keys, 24 bytes each and a third more; `read_bytes` read ahead.

    Besides these a run holds a few megabytes, or a few times the largest batch
    uncompressed if that is more.
    """

    map_bytes: int = 32 * 1024 * 1024
    read_bytes: int = 1024 * 1024


class CompactionResult(NamedTuple):
    """What a run did: whether it reached the end, or only as far as its memory."""

    saved_bytes: int
    complete: bool


class Stopped(Exception):  # noqa: N818 - not a fault: the log is closed or deleted meanwhile
    """A run that was told to stop; what it had put in force stays."""


class _NewDamage(Exception):  # noqa: N818 - never leaves this module
    """A segment that was thought to be intact is not, as was found while it was copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """One run over a partition. The caller keeps retention and other runs away meanwhile."""

    reader: PartitionReader
    segments: tuple[Segment, ...]  # at the beginning of the run: what is sealed meanwhile is left alone
    config: TopicConfig
    limits: CompactionLimits
    start_offset: int
    stable_offset: int
    aborted: Sequence[AbortedTransaction]
    last_batches: frozenset[int]
    bare_epochs: Mapping[int, int]
    now_ms: int
    is_stopped: Callable[[], bool]

    # -- whether

    def is_due(self) -> bool:
        """Whether enough is dirty, or has been for too long, or tombstones may have outlived their time."""
        sealed = self._cleanable()
        clean_end = self._clean_end()
        dirty = [segment for segment in sealed if self._end_of(segment) > clean_end]
        if dirty:
            dirty_bytes = sum(segment.size_bytes for segment in dirty[1:])
            dirty_bytes += dirty[0].size_bytes - self._position_of(dirty[0], clean_end)
            total = sum(segment.size_bytes for segment in sealed)
            if dirty_bytes and dirty_bytes >= self.config.min_cleanable_dirty_ratio * total:
                return True
            if self._waits_too_long(dirty[0]):
                return True
        damaged = {damage.path for damage in self.reader.damage}
        return any(s.compacted and 0 < s.horizon_ms <= self.now_ms and s.path not in damaged for s in sealed)

    def _cleanable(self) -> tuple[Segment, ...]:
        """Sealed segments in which every transaction is decided and no record is too young."""
        bounds = [segment.base_offset for segment in self.segments[1:]]
        sealed = self.segments[: bisect_right(bounds, self.stable_offset)]
        lag_ms = self.config.min_compaction_lag_ms
        if lag_ms > 0:
            for rank, segment in enumerate(sealed):
                if self.reader.largest_timestamp(segment) > self.now_ms - lag_ms:
                    return sealed[:rank]
        return sealed

    def _waits_too_long(self, segment: Segment) -> bool:
        lag_ms = self.config.max_compaction_lag_ms
        if lag_ms >= _NEVER_MS or not segment.size_bytes:
            return False
        first = next(iter(self.reader.places(segment, -1)), None)
        return first is not None and 0 <= first.max_timestamp < self.now_ms - lag_ms

    def _clean_end(self) -> int:
        return read_clean_end(self.reader.files.disk, self._clean_end_path)

    @property
    def _clean_end_path(self) -> Path:
        return self.reader.directory / "clean-end"

    def _end_of(self, segment: Segment) -> int:
        rank = self.segments.index(segment)
        return self.segments[rank + 1].base_offset

    def _position_of(self, segment: Segment, offset: int) -> int:
        if offset <= segment.base_offset or not segment.size_bytes:
            return 0
        with self.reader.indexed(segment) as (_, index):
            return index.floor(offset)[1]

    # -- the run

    def run(self, swap: Swap) -> CompactionResult:
        """Rewrites every group of sealed segments, oldest first.

        `swap` puts a new segment in the place of old ones and removes their files.
        Raises Stopped when `is_stopped` says so.
        """
        sealed = self._cleanable()
        aborted = AbortedRanges(self.aborted)
        newest, reached, complete = self._newest_offsets(sealed, aborted)
        damaged = {damage.path for damage in self.reader.damage}
        record_filter = self._record_filter(sealed, newest, reached, aborted, damaged)
        run = 1 + max((segment.run for segment in self.segments), default=0)
        saved = 0
        try:
            for group, next_offset in self._groups(sealed, reached, damaged):
                saved += self._rewrite(group, next_offset, run, record_filter, swap)
        except _NewDamage:  # the next run leaves that segment as it is, and tombstones with it
            return CompactionResult(saved, complete=False)
        if reached != self._clean_end():
            write_clean_end(self.reader.files.disk, self._clean_end_path, reached)
        return CompactionResult(saved, complete)

    def _record_filter(
        self,
        sealed: Sequence[Segment],
        newest: "OffsetMap",
        reached: int,
        aborted: AbortedRanges,
        damaged: set[Path],
    ) -> "RecordFilter":
        from headrace.storage.compaction.record_filter import RecordFilter

        ends = (last_offset_in(self.reader, s) for s in reversed(sealed) if s.path not in damaged)
        return RecordFilter(
            newest=newest,
            reached=reached,
            aborted=aborted,
            last_offset=next((end for end in ends if end >= 0), -1),
            start_offset=self.start_offset,
            last_batches=self.last_batches,
            bare_epochs=self.bare_epochs,
            now_ms=self.now_ms,
            delete_retention_ms=self.config.delete_retention_ms,
            drops_tombstones=not any(s.path in damaged for s in self.segments),
        )

    def _newest_offsets(
        self, sealed: Sequence[Segment], aborted: AbortedRanges
    ) -> tuple["OffsetMap", int, bool]:
        """The newest offset of each dirty key, as many as fit; how far that reaches, and if to the end."""
        from headrace.storage.compaction.offset_map import newest_offsets

        clean_end = max(self._clean_end(), self.start_offset)
        dirty = [segment for segment in sealed if self._end_of(segment) > clean_end]
        end = self._end_of(sealed[-1]) if sealed else clean_end
        batches = chain.from_iterable(
            read_batches(self.reader, segment, self.limits.read_bytes, clean_end) for segment in dirty
        )
        expected = end - max(clean_end, dirty[0].base_offset) if dirty else 0
        newest, reached = newest_offsets(
            self._until_stopped(batches),
            aborted,
            max_bytes=self.limits.map_bytes,
            expected=expected,
            from_offset=clean_end,
        )
        return (newest, end, True) if reached is None else (newest, reached, False)

    def _until_stopped(self, batches: Iterable[RawBatch]) -> Iterator[RawBatch]:
        for batch in batches:
            if self.is_stopped():
                raise Stopped
            yield batch

    def _groups(
        self, sealed: Sequence[Segment], reached: int, damaged: set[Path]
    ) -> Iterator[tuple[list[Segment], int]]:
        """Neighbours that fit into one file, each with the offset that follows."""
        wanted = [segment for segment in sealed if segment.base_offset < reached]
        segments = self.segments[: len(wanted) + 1]
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

    # -- one new file

    def _rewrite(
        self, group: list[Segment], next_offset: int, run: int, record_filter: "RecordFilter", swap: Swap
    ) -> int:
        name = compacted_name(group[0].base_offset, next_offset, run)
        path, draft = self.reader.directory / name, self.reader.directory / f"{name}.tmp"
        segment = Segment(path, group[0].base_offset, next_offset=next_offset, run=run)
        segment.horizon_ms = 0
        try:
            changed = self._write(draft, group, segment, record_filter)
            self._check_undamaged(group)
            if not changed and len(group) == 1 and group[0].compacted:
                group[0].horizon_ms = segment.horizon_ms
                for each in (draft, segment.offsets_path):
                    self.reader.files.disk.unlink(each)
                return 0
            self.reader.files.disk.rename(draft, path)
            self.reader.files.disk.sync_directory(path.parent)
        except (OSError, DiskError, Stopped, _NewDamage):
            for each in (draft, segment.offsets_path):
                with contextlib.suppress(OSError):
                    self.reader.files.disk.unlink(each)
            raise
        swap(group, segment)
        return sum(old.size_bytes for old in group) - segment.size_bytes

    def _check_undamaged(self, group: list[Segment]) -> None:
        """What was damaged is not in the new file, and must not go with the old one."""
        damaged = {damage.path for damage in self.reader.damage}
        if any(segment.path in damaged for segment in group):
            raise _NewDamage

    def _write(
        self, path: Path, group: list[Segment], segment: Segment, record_filter: "RecordFilter"
    ) -> bool:
        """Copies what stays of the group to `path`, filling in the segment; whether anything was left out."""
        disk = self.reader.files.disk
        index = CheckedIndex(segment.base_offset, self.config.index_interval_bytes)
        offsets = OffsetsSum()
        out: list[bytes | bytearray | memoryview] = []
        changed, waiting, written = False, 0, 0
        batches = chain.from_iterable(read_batches(self.reader, s, self.limits.read_bytes) for s in group)
        fd = disk.open(path, write=True, create=True)
        try:
            for batch, kept in record_filter.filter_batches(self._until_stopped(batches)):
                changed = changed or kept is not batch
                if kept is None:
                    continue
                header = read_header(kept)
                index.add(header.base_offset, written + waiting, header.max_timestamp)
                offsets.add(header.base_offset)
                if (header.delete_horizon_ms or 0) > self.now_ms:  # else it stays for another reason
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
        offsets.keep(disk, segment)  # before the segment is in force, which needs it
        segment.index, segment.largest_timestamp = index, index.largest_timestamp
        return changed


# -- how far a log is compacted, kept in a small file: losing it costs one more run, nothing else


def write_clean_end(disk: Disk, path: Path, offset: int) -> None:
    """Notes that below `offset` every key has one record, once the files that make it so are in force."""
    write_number(disk, path, offset)


def read_clean_end(disk: Disk, path: Path) -> int:
    """The offset, 0 if it is not known."""
    try:
        return read_number(disk, path) or 0
    except CorruptionError:
        logger.warning("%s is damaged; the partition is compacted from its start again", path)
        return 0
