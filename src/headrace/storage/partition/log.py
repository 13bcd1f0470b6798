"""One partition: the log that the rest of Headrace appends to and reads from."""

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.records import Marker, stamp_append_time
from headrace.storage.compaction import Compaction, CompactionLimits, Stopped
from headrace.storage.disk import Damage, Disk, UnreadableBytes, is_full
from headrace.storage.partition.append_queue import Appended, AppendQueue
from headrace.storage.partition.fresh_batches import MOST_BYTES, FreshBatches, fresh_batches
from headrace.storage.partition.log_start import write_log_start
from headrace.storage.partition.recovery import TornTail, recover_partition
from headrace.storage.partition.retention import (
    detach_before,
    release_files,
    remove_files,
    replace_segments,
    surplus,
)
from headrace.storage.partition.writer import PartitionWriter, QueuedBatch
from headrace.storage.producers import AbortedTransaction, OpenTransaction, ProducerState
from headrace.storage.reading import (
    Backlog,
    Extent,
    PartitionReader,
    TimedOffset,
    find_largest_timestamp,
    find_time,
    measure,
    out_of_range,
)
from headrace.storage.segments import Files, Segment
from headrace.storage.topic_config import TopicConfig

__all__ = ["Appended", "DirectAppend", "PartitionLog", "TimedOffset"]

logger = logging.getLogger("headrace.storage")

_OFFSET_OUT_OF_RANGE = 1
_DEFAULT_LIMITS = CompactionLimits()


class DirectAppend(NamedTuple):
    """Where one batch goes that is written by its owner: a descriptor, a position, its offset."""

    fd: int
    position: int
    base_offset: int


class PartitionLog:
    """Appends record batches durably and serves what is synced.

    Threads: `append`, `acknowledged` and `generation` belong to one thread (the
    event loop). `locate`, `read`, `offset_for_time`, `largest_timestamp` and all
    attributes may be used from any thread at any time. `commit`, `do_chores`, `roll`,
    `apply_retention`, `compact`, `delete_before` and `close` wait for the disk and
    belong on worker threads; they exclude each other where they must.

    Acknowledging: `append` only queues. A batch is durable once `high_watermark`
    is above its last offset *in the generation in which it was appended*. When a
    commit fails, every batch not yet synced is dropped, also those appended while
    it ran, and their offsets are given again to later ones; the next append then
    begins a new generation. So keep `(last offset, log.generation)`, read right
    after `append` on the same thread, and ask `acknowledged`, which cannot mistake
    a later batch for an earlier one. The same holds for a duplicate, with the
    offset of the batch that it repeats.

    Producers are known twice: `append` checks against what was appended, readers
    of committed records and snapshots see what is synced. A new generation begins
    with a copy of the latter.
    """

    def __init__(self, reader: PartitionReader, config: TopicConfig) -> None:
        """Use `open`."""
        recovered = recover_partition(reader)
        self.path = reader.directory
        self.start_offset = recovered.start_offset
        self.torn: TornTail | None = recovered.torn
        self.scanned_bytes = recovered.scanned_bytes
        self._closing = False  # compaction stops, so that closing need not wait for it
        self._reader = reader
        self._writer = PartitionWriter(reader, config, recovered)
        self._config = config
        self._appends = AppendQueue(self._writer)
        self._unread: list[QueuedBatch] | None = None  # of the last commit, until it is taken
        self._writer_lock = threading.Lock()  # held while the active segment or the list of them changes
        self._maintenance_lock = threading.Lock()  # retention, compaction and deletion, one at a time
        self._is_quiet = False  # the thread that suspended it holds that lock

    @classmethod
    def open(
        cls, path: Path, config: TopicConfig | None = None, *, files: Files | None = None
    ) -> "PartitionLog":
        """Opens or creates the partition in `path`, repairing what a crash left."""
        config = config if config is not None else TopicConfig()
        files = files if files is not None else Files(Disk())
        files.disk.mkdir(path)
        files.disk.sync_directory(path.parent)
        return cls(PartitionReader(path, files, config.index_interval_bytes), config)

    # -- what is there

    @property
    def high_watermark(self) -> int:
        """Every record below is synced, and served."""
        return self._reader.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Every transaction with a record below is decided; readers of committed records end here."""
        start, synced = self.start_offset, self._reader.high_watermark
        stable = self._writer.producers.last_stable_offset
        stable = stable if stable < synced else synced
        return stable if stable > start else start

    def aborted(self, start: int, end: int) -> list[AbortedTransaction]:
        """Aborted transactions with a record that a reader of `start` to `end` (exclusive) may meet."""
        return self._writer.producers.aborted.find(start, end)

    def open_transactions(self) -> list[OpenTransaction]:
        """Those that have records here, synced or not, and no marker; in the order of their first offset."""
        return self._appends.open_transactions()

    def producers(self) -> list[ProducerState]:
        """Every producer that is remembered here."""
        return self._appends.producers()

    @property
    def end_offset(self) -> int:
        """The offset after the last append, synced or not.

        After a failed commit it stays until the next append, which begins again at
        the high watermark; so nobody takes a dropped batch for a synced one.
        """
        return self._appends.end_offset

    @property
    def commit_waits(self) -> bool:
        """Whether `commit` waits for the disk; if not, it may run on the event loop."""
        return True

    @property
    def pending_bytes(self) -> int:
        """Appended and not yet synced."""
        return self._appends.pending_bytes

    @property
    def generation(self) -> int:
        """Changes inside `append` only, after a failed commit."""
        return self._appends.generation

    @property
    def failed(self) -> DiskError | None:
        """Why the log is read-only, if it is."""
        return self._appends.failed

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._reader.segments)

    @property
    def segment_count(self) -> int:
        return len(self._reader.segments)

    @property
    def damage(self) -> tuple[Damage, ...]:
        """Every damaged range found so far, in order of offset."""
        return self._reader.damage

    @property
    def unreadable(self) -> tuple[UnreadableBytes, ...]:
        """Places that the disk would not read when it was last asked."""
        reader = self._reader
        return reader.unreadable.among(each.path for each in reader.segments) if reader.unreadable else ()

    def read_unreadable_again(self) -> None:
        """Asks the disk for those places again, unless that was done a moment ago; on a worker thread."""
        if self._reader.unreadable:
            self._reader.read_unreadable_again()

    @property
    def config(self) -> TopicConfig:
        return self._config

    def configure(self, config: TopicConfig) -> None:
        """Takes effect with the next append, roll or retention."""
        self._config = self._writer.config = config

    # -- writing

    def append(self, batch: bytearray | memoryview, *, now_ms: int) -> Appended:
        """Gives the batch its offsets and queues it. The log owns the buffer from here on.

        The batch is one whole data batch that passed `records.check_batch`. If it is
        one of the last five of its producer, sent again, nothing is queued and the
        answer tells where it went the first time. Raises RequestError when its
        producer's epoch or sequence number is not one that may come next, DiskError
        if the log is read-only after a failed sync.
        """
        if self.failed is not None:
            raise self.failed
        if self._config.stamps_append_time:
            stamp_append_time(batch, 0, now_ms)
        return self._appends.append(batch, now_ms)

    def append_marker(self, marker: Marker, *, now_ms: int) -> int:
        """Queues the end of a producer's transaction here, whether it has records or not; its offset.

        Raises RequestError when a later epoch of the producer or of the coordinator
        was seen here, DiskError if the log is read-only after a failed sync.
        """
        if self.failed is not None:
            raise self.failed
        return self._appends.append_marker(marker, now_ms)

    def acknowledged(self, last_offset: int, generation: int) -> bool:
        """Whether the batch that ended at `last_offset` when appended in `generation` is synced.

        False: not yet. Raises the DiskError with which it was dropped.
        """
        return self._appends.acknowledged(last_offset, generation)

    def commit(self) -> int:
        """Writes and syncs everything appended so far; the new high watermark.

        Raises DiskError when the disk refused. `full`: nothing is lost that was
        acknowledged, the queued batches are dropped, and later appends may succeed.
        Otherwise the log is read-only from here on (`failed`). Until the next append
        begins a new generation, every commit raises the same error again.
        """
        with self._writer_lock:
            queue = self._appends.take()
            if queue:
                try:
                    self._writer.write(queue)
                except OSError as error:
                    raise self._refuse(error) from error
                small = self._appends.written(queue) <= MOST_BYTES
                self._unread = queue if small else None
            return self.high_watermark

    def begin_direct_append(self, count: int, size: int, now_ms: int) -> DirectAppend | None:
        """Lets the caller write one batch of so many records, for which nothing else waits, and sync it.

        The batch is as plain as can be: it has no producer id, and the topic stamps no
        times. None if it must be appended and committed; otherwise nothing else is
        written until `end_direct_append`, which must follow on the same thread.
        """
        if not self._writer_lock.acquire(blocking=False):
            return None
        appends, place = self._appends, None
        base_offset = appends.end_offset
        try:
            if appends.is_idle and base_offset == self.last_stable_offset:
                place = self._writer.begin_direct_append(size, base_offset + count, now_ms)
        except OSError:  # the general way will meet it, too
            place = None
        if place is None:
            self._writer_lock.release()
            return None
        return DirectAppend(*place, base_offset)

    def end_direct_append(
        self, batch: QueuedBatch | None, *, sync_s: float = 0.0, error: OSError | None = None
    ) -> None:
        """The batch is on disk, or it is None and nothing was done, unless the disk refused it.

        Raises DiskError then, as `commit` does: the batch is dropped.
        """
        try:
            self._writer.end_direct_append(batch, sync_s)
            if error is not None:
                raise self._refuse(error) from error
            if batch is not None:
                self._appends.skip_to(batch.next_offset)
        finally:
            self._writer_lock.release()

    def take_fresh_batches(self, *, wanted: bool = True) -> FreshBatches | None:
        """What the last commit made readable, if it was little; once. Not `wanted`: only lets it go.

        For the caller that ran that commit, before the next one.
        """
        queue, self._unread = self._unread, None
        return fresh_batches(queue) if wanted and queue else None

    @property
    def chores_due(self) -> bool:
        """Whether the last commit left something to be done that nobody waits for.

        Zeros ahead of the next small appends; a checkpoint, 64 MB or a second after the last.
        """
        return self.failed is None and self._writer.chores_due

    def do_chores(self) -> None:
        """Does it. If a sync fails here, the next commit says so.

        Not a part of `commit`, since nobody who waits for an acknowledgement needs it.
        """
        with self._writer_lock:
            if self.failed is None:
                self._writer.do_chores()

    def _refuse(self, error: OSError) -> DiskError:
        """Drops everything queued; decides between read-only and trying again later."""
        undone = True
        try:
            self._writer.undo()
        except OSError:
            undone = False
        full = is_full(error) and undone
        advice = (
            "free space and send again"
            if full
            else "the partition is read-only; check the disk, then restart the broker"
        )
        refused = DiskError(f"{self.path}: {error.strerror or error}; {advice}", full=full)
        self._appends.refuse(refused, for_good=not full)
        logger.error("%s", refused)
        return refused

    def roll(self) -> None:
        """Seals the active segment, unless it is empty, and begins a new one."""
        with self._writer_lock:
            if self.failed is not None:
                raise self.failed
            if not self._writer.active.size_bytes:
                return
            try:
                self._writer.roll()
            except OSError as error:
                if not is_full(error):
                    raise self._refuse(error) from error
                # Nothing queued was touched: it stays queued, for the next commit to write or to refuse.
                raise DiskError(f"{self.path}: not rolled: {error}", full=True) from error

    # -- reading

    def locate(
        self, offset: int, max_bytes: int, *, wait: bool = True, committed: bool = False
    ) -> Extent | None:
        """The batches from `offset` on, at most to the high watermark; None if there are none yet.

        With `committed` they end at the last stable offset. Raises RequestError
        (OFFSET_OUT_OF_RANGE) outside the log, CorruptionError inside damage, and
        BlockingIOError if `wait` is false and the disk would have to be waited for.
        The caller releases the extent.
        """
        stable = self.last_stable_offset if committed else self.high_watermark
        if not self.start_offset <= offset <= self.end_offset:
            raise out_of_range(offset, self.start_offset, self.end_offset)
        if offset >= stable:
            return None
        with _reading(self.path):
            before = stable if committed else None
            return self._reader.extent(offset, max_bytes, wait=wait, before=before)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Verified whole batches from the one holding `offset`, at least one if there is any."""
        while True:
            extent = self.locate(offset, max_bytes)
            if extent is None:
                return b""
            # Damage behind the first batches is recorded now: the next extent ends before it.
            with extent, contextlib.suppress(CorruptionError):
                return extent.read_whole()

    def backlog(self, offset: int) -> Backlog:
        """What a reader at `offset` has before it, or at the log start if that is later; reads the disk."""
        with _reading(self.path):
            return measure(self._reader, max(offset, self.start_offset), self.high_watermark)

    def offset_for_time(self, timestamp_ms: int) -> TimedOffset | None:
        """The first record, by offset, with this timestamp or a later one."""
        return self._search(lambda: find_time(self._reader, timestamp_ms, self.start_offset))

    def largest_timestamp(self) -> TimedOffset | None:
        """The first record that bears the largest timestamp in the log."""
        return self._search(lambda: find_largest_timestamp(self._reader, self.start_offset))

    def _search(self, search: Callable[[], TimedOffset | None]) -> TimedOffset | None:
        """Starts over when retention or compaction removes a file in the midst of it."""
        while True:
            segments = self._reader.segments
            try:
                with _reading(self.path):
                    return search()
            except DiskError as error:
                if segments is self._reader.segments or not isinstance(error.__cause__, FileNotFoundError):
                    raise

    # -- deleting

    def delete_before(self, offset: int) -> int:
        """Moves the log start up to `offset`, durably; the new log start. Whole segments below it go."""
        with self._maintenance_lock:
            if not 0 <= offset <= self.high_watermark:
                raise RequestError(
                    f"cannot delete before {offset}: the log ends at {self.high_watermark}",
                    code=_OFFSET_OUT_OF_RANGE,
                )
            if offset > self.start_offset:
                self._move_start(offset)
            return self.start_offset

    def apply_retention(self, now_ms: int) -> list[Path]:
        """Deletes the oldest segments that exceed the topic's retention; the files removed.

        Also on a full disk, where that is needed most: an expired segment that cannot be
        sealed there is left to the next time, if others could go. DiskError if none could.
        """
        with self._maintenance_lock:
            if not self._config.deletes:
                return []
            not_rolled: DiskError | None = None
            try:
                self._roll_if_expired(now_ms)
            except DiskError as error:
                if not error.full:
                    raise
                not_rolled = error
            segments = self._reader.segments
            count = surplus(
                [(segment.size_bytes, self._largest_timestamp(segment)) for segment in segments],
                config=self._config,
                now_ms=now_ms,
            )
            if count:
                return self._move_start(segments[count].base_offset)
            if not_rolled is not None:
                raise not_rolled
            return []

    def _roll_if_expired(self, now_ms: int) -> None:
        active, limit_ms = self._writer.active, self._config.retention_ms
        if active.index is None or limit_ms < 0 or not active.size_bytes or self.failed is not None:
            return
        if 0 <= active.index.largest_timestamp < now_ms - limit_ms:
            self.roll()

    def _largest_timestamp(self, segment: Segment) -> Callable[[], int]:
        return lambda: self._reader.largest_timestamp(segment)

    def _move_start(self, offset: int) -> list[Path]:
        """First the durable log start, then the files: a crash between leaves files to be removed at open.

        Where there is no room for the former, the oldest segment makes it: without a
        note the log starts where its oldest file does.
        """
        removed: list[Path] = []
        try:
            self._note_start(offset)
        except DiskError as error:
            oldest = self._reader.segments[:2]
            if not error.full or len(oldest) < 2 or oldest[1].base_offset > offset:
                raise
            removed = self._remove_before(oldest[1].base_offset)
            self._note_start(offset)
        return removed + self._remove_before(offset)

    def _note_start(self, offset: int) -> None:
        path = self.path / "log-start"
        try:
            write_log_start(self._reader.files.disk, path, offset)
        except OSError as error:
            raise DiskError.at(path, error) from error

    def _remove_before(self, offset: int) -> list[Path]:
        self.start_offset = max(self.start_offset, offset)
        with self._writer_lock:
            gone = detach_before(self._reader, offset)
            self._writer.producers.aborted.forget_before(self.start_offset)
        return remove_files(self._reader, gone)

    def forget_idle_producers(self, now_ms: int, idle_ms: int) -> None:
        """Forgets producers without an open transaction that sent nothing for `idle_ms`."""
        with self._writer_lock:
            self._appends.forget_idle_producers(now_ms - idle_ms, now_ms)

    def compact(self, now_ms: int, limits: CompactionLimits = _DEFAULT_LIMITS) -> int:
        """Keeps the newest record of each key in sealed segments, as far as that is due; the bytes saved."""
        saved = 0
        with self._maintenance_lock:
            if not self._config.compacts or self.failed is not None:
                return saved
            self._roll_if_dirty_too_long(now_ms)
            try:
                complete = False
                # One run does it, unless there are more keys than its memory holds.
                while not complete and (run := self._compaction(now_ms, limits)).is_due():
                    saved_bytes, complete = run.run(self._swap)
                    saved += saved_bytes
            except Stopped:
                return saved
            except OSError as error:
                raise DiskError(f"{self.path}: not compacted: {error}", full=is_full(error)) from error
        return saved

    def _roll_if_dirty_too_long(self, now_ms: int) -> None:
        active, limit_ms = self._writer.active, self._config.max_compaction_lag_ms
        if active.size_bytes and 0 < active.created_ms <= now_ms - limit_ms:
            self.roll()

    def _compaction(self, now_ms: int, limits: CompactionLimits) -> Compaction:
        with self._writer_lock:
            producers, stable_offset = self._writer.producers, self.last_stable_offset
            return Compaction(
                reader=self._reader,
                segments=self._reader.segments,
                config=self._config,
                limits=limits,
                start_offset=self.start_offset,
                stable_offset=stable_offset,
                aborted=producers.aborted.find(0, stable_offset),
                last_batches=producers.table.last_batches(),
                bare_epochs={p.producer_id: p.producer_epoch for p in producers.table if p.last_sequence < 0},
                now_ms=now_ms,
                is_stopped=lambda: self._closing or self.failed is not None,
            )

    def _swap(self, old: list[Segment], new: Segment) -> None:
        """Puts a compacted segment in the place of those it was made from, then removes their files."""
        reader, index = self._reader, new.index
        assert index is not None and new.next_offset is not None
        with contextlib.suppress(OSError):  # it can be rebuilt
            reader.save_index(new, index, new.next_offset)
        reader.files.indexes.keep(new, index)
        with self._writer_lock:
            replace_segments(reader, old, new)
        remove_files(reader, tuple(old))

    def close(self) -> None:
        """Commits what is queued and leaves a checkpoint, so that the next open scans nothing."""
        self._closing = True
        try:
            if self.failed is None and self.pending_bytes:
                self.commit()
        finally:
            with self._maintenance_lock, self._writer_lock:
                if self.failed is None:
                    self._writer.close()
                    self._appends.end(DiskError(f"{self.path}: the log is closed"))
                release_files(self._reader)

    @contextlib.contextmanager
    def suspended(self, why: str) -> Iterator[None]:
        """Nothing is written in the partition's folder within the block; queued batches are dropped.

        Appends are refused, from now on until `resume`; the log may also be discarded.
        """
        self._appends.suspend(DiskError(f"{self.path}: {why}"))
        with self._maintenance_lock:
            with self._writer_lock:  # a commit under way has ended
                self._is_quiet = True
            try:
                yield
            finally:
                self._is_quiet = False

    def resume(self) -> None:
        """Takes appends again, unless it did not before it was suspended."""
        self._appends.resume()

    def discard(self) -> None:
        """Stops all writing for good; queued batches are dropped. For a topic that is being deleted."""
        self._appends.end(DiskError(f"{self.path}: the topic is deleted"))
        with contextlib.nullcontext() if self._is_quiet else self._maintenance_lock, self._writer_lock:
            release_files(self._reader)


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except BlockingIOError:
        raise
    except OSError as error:
        raise DiskError(f"{path}: cannot be read: {error}; check the disk") from error
