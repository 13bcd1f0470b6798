"""Batches on their way to the disk: their offsets, their generation, and what became of them."""

import struct
import threading
from typing import NamedTuple

from headrace.errors import DiskError
from headrace.records import TRANSACTIONAL_BIT, Marker, encode_marker, stamp
from headrace.storage.partition.writer import PartitionWriter, QueuedBatch
from headrace.storage.producers import (
    AppendedMarker,
    OpenTransaction,
    ProducerBatch,
    ProducerState,
    ProducerTable,
    last_sequence,
)

__all__ = ["AppendQueue", "Appended"]

_ATTRIBUTES_AT = 21
_FIELDS = struct.Struct(
    ">hi8xqqhi"
)  # attributes, last offset delta, max timestamp, producer id, epoch, sequence
_OUTCOMES_KEPT = 64


class Appended(NamedTuple):
    """Where a batch went: for one that its producer sent before, where it went then."""

    base_offset: int
    last_offset: int
    timestamp_ms: int  # the largest of its records
    duplicate: bool = False


class AppendQueue:
    """What was appended and is not synced yet.

    Threads: `append`, `append_marker`, `acknowledged` and `generation` belong to one
    (the event loop); `take`, `written`, `refuse` and `end` to the thread that holds the
    writer's lock; everything else may be used from any thread. The lock in here is
    held for moments, never during I/O.

    When a write fails, everything in the queue is dropped, and its offsets are given
    again to later batches: the next append begins a new generation.
    """

    def __init__(self, writer: PartitionWriter) -> None:
        self.generation = 0
        self.failed: DiskError | None = None  # nothing is appended any more
        self.end_offset = writer.high_watermark
        self.pending_bytes = 0
        self._writer = writer
        self._producers = writer.producers.table.copy()  # of what was appended
        self._queue: list[QueuedBatch] = []
        self._refused: DiskError | None = None  # why the last write failed, until the next append
        self._failed_before: DiskError | None = None  # it was suspended
        self._outcomes: dict[int, tuple[int, DiskError]] = {}  # how far each ended generation got
        self._lock = threading.Lock()

    # -- appending

    def append(self, batch: bytearray | memoryview, now_ms: int) -> Appended:
        """Gives a data batch its offsets and queues it, unless its producer sent it before."""
        attributes, delta, timestamp_ms, producer_id, epoch, sequence = _FIELDS.unpack_from(
            batch, _ATTRIBUTES_AT
        )
        with self._lock:
            if self._refused is not None:
                self._begin_generation(self._refused)
            base_offset, entry = self.end_offset, None
            if producer_id >= 0:
                entry = ProducerBatch(
                    producer_id,
                    epoch,
                    sequence,
                    last_sequence(sequence, delta),
                    base_offset,
                    base_offset + delta,
                    timestamp_ms,
                    attributes & TRANSACTIONAL_BIT != 0,
                )
                known = self._producers.check(entry)
                if known is not None:
                    return Appended(known.base_offset, known.last_offset, known.timestamp_ms, duplicate=True)
                self._producers.add(entry, now_ms)
            self._enqueue(batch, base_offset + delta + 1, timestamp_ms, now_ms, entry)
        return Appended(base_offset, base_offset + delta, timestamp_ms)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is queued, and the next append begins no new generation."""
        return not self._queue and self._refused is None and self.failed is None

    def skip_to(self, end_offset: int) -> None:
        """What was to come next has been written already, while it was idle."""
        self.end_offset = end_offset

    def append_marker(self, marker: Marker, now_ms: int) -> int:
        """Queues the end of a producer's transaction; its offset."""
        batch = encode_marker(marker, now_ms)
        with self._lock:
            if self._refused is not None:
                self._begin_generation(self._refused)
            self._producers.check_marker(marker)
            entry = AppendedMarker(marker, self.end_offset, now_ms)
            self._producers.end(entry, now_ms)
            self._enqueue(batch, entry.offset + 1, now_ms, now_ms, entry)
        return entry.offset

    def _enqueue(
        self,
        batch: bytearray | memoryview,
        next_offset: int,
        timestamp_ms: int,
        now_ms: int,
        entry: ProducerBatch | AppendedMarker | None,
    ) -> None:
        stamp(batch, 0, self.end_offset, 0)
        self._queue.append(QueuedBatch(batch, self.end_offset, next_offset, timestamp_ms, now_ms, entry))
        self.end_offset = next_offset
        self.pending_bytes += len(batch)

    def _begin_generation(self, refused: DiskError) -> None:
        self._outcomes[self.generation] = self._writer.high_watermark, refused
        self._outcomes.pop(self.generation - _OUTCOMES_KEPT, None)
        self.generation += 1
        self.end_offset = self._writer.high_watermark
        self._producers = self._writer.producers.table.copy()
        self._refused = None

    # -- what became of it

    def acknowledged(self, last_offset: int, generation: int) -> bool:
        """Whether the batch that ended at `last_offset` when appended in `generation` is synced.

        False: not yet. Raises the DiskError with which it was dropped.
        """
        if generation == self.generation:
            reached, refused = self._writer.high_watermark, self._refused or self.failed
            if last_offset >= reached and refused is None:
                return False
        else:
            lost = DiskError("the batch was dropped with a failed write; send it again")
            reached, refused = self._outcomes.get(generation, (0, lost))
        if last_offset < reached:
            return True
        assert refused is not None
        raise refused

    def take(self) -> list[QueuedBatch]:
        """Everything queued, to be written now; raises the DiskError of the generation if it has ended."""
        with self._lock:
            ended = self.failed or self._refused
            if ended is not None:
                raise ended
            queue, self._queue = self._queue, []
            return queue

    def written(self, queue: list[QueuedBatch]) -> int:
        """What was taken is synced; how many bytes that was."""
        size = 0
        for queued in queue:
            size += len(queued.batch)
        with self._lock:
            self.pending_bytes -= size
        return size

    def refuse(self, refused: DiskError, *, for_good: bool) -> None:
        """Drops everything queued: the generation ends, or appending altogether."""
        with self._lock:
            self._queue, self.pending_bytes = [], 0
            self._refused = refused
            if for_good:
                self.failed = refused

    def suspend(self, reason: DiskError) -> None:
        """Drops everything queued; nothing is appended until `resume`."""
        with self._lock:
            self._queue, self.pending_bytes = [], 0
            self._failed_before, self.failed = self.failed, reason
            self._refused = self._refused or reason

    def resume(self) -> None:
        """As before `suspend`; the next append begins a new generation, without what was dropped."""
        with self._lock:
            self.failed = self._failed_before

    def end(self, reason: DiskError) -> None:
        """Drops everything queued; nothing is appended from here on."""
        with self._lock:
            self._queue, self.pending_bytes = [], 0
            self.failed = reason

    # -- producers

    def open_transactions(self) -> list[OpenTransaction]:
        with self._lock:
            return self._known_producers().open_transactions()

    def producers(self) -> list[ProducerState]:
        with self._lock:
            return list(self._known_producers())

    def _known_producers(self) -> ProducerTable:
        """Of what was appended and not dropped since."""
        return self._producers if self._refused is None else self._writer.producers.table

    def forget_idle_producers(self, before_ms: int, now_ms: int) -> None:
        """Also those of what is synced: the caller holds the writer's lock."""
        with self._lock:
            for table in (self._producers, self._writer.producers.table):
                table.forget_idle(before_ms, now_ms)
