"""Indexes of sealed segments in memory, within a bound shared by all partitions."""

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.storage.index import SparseIndex
    from headrace.storage.segment import Segment

__all__ = ["IndexCache"]


class IndexCache:
    """Keeps the most recently used indexes, at most `limit_bytes` of entries. Safe on any thread."""

    def __init__(self, limit_bytes: int = 32 * 1024 * 1024) -> None:
        self._limit_bytes = limit_bytes
        self._bytes = 0
        self._kept: OrderedDict[Segment, int] = OrderedDict()
        self._lock = threading.Lock()

    def touch(self, segment: "Segment") -> "SparseIndex | None":
        """The segment's index if it is in memory."""
        index = segment.index
        if index is not None:
            with self._lock:
                if segment in self._kept:
                    self._kept.move_to_end(segment)
        return index

    def keep(self, segment: "Segment", index: "SparseIndex") -> None:
        with self._lock:
            segment.index = index
            self._bytes += len(index.entries) - self._kept.pop(segment, 0)
            self._kept[segment] = len(index.entries)
            while self._bytes > self._limit_bytes and len(self._kept) > 1:
                oldest, size = self._kept.popitem(last=False)
                oldest.index = None
                self._bytes -= size

    def drop(self, segment: "Segment") -> None:
        """Forgets a segment that is no longer part of a log."""
        with self._lock:
            self._bytes -= self._kept.pop(segment, 0)
            segment.index = None
