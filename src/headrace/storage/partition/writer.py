"""The writing half of a partition: queued batches to synced bytes in segments."""

import contextlib
import errno
import logging
from time import perf_counter
from typing import NamedTuple

from headrace.storage.disk import sync_file, write_all
from headrace.storage.partition.checkpoint import SegmentCheckpoint, write_checkpoint
from headrace.storage.partition.recovery import RecoveredPartition, create_segment
from headrace.storage.producers import AppendedMarker, ProducerBatch
from headrace.storage.reading import PartitionReader, Tail
from headrace.storage.segments import Segment, ZerosAhead, position_in_file
from headrace.storage.topic_config import TopicConfig

__all__ = ["PartitionWriter", "QueuedBatch"]

logger = logging.getLogger("headrace.storage")

CHECKPOINT_BYTES = 64 * 1024 * 1024
CHECKPOINT_MS = 1000
REACHABLE_MS = 1000
_OFFSET_SPAN = 2**31 - 1


class QueuedBatch(NamedTuple):
    """A stamped batch on its way to the disk."""

    batch: bytearray | memoryview
    base_offset: int
    next_offset: int
    max_timestamp: int
    now_ms: int
    entry: ProducerBatch | AppendedMarker | None  # what it means for its producer, if it has one


class PartitionWriter:
    """Writes to the active segment and rolls it. One thread at a time: the caller holds the writer's lock.

    Errors of the disk come out as OSError; `undo` then takes back what was not
    synced. The high watermark, which is the reader's, moves only after a sync, and so
    does what `producers` knows.
    """

    def __init__(self, reader: PartitionReader, config: TopicConfig, recovered: RecoveredPartition) -> None:
        self.reader = reader
        self.config = config
        self.producers = recovered.producers
        self._snapshots = recovered.snapshots
        self._saved_entries = recovered.index_entries
        self._saved_crc = self._index_crc(0, recovered.index_entries, 0)
        self._saved_position = self.active.size_bytes
        self._saved_ms = self._written_ms = 0
        self._found_ms = -REACHABLE_MS  # when the active segment's name was last followed to it
        self._refused: OSError | None = None  # what a chore failed with that the next commit must tell
        self._commits_plainly = reader.files.disk.commits_plainly
        reader.tail = Tail(self.active)
        self._zeros = self._no_zeros_yet()

    def _no_zeros_yet(self) -> ZerosAhead:
        files = self.reader.files
        return ZerosAhead(files.disk, files.zeros, self.active.size_bytes)

    @property
    def active(self) -> Segment:
        return self.reader.segments[-1]

    @property
    def high_watermark(self) -> int:
        return self.reader.high_watermark

    def write(self, queue: list[QueuedBatch]) -> None:
        """Writes the batches and syncs them, rolling where a segment is full or old."""
        self._believe_the_disk()
        self._find_file(queue[-1].now_ms)
        run: list[QueuedBatch] = []
        size = self.active.size_bytes
        for queued in queue:
            if size and self._is_full(size + len(queued.batch), queued.next_offset, queued.now_ms):
                self._flush(run)
                self.roll()
                run, size = [], 0
            run.append(queued)
            size += len(queued.batch)
        self._flush(run)
        self._written_ms = queue[-1].now_ms

    def _believe_the_disk(self) -> None:
        """Raises what a chore failed with since the last commit."""
        if self._refused is not None:
            raise self._refused

    def _find_file(self, now_ms: int) -> None:
        """Raises OSError if the file being written is no longer where the next start looks for it.

        The system goes on to write and sync a file that was removed or moved. So its name is
        followed before the first commit and then once in `REACHABLE_MS`: what is acknowledged
        in between may be lost with it.
        """
        if abs(now_ms - self._found_ms) < REACHABLE_MS:
            return
        reader, active = self.reader, self.active
        fd = reader.files.pin(active.file)
        try:
            found = reader.files.disk.is_at(fd, active.path)
        finally:
            reader.files.unpin(active.file)
        if not found:
            raise FileNotFoundError(errno.ENOENT, f"{active.path.name} was removed, moved or replaced")
        self._found_ms = now_ms

    def _is_full(self, size: int, next_offset: int, now_ms: int) -> bool:
        active, config = self.active, self.config
        return (
            size > config.segment_bytes
            or next_offset - active.base_offset > _OFFSET_SPAN
            or (active.created_ms > 0 and now_ms - active.created_ms >= config.segment_ms)
        )

    def _flush(self, run: list[QueuedBatch]) -> None:
        if not run:
            return
        reader, active = self.reader, self.active
        position = active.size_bytes
        fd = reader.files.pin(active.file)
        try:
            end = write_all(reader.files.disk, fd, [queued.batch for queued in run], position)
            began = perf_counter()
            sync_file(reader.files.disk, fd)
            sync_s = perf_counter() - began
        finally:
            reader.files.unpin(active.file)
        self._synced(active, run, end, sync_s)

    def _synced(self, active: Segment, run: list[QueuedBatch], end: int, sync_s: float) -> None:
        """The batches are on disk, and the segment ends at `end`."""
        if self.reader.files.on_sync is not None:
            self.reader.files.on_sync(sync_s)
        if active.created_ms == 0:
            active.created_ms = run[0].now_ms
        size, segment_bytes = end - active.size_bytes, self.config.segment_bytes
        self._zeros.note_append(end, appended_bytes=size, segment_bytes=segment_bytes)
        self._publish(active, run, end)

    def begin_direct_append(self, size: int, next_offset: int, now_ms: int) -> tuple[int, int] | None:
        """Descriptor and position for a batch that the caller writes and syncs; `end_direct_append` follows.

        None if it must be written the general way.
        """
        active = self.reader.segments[-1]
        position = active.size_bytes
        if self._refused is not None or not self._commits_plainly:
            return None
        self._find_file(now_ms)
        if position and self._is_full(position + size, next_offset, now_ms):
            return None
        return self.reader.files.pin(active.file), position

    def end_direct_append(self, queued: QueuedBatch | None, sync_s: float) -> None:
        """The batch was written and synced; None: it was not."""
        active = self.active
        self.reader.files.unpin(active.file)
        if queued is not None:
            self._synced(active, [queued], active.size_bytes + len(queued.batch), sync_s)
            self._written_ms = queued.now_ms

    def _publish(self, active: Segment, run: list[QueuedBatch], end: int) -> None:
        """Lets readers see what was synced: positions first, the high watermark last."""
        tail, index, position = self.reader.tail, active.index, active.size_bytes
        assert tail is not None and index is not None
        tail = self.reader.tail = tail.trimmed()
        for batch, base_offset, _, max_timestamp, now_ms, entry in run:
            index.add(base_offset, position, max_timestamp)
            tail.positions.append(position)
            tail.offsets.append(base_offset)
            position += len(batch)
            if entry is not None:
                self.producers.apply(entry, now_ms)
        active.size_bytes = end
        self.reader.high_watermark = run[-1].next_offset
        self.producers.publish(run[-1].next_offset)

    def undo(self) -> None:
        """Cuts the active segment back to its last synced byte, durably: what was refused stays away."""
        active = self.active
        fd = self.reader.files.pin(active.file)
        try:
            if self.reader.files.disk.size(fd) > active.size_bytes:
                self.reader.files.disk.truncate(fd, active.size_bytes)
                self.reader.files.disk.sync(fd)
        finally:
            self.reader.files.unpin(active.file)
        self._zeros = self._no_zeros_yet()

    def _cut_zeros(self) -> None:
        """Ends the active segment's file where its records end."""
        active = self.active
        fd = self.reader.files.pin(active.file)
        try:
            self._zeros.cut(fd, active.size_bytes)
        finally:
            self.reader.files.unpin(active.file)

    def roll(self) -> None:
        """Seals the active segment, all of which is synced, and begins a new one at the next offset.

        A durable snapshot of producers goes before it: after a crash at most the newest
        segment is replayed, and one that is sealed can be deleted without a thought of them.
        """
        self._believe_the_disk()
        sealed, reader = self.active, self.reader
        assert sealed.index is not None
        self._cut_zeros()
        reader.save_index(sealed, sealed.index, reader.high_watermark)
        self._snapshots.seal(self.producers)
        create_segment(reader, reader.high_watermark)
        reader.tail = Tail(self.active)
        self._zeros = self._no_zeros_yet()
        sealed.largest_timestamp = sealed.index.largest_timestamp
        reader.files.indexes.keep(sealed, sealed.index)
        self._saved_entries = self._saved_crc = self._saved_position = 0
        self.checkpoint(durable=False)

    @property
    def chores_due(self) -> bool:
        return self._zeros.are_due or self._checkpoint_due

    def do_chores(self) -> None:
        """Writes zeros ahead and takes a checkpoint where they are due: nobody waits for them."""
        if self._zeros.are_due:
            self._write_zeros()
        if self._checkpoint_due:
            self.checkpoint(durable=False)

    def _write_zeros(self) -> None:
        active = self.active
        fd = self.reader.files.pin(active.file)
        try:
            self._zeros.write(fd, active.size_bytes)
        except OSError as error:
            # Nothing acknowledged is touched by it, but what such a disk syncs next must not be believed.
            self._refused = error
        finally:
            self.reader.files.unpin(active.file)

    @property
    def _checkpoint_due(self) -> bool:
        """Whether so much, or so long ago, was written since the last checkpoint that it is time for one."""
        written = self.active.size_bytes - self._saved_position
        return written > 0 and (
            written >= CHECKPOINT_BYTES or self._written_ms - self._saved_ms >= CHECKPOINT_MS
        )

    def checkpoint(self, *, durable: bool) -> None:
        """Notes how far the active segment is synced. Failing to is no harm but a longer recovery."""
        self._saved_ms = self._written_ms
        try:
            self._save_checkpoint(durable)
        except OSError as error:
            logger.warning("%s: no checkpoint written: %s", self.reader.directory, error)

    def _save_checkpoint(self, durable: bool) -> None:
        active, disk = self.active, self.reader.files.disk
        index = active.index
        assert index is not None
        self._snapshots.save(self.producers, active.size_bytes, durable=durable)
        entries = len(index)
        self._save_entries(active, durable)
        self._saved_crc = self._index_crc(self._saved_entries, entries, self._saved_crc)
        self._saved_entries, self._saved_position = entries, active.size_bytes
        checkpoint = SegmentCheckpoint(
            base_offset=active.base_offset,
            position=active.size_bytes,
            next_offset=self.high_watermark,
            largest_timestamp=index.largest_timestamp,
            created_ms=active.created_ms,
            index_entries=entries,
            index_crc=self._saved_crc,
        )
        write_checkpoint(disk, self.reader.directory / "checkpoint", checkpoint, durable=durable)

    def _save_entries(self, active: Segment, durable: bool) -> None:
        disk, index = self.reader.files.disk, active.index
        assert index is not None
        try:
            fd = disk.open(active.index_path, write=True)
        except FileNotFoundError:
            fd = disk.open(active.index_path, write=True, create=True)
        try:
            data = index.open_bytes(self._saved_entries)
            write_all(disk, fd, [data] if data else [], position_in_file(self._saved_entries))
            if durable:
                disk.sync(fd)
        finally:
            disk.close(fd)

    def _index_crc(self, start: int, stop: int, value: int) -> int:
        index = self.active.index
        assert index is not None
        return index.checksum(stop, start=start, value=value)

    def close(self) -> None:
        """Leaves a checkpoint that covers everything, so that the next open scans nothing."""
        with contextlib.suppress(OSError):
            self._cut_zeros()
            self.checkpoint(durable=True)
