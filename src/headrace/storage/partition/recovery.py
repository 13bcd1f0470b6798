"""Opening a partition: what is synced is believed, what may be torn is checked and cut.

Only the newest segment can be unclean, since a roll syncs a segment before the
next one is made. Of that, the checkpoint vouches for the first part. The rest
is scanned. Where a batch fails its check, it is either the tail that a crash
tore, which is cut off, or, if a valid batch stands behind it, damage: cutting
there could take acknowledged records along, so it is kept and reported.

What producers sent is then brought up to date from the newest snapshot of it.
"""

import contextlib
import logging
from collections.abc import Iterable
from typing import NamedTuple

from headrace.storage.disk import Damage, load_damage, sync_file
from headrace.storage.partition.checkpoint import SegmentCheckpoint, read_checkpoint
from headrace.storage.partition.log_start import read_log_start
from headrace.storage.partition.producer_replay import ScannedHeaders, replay_producers
from headrace.storage.producers import ProducerHeaders, ProducerSnapshots, SyncedProducers
from headrace.storage.reading import PartitionReader
from headrace.storage.segments import (
    Segment,
    SparseIndex,
    end_of_bytes,
    find_next_batch,
    load_open,
    plain_name,
    scan,
    segments_in,
)

__all__ = ["RecoveredPartition", "TornTail", "create_segment", "recover_partition"]

logger = logging.getLogger("headrace.storage")

_OFFSET_SPAN = 2**31


class TornTail(NamedTuple):
    """Bytes that recovery cut off the newest segment: no whole valid batch was among them."""

    path: str
    start: int
    end: int
    first_offset: int


class RecoveredPartition(NamedTuple):
    """The state of a partition after opening; its segments and damage are in the reader."""

    start_offset: int
    next_offset: int
    index_entries: int  # of the active segment that are in its index file
    scanned_bytes: int
    torn: TornTail | None
    producers: SyncedProducers
    snapshots: ProducerSnapshots


class _Active(NamedTuple):
    """The newest segment, repaired."""

    next_offset: int
    index_entries: int
    scanned_bytes: int
    torn: TornTail | None
    scanned: ScannedHeaders


def recover_partition(reader: PartitionReader) -> RecoveredPartition:
    """Fills the reader with what is on disk and repairs the tail."""
    disk, directory = reader.files.disk, reader.directory
    # A killed process leaves names that are seen but not durable: make them so before building on them.
    disk.sync_directory(directory)
    sizes = disk.list(directory)
    segments, replaced = segments_in(directory, sizes)
    for name in [*replaced, *_leftovers(sizes, segments)]:
        with contextlib.suppress(FileNotFoundError):
            disk.unlink(directory / name)
    checkpoint = read_checkpoint(disk, directory / "checkpoint")
    log_start = read_log_start(disk, directory / "log-start")
    segments = _without_deleted(reader, segments, log_start)
    reader.segments = tuple(segments)
    paths = {segment.path for segment in segments}
    known = load_damage(disk, directory / "damage")
    reader.damage = tuple(d for d in known or () if d.path in paths)
    _ensure_active(reader, max(log_start, checkpoint.next_offset if checkpoint else 0))
    active = _recover_active(reader, checkpoint)
    reader.high_watermark = active.next_offset
    if known is None:
        disk.unlink(directory / "damage")
        _examine(reader, reader.segments)
    else:
        # A compacted segment may be empty, or have been emptied: nobody would look into it otherwise.
        _examine(reader, [segment for segment in segments if segment.compacted and not segment.size_bytes])
    start_offset = max(log_start, reader.segments[0].base_offset)
    snapshots = ProducerSnapshots(disk, directory)
    producers = _recover_producers(reader, snapshots, start_offset, active.next_offset, active.scanned)
    return RecoveredPartition(
        start_offset,
        active.next_offset,
        active.index_entries,
        active.scanned_bytes,
        active.torn,
        producers,
        snapshots,
    )


def _examine(reader: PartitionReader, segments: Iterable[Segment]) -> None:
    """Checks every batch of these segments; damage that is found is recorded."""
    for segment in segments:
        fd = reader.files.pin(segment.file)
        try:
            reader.examine(segment, fd)
        finally:
            reader.files.unpin(segment.file)


def _recover_producers(
    reader: PartitionReader,
    snapshots: ProducerSnapshots,
    start_offset: int,
    next_offset: int,
    scanned: ScannedHeaders,
) -> SyncedProducers:
    """From the newest believable snapshot, else from the whole log, once: a snapshot is then left behind."""
    producers = snapshots.load(next_offset)
    behind = producers.table.next_offset < reader.segments[-1].base_offset
    replay_producers(reader, producers, next_offset, scanned)
    producers.aborted.forget_before(start_offset)
    if behind or snapshots.is_damaged:
        with contextlib.suppress(OSError):
            snapshots.seal(producers)
    return producers


def _leftovers(sizes: dict[str, int], segments: list[Segment]) -> list[str]:
    """Drafts that a crash left, and what stood beside segments that are gone."""
    kept = {path.name for segment in segments for path in segment.paths}
    return [
        name
        for name in sizes
        if name.endswith(".tmp") or (name.endswith((".index", ".offsets")) and name not in kept)
    ]


def _without_deleted(reader: PartitionReader, segments: list[Segment], log_start: int) -> list[Segment]:
    """Finishes a deletion that a crash interrupted: segments wholly below the log start go."""
    keep = 0
    while keep + 1 < len(segments) and segments[keep + 1].base_offset <= log_start:
        keep += 1
    for segment in segments[:keep]:
        for path in segment.paths:
            with contextlib.suppress(FileNotFoundError):
                reader.files.disk.unlink(path)
    return segments[keep:]


def _ensure_active(reader: PartitionReader, floor: int) -> None:
    """Appends go to a plain segment: makes one if the newest is compacted or there is none."""
    if not reader.segments:
        create_segment(reader, floor)
    elif reader.segments[-1].next_offset is not None:
        create_segment(reader, max(floor, reader.segments[-1].next_offset))
    active = reader.segments[-1]
    active.file.writable = True


def create_segment(reader: PartitionReader, base_offset: int) -> Segment:
    """A new, empty, durable segment at the end of the log."""
    disk, path = reader.files.disk, reader.directory / plain_name(base_offset)
    fd = disk.open(path, write=True, create=True)
    try:
        sync_file(disk, fd, reader.directory)
    except OSError:
        disk.close(fd)
        with contextlib.suppress(OSError):
            disk.unlink(path)
        raise
    segment = Segment(path, base_offset)
    segment.file.writable = True
    segment.index = SparseIndex(base_offset, reader.interval_bytes)
    reader.files.adopt(segment.file, fd)
    with reader.lock:
        reader.segments = (*reader.segments, segment)
    return segment


def _recover_active(reader: PartitionReader, checkpoint: SegmentCheckpoint | None) -> _Active:
    """Checks what the checkpoint does not vouch for, and cuts off what a crash tore."""
    active = reader.segments[-1]
    fd = reader.files.pin(active.file)
    try:
        index, position, next_offset = _clean_point(reader, active, checkpoint)
        persisted = len(index)
        size = active.size_bytes = reader.files.disk.size(fd)
        active.index = index
        scanned = ScannedHeaders(active, position, ProducerHeaders())
        stop, next_offset = _scan_tail(reader, scanned, fd, next_offset)
        # Zeros at the end are what was written ahead and never used.
        end = end_of_bytes(reader.files.disk, fd, stop, size)
        torn = TornTail(str(active.path), stop, end, next_offset) if stop < end else None
        if torn is not None:
            logger.warning("%s: cut off the torn tail, bytes %d to %d", active.path, stop, end)
        if stop < size:
            reader.files.disk.truncate(fd, stop)
        if size > position:
            # A killed process leaves bytes in the page cache only: sync before anyone reads them.
            reader.files.disk.sync(fd)
        active.size_bytes = stop
    finally:
        reader.files.unpin(active.file)
    next_offset = _replace_lost(reader, active, next_offset, checkpoint)
    if reader.segments[-1] is not active:
        persisted = 0
    return _Active(next_offset, persisted, end - position, torn, scanned)


def _clean_point(
    reader: PartitionReader, active: Segment, checkpoint: SegmentCheckpoint | None
) -> tuple[SparseIndex, int, int]:
    """The index so far, and the position and offset from which the active segment must be scanned."""
    if (
        checkpoint is not None
        and checkpoint.base_offset == active.base_offset
        and checkpoint.position <= active.size_bytes
    ):
        index = _load_open_index(reader, active, checkpoint)
        if index is not None:
            active.created_ms = checkpoint.created_ms
            return index, checkpoint.position, checkpoint.next_offset
    return SparseIndex(active.base_offset, reader.interval_bytes), 0, active.base_offset


def _load_open_index(
    reader: PartitionReader, active: Segment, checkpoint: SegmentCheckpoint
) -> SparseIndex | None:
    data = b""
    with contextlib.suppress(FileNotFoundError):
        data = reader.files.disk.read_file(active.index_path)
    return load_open(
        data,
        base_offset=active.base_offset,
        count=checkpoint.index_entries,
        crc=checkpoint.index_crc,
        largest_timestamp=checkpoint.largest_timestamp,
        interval_bytes=reader.interval_bytes,
    )


def _scan_tail(
    reader: PartitionReader, scanned: ScannedHeaders, fd: int, next_offset: int
) -> tuple[int, int]:
    """Position and offset after the last valid batch; damage with valid batches behind it is recorded."""
    active, position, headers = scanned
    disk, end = reader.files.disk, active.size_bytes
    while True:
        stop = scan(
            disk,
            fd,
            position=position,
            end=end,
            next_offset=next_offset,
            index=active.index,
            note=headers.note,
        )
        if stop.whole:
            return stop.position, stop.next_offset
        found = find_next_batch(
            disk,
            fd,
            position=stop.position,
            end=end,
            min_offset=stop.next_offset,
            max_offset=stop.next_offset + _OFFSET_SPAN,
        )
        if found is None:
            return stop.position, stop.next_offset
        position, next_offset = found
        reader.record([Damage(active.path, stop.position, position, stop.next_offset, next_offset)])


def _replace_lost(
    reader: PartitionReader, active: Segment, next_offset: int, checkpoint: SegmentCheckpoint | None
) -> int:
    """Goes on after the highest offset ever known synced, even if the bytes before it are gone."""
    if checkpoint is None or checkpoint.next_offset <= next_offset:
        return next_offset
    size = active.size_bytes
    reader.record([Damage(active.path, size, size, next_offset, checkpoint.next_offset)])
    create_segment(reader, checkpoint.next_offset)
    return checkpoint.next_offset
