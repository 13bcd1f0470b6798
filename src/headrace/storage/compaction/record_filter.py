"""What stays: the decision about each record, batch and marker. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import numpy.typing as npt

from headrace.records import BatchHeader, filter_batch, iterate_batch, rewrite_batch
from headrace.storage.compaction.batch_reader import (
    WINDOW_BYTES,
    WINDOW_RECORDS,
    RawBatch,
    RecordRow,
    rows_of,
)
from headrace.storage.compaction.markers import AbortedRanges, Markers
from headrace.storage.compaction.offset_map import OffsetMap

__all__ = ["KeptBatch", "RecordFilter"]

Flags = npt.NDArray[np.bool_]
KeptBatch = bytes | bytearray | memoryview | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """Decides about the batches of a run, given in the order of the log from its start on.

    `drops_tombstones` also speaks for markers: false while something is damaged, since
    what a tombstone deletes, or a marker ends, may be what cannot be read. For the same
    reason a tombstone stays that lies beyond what `newest` knows: what it deletes stays too.
    """

    newest: OffsetMap
    reached: int  # `newest` knows of every key below it
    aborted: AbortedRanges
    last_offset: int  # the newest record that is sealed stays, so that readers get to the end
    start_offset: int
    last_batches: frozenset[int]  # base offsets of the batches that producers go on from
    bare_epochs: Mapping[int, int]  # of producers that are known by a marker alone
    now_ms: int
    delete_retention_ms: int
    drops_tombstones: bool
    markers: Markers = field(default_factory=Markers)

    def filter_batches(self, batches: Iterable[RawBatch]) -> Iterator[tuple[memoryview, KeptBatch]]:
        """Of each batch itself if all of it stays, a smaller one, or None; several are decided at a time."""
        waiting: list[tuple[BatchHeader, memoryview, int]] = []
        rows: list[RecordRow] = []
        flags: list[Flags] = []
        held_bytes = 0
        for header, batch in batches:
            found = None if self._is_decided(header) else rows_of(header, batch)
            waiting.append((header, batch, header.record_count if found is not None else -1))
            held_bytes += len(batch)
            if found is not None:
                source, plain_bytes = found
                held_bytes += plain_bytes
                while len(rows) < WINDOW_RECORDS and (window := list(islice(source, WINDOW_RECORDS))):
                    rows += window
                    if len(rows) >= WINDOW_RECORDS:
                        flags.append(self._flags(rows))
                        rows = []
            if flags or held_bytes >= WINDOW_BYTES or len(waiting) >= WINDOW_RECORDS:
                yield from self._decide(waiting, np.concatenate([*flags, self._flags(rows)]))
                waiting, rows, flags, held_bytes = [], [], [], 0
        yield from self._decide(waiting, self._flags(rows))

    def _is_decided(self, header: BatchHeader) -> bool:
        return header.is_control or not header.record_count or self.aborted.covers(header)

    def _flags(self, rows: list[RecordRow]) -> Flags:
        """Of each record: whether it stays, is a tombstone, is one that may go when its time is over."""
        if not rows:
            return np.zeros((0, 3), np.bool_)
        offsets = np.array([offset for offset, _, _ in rows], np.int64)
        keyed = np.array([key is not None for _, key, _ in rows], np.bool_)
        stays = np.ones(len(rows), np.bool_)
        newest = self.newest.find([key for _, key, _ in rows if key is not None])
        stays[keyed] = (offsets[keyed] >= newest) & (offsets[keyed] >= self.start_offset)
        is_last = offsets == self.last_offset
        tombstones = keyed & np.array([null for _, _, null in rows], np.bool_)
        may_go = tombstones & ~is_last & (offsets < self.reached)
        return np.stack([stays | is_last, tombstones, may_go], axis=1)

    def _decide(
        self, waiting: list[tuple[BatchHeader, memoryview, int]], flags: Flags
    ) -> Iterator[tuple[memoryview, KeptBatch]]:
        at = 0
        for header, batch, count in waiting:
            spent = self.markers.is_spent(header)
            if count < 0:
                yield batch, self._undivided(header, batch, spent)
            else:
                yield batch, self._divided(header, batch, flags[at : at + count])
                at += count

    def _undivided(self, header: BatchHeader, batch: memoryview, spent: bool) -> KeptBatch:
        """A marker, a batch without records or a void one; or one that cannot be read, which stays."""
        if header.is_control:
            return self._marker(header, batch) if spent else batch
        if not header.record_count or self.aborted.covers(header):
            return self._without_records(header, batch)
        return batch

    def _marker(self, header: BatchHeader, batch: memoryview) -> KeptBatch:
        """One that ends nothing: like a tombstone it waits for its time, then goes."""
        if not self.drops_tombstones or self._is_needed(header):
            return batch
        if self.bare_epochs.get(header.producer_id) == header.producer_epoch:
            return batch
        if header.delete_horizon_ms is None:
            horizon_ms = self.now_ms + self.delete_retention_ms
            return rewrite_batch(header, list(iterate_batch(batch)), delete_horizon_ms=horizon_ms)
        return None if header.delete_horizon_ms <= self.now_ms else batch

    def _divided(self, header: BatchHeader, batch: memoryview, flags: Flags) -> KeptBatch:
        stays, tombstones, may_go = flags[:, 0], flags[:, 1], flags[:, 2]
        horizon_ms = header.delete_horizon_ms
        if self.drops_tombstones and horizon_ms is not None and horizon_ms <= self.now_ms:
            stays = stays & ~may_go
        if not stays.any():
            return self._without_records(header, batch)
        if horizon_ms is None and (stays & tombstones).any():
            horizon_ms = self.now_ms + self.delete_retention_ms
            return filter_batch(header, batch, stays.tobytes(), delete_horizon_ms=horizon_ms)
        return batch if stays.all() else filter_batch(header, batch, stays.tobytes())

    def _without_records(self, header: BatchHeader, batch: memoryview) -> KeptBatch:
        """None, unless a producer's sequence or a reader's walk needs the batch."""
        if not self._is_needed(header):
            return None
        return batch if not header.record_count else rewrite_batch(header, [])

    def _is_needed(self, header: BatchHeader) -> bool:
        if header.producer_id >= 0 and header.base_offset in self.last_batches:
            return True
        return header.base_offset <= self.last_offset <= header.last_offset
