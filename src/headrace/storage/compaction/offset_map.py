"""The newest offset of each key, in memory of a fixed size.

A hash table with open addressing over numpy arrays: 16 bytes of hash and 8 of
offset a slot, the keys themselves are not kept. It takes keys by the thousand, so
that no Python step is made for a slot. The hash is two of the interpreter's own
(SipHash, with a secret of the process), the second over the key behind a salt: that
two of a billion keys are taken for one has a chance of 10^-20.
"""

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from headrace.storage.compaction.batch_reader import WINDOW_BYTES, WINDOW_RECORDS, RawBatch, rows_of
from headrace.storage.compaction.markers import AbortedRanges

__all__ = ["SLOT_BYTES", "OffsetMap", "newest_offsets"]

SLOT_BYTES = 24
_LOAD = 0.75  # beyond, looking up takes many steps

Ints = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
_Any = TypeVar("_Any", Ints, Hashes)


class OffsetMap:
    """Maps keys to their newest offsets, as many as fit. One thread."""

    def __init__(self, max_bytes: int, expected: int) -> None:
        """At most `max_bytes`, less if no more than `expected` keys will come."""
        slots = max(2, min(max_bytes // SLOT_BYTES, int(expected / _LOAD) + 2))
        self.capacity = max(1, int(slots * _LOAD))
        self.count = 0
        self._slots = np.uint64(slots)
        self._high: Hashes = np.empty(slots, np.uint64)
        self._low: Hashes = np.empty(slots, np.uint64)
        self._offsets: Ints = np.full(slots, -1, np.int64)
        self._salt = os.urandom(8)

    def add(self, keys: Sequence[bytes], offsets: Ints) -> int:
        """Takes in keys, whose offsets rise; how many of them, fewer than all once it is full."""
        taken = 0
        while taken < len(keys):
            room = self.capacity - self.count
            if room <= self.capacity // 64:
                return taken
            end = taken + room
            self._add(keys[taken:end], offsets[taken:end])
            taken = min(end, len(keys))
        return taken

    def _add(self, keys: Sequence[bytes], offsets: Ints) -> None:
        high, low = self._hashes(keys)
        slot = high % self._slots
        while len(slot):
            known = self._offsets[slot] >= 0
            same = known & (self._high[slot] == high) & (self._low[slot] == low)
            np.maximum.at(self._offsets, slot[same], offsets[same])
            self._claim(slot[~known], high[~known], low[~known], offsets[~known])
            # Who found a free slot looks again: it is its own now, or another's.
            slot = np.where(known, (slot + np.uint64(1)) % self._slots, slot)
            slot, high, low, offsets = _without(same, slot, high, low, offsets)

    def _claim(self, slot: Hashes, high: Hashes, low: Hashes, offsets: Ints) -> None:
        """Gives each free slot to one of those who want it."""
        self._offsets[slot] = offsets
        won = self._offsets[slot] == offsets
        self._high[slot[won]] = high[won]
        self._low[slot[won]] = low[won]
        self.count += int(np.count_nonzero(won))

    def find(self, keys: Sequence[bytes]) -> Ints:
        """The newest offset of each key; -1 where it is not known."""
        high, low = self._hashes(keys)
        found = np.full(len(keys), -1, np.int64)
        rows = np.arange(len(keys))
        slot = high % self._slots
        while len(rows):
            offsets = self._offsets[slot]
            same = (self._high[slot] == high) & (self._low[slot] == low) & (offsets >= 0)
            found[rows[same]] = offsets[same]
            done = same | (offsets < 0)
            slot = (slot + np.uint64(1)) % self._slots
            rows, slot, high, low = (each[~done] for each in (rows, slot, high, low))
        return found

    def _hashes(self, keys: Sequence[bytes]) -> tuple[Hashes, Hashes]:
        first = np.fromiter(map(hash, keys), np.int64, len(keys))
        second = np.fromiter(map(hash, map(self._salt.__add__, keys)), np.int64, len(keys))
        return first.view(np.uint64), second.view(np.uint64)


def _without(
    gone: npt.NDArray[np.bool_], slot: Hashes, high: Hashes, low: Hashes, offsets: Ints
) -> tuple[Hashes, Hashes, Hashes, Ints]:
    left = ~gone
    return slot[left], high[left], low[left], offsets[left]


def newest_offsets(
    batches: Iterable[RawBatch], aborted: AbortedRanges, *, max_bytes: int, expected: int, from_offset: int
) -> tuple[OffsetMap, int | None]:
    """The first pass: the newest offset of each key in the dirty part of a log, as far as memory reaches.

    The first offset that found no room in the map comes with it; None if all did.

    Records below `from_offset` and those of aborted transactions replace nothing.
    """
    newest = OffsetMap(max_bytes, expected)
    keys: list[bytes] = []
    offsets: list[int] = []
    held_bytes = 0
    for header, batch in batches:
        if header.is_control or not header.record_count or aborted.covers(header):
            continue
        found = rows_of(header, batch)
        if found is None:
            continue
        source, plain_bytes = found
        held_bytes += plain_bytes
        while window := list(islice(source, WINDOW_RECORDS)):
            for offset, key, _ in window:
                if key is not None and offset >= from_offset:
                    keys.append(key)
                    offsets.append(offset)
            if len(keys) >= WINDOW_RECORDS or held_bytes >= WINDOW_BYTES:
                taken = newest.add(keys, np.array(offsets, np.int64))
                if taken < len(keys):
                    return newest, offsets[taken]
                keys, offsets, held_bytes = [], [], 0
    taken = newest.add(keys, np.array(offsets, np.int64))
    return newest, offsets[taken] if taken < len(keys) else None
