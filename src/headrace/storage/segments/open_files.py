"""Open files within a bound: descriptors and indexes shared by all partitions of a directory."""

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.storage.disk import Disk
from headrace.storage.segments.zeros_ahead import ZerosPolicy

if TYPE_CHECKING:
    from headrace.storage.segments.index import SparseIndex
    from headrace.storage.segments.segment import Segment

__all__ = ["DataFile", "Files", "IndexCache"]

DEFAULT_ZEROS = ZerosPolicy()


class DataFile:
    """One file that readers pin while they use it. Only `Files` touches its fields."""

    __slots__ = ("fd", "gone", "path", "pins", "writable")

    def __init__(self, path: Path, *, writable: bool = False) -> None:
        self.path = path
        self.writable = writable
        self.fd = -1
        self.pins = 0
        self.gone = False  # unlinked: close as soon as nobody reads it


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
            self._bytes += index.size_bytes - self._kept.pop(segment, 0)
            self._kept[segment] = index.size_bytes
            while self._bytes > self._limit_bytes and len(self._kept) > 1:
                oldest, size = self._kept.popitem(last=False)
                oldest.index = None
                self._bytes -= size

    def drop(self, segment: "Segment") -> None:
        """Forgets a segment that is no longer part of a log."""
        with self._lock:
            self._bytes -= self._kept.pop(segment, 0)
            segment.index = None


class Files:
    """Opens files on demand and keeps at most `limit` descriptors of files nobody uses.

    A pinned file stays open, and readable, even when it is unlinked meanwhile; so
    the number of descriptors is at most `limit` plus the readers at that moment.
    Safe on any thread.
    """

    def __init__(
        self,
        disk: Disk,
        *,
        limit: int = 512,
        index_cache_bytes: int = 32 * 1024 * 1024,
        on_sync: Callable[[float], None] | None = None,
        zeros: ZerosPolicy | None = DEFAULT_ZEROS,
    ) -> None:
        """`on_sync` is told, on the thread that synced, how many seconds each commit's sync took.

        `zeros`: which appends write zeros ahead of the next; None: none do.
        """
        self.disk = disk
        self.on_sync = on_sync
        self.zeros = zeros
        self.indexes = IndexCache(index_cache_bytes)
        self._limit = limit
        self._idle: OrderedDict[DataFile, None] = OrderedDict()
        self._lock = threading.Lock()

    def pin(self, file: DataFile) -> int:
        """The file's descriptor, open until the matching `unpin`; FileNotFoundError if it is gone."""
        with self._lock:
            if file.fd < 0:
                file.fd = self.disk.open(file.path, write=file.writable)
            elif file.pins == 0:
                self._idle.pop(file, None)
            file.pins += 1
            return file.fd

    def adopt(self, file: DataFile, fd: int) -> None:
        """Takes over a descriptor that the caller opened, unpinned."""
        with self._lock:
            file.fd = fd
            self._idle[file] = None
            self._close_surplus()

    def unpin(self, file: DataFile) -> None:
        with self._lock:
            file.pins -= 1
            if file.pins == 0:
                self._idle[file] = None
                if file.gone:
                    self._close(file)
                self._close_surplus()

    def forget(self, file: DataFile) -> None:
        """Closes the file once nobody has it pinned."""
        with self._lock:
            file.gone = True
            if file.pins == 0:
                self._close(file)

    def close(self) -> None:
        """Closes what nobody has pinned; a file still pinned closes with its last reader."""
        with self._lock:
            for file in list(self._idle):
                self._close(file)
            self._limit = 0

    def _close_surplus(self) -> None:
        while len(self._idle) > self._limit:
            self._close(next(iter(self._idle)))

    def _close(self, file: DataFile) -> None:
        self._idle.pop(file, None)
        if file.fd >= 0:
            # A failed close of a synced or a read-only file loses nothing.
            with contextlib.suppress(OSError):
                self.disk.close(file.fd)
            file.fd = -1
