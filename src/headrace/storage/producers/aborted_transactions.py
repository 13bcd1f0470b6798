"""The aborted transactions of one partition, so that a reader is told which records are void."""

import struct
from bisect import bisect_left
from typing import NamedTuple

from headrace.errors import CorruptionError

__all__ = ["AbortedIndex", "AbortedTransaction"]

_ENTRY = struct.Struct(">qqqq")


class AbortedTransaction(NamedTuple):
    """Records of this producer from `first_offset` to `last_offset`, its marker, are void."""

    producer_id: int
    first_offset: int
    last_offset: int


class AbortedIndex:
    """Aborted transactions in the order of their markers, 32 bytes each.

    Each entry also holds the last stable offset behind it: whatever ends later
    begins there or later, so a search need not go on. One thread adds; others
    may look up meanwhile, since entries are only ever added at the end, and
    forgetting some puts a new list in the place of the old.
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: bytes = b"") -> None:
        """From what `encode` gave; CorruptionError if it cannot be that."""
        if len(entries) % _ENTRY.size:
            raise CorruptionError(f"aborted transactions in {len(entries)} bytes")
        self._entries = bytearray(entries)

    def __len__(self) -> int:
        return len(self._entries) // _ENTRY.size

    def add(self, aborted: AbortedTransaction, last_stable_offset: int) -> None:
        """Takes in a transaction that just ended; `last_stable_offset` is the one behind it."""
        self._entries += _ENTRY.pack(*aborted, last_stable_offset)

    def find(self, start: int, end: int) -> list[AbortedTransaction]:
        """Those with a record that a reader of `start` to `end` (exclusive) may meet."""
        entries, found = self._entries, []
        count = len(entries) // _ENTRY.size
        for rank in range(_first_ending_at(entries, count, start), count):
            *fields, stable = _ENTRY.unpack_from(entries, rank * _ENTRY.size)
            if fields[1] < end:
                found.append(AbortedTransaction._make(fields))
            if stable >= end:
                break
        return found

    def forget_before(self, offset: int) -> None:
        """Forgets transactions that ended before `offset`, the log start."""
        entries = self._entries
        rank = _first_ending_at(entries, len(self), offset)
        if rank:
            self._entries = entries[rank * _ENTRY.size :]

    def encode(self) -> bytes:
        return bytes(self._entries)


def _first_ending_at(entries: bytearray, count: int, offset: int) -> int:
    """The rank of the first entry whose marker stands at `offset` or behind it."""
    return bisect_left(
        range(count), offset, key=lambda rank: int(_ENTRY.unpack_from(entries, rank * _ENTRY.size)[2])
    )
