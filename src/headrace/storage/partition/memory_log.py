"""Partitions in memory: the same log on a disk that is none.

The log itself is `PartitionLog` over a `MemoryDisk`, so that appending, reading,
rolling, retention and compaction cannot differ. Two things are added. Its size
is bounded at every commit, not at the next round of retention. And its offsets
are never given twice, although its records are gone after a restart: the real
disk holds an offset that was not reached, a million ahead, where the next start
begins; after a clean stop, the exact one. So a consumer's committed offset never
points at another record; it is out of range, and the consumer is told.
"""

import contextlib
import dataclasses
import threading
from pathlib import Path

from headrace.errors import DiskError
from headrace.storage.disk import Disk, MemoryDisk, is_full
from headrace.storage.partition.log import PartitionLog
from headrace.storage.partition.log_start import read_log_start, write_log_start
from headrace.storage.segments import Files
from headrace.storage.topic_config import TopicConfig

__all__ = ["DEFAULT_BOUND_BYTES", "RESERVED_OFFSETS", "MemoryLog", "open_log"]

DEFAULT_BOUND_BYTES = 64 * 1024 * 1024
RESERVED_OFFSETS = 1_000_000
_SEGMENTS_IN_BOUND = 8
_LEAST_SEGMENT_BYTES = 1024


def open_log(path: Path, config: TopicConfig, *, files: Files) -> PartitionLog:
    """The partition in `path`: on disk or in memory, as its topic says."""
    if config.is_in_memory:
        return MemoryLog.open_empty(path, config, disk=files.disk)
    return PartitionLog.open(path, config, files=files)


class MemoryLog(PartitionLog):
    """A partition whose records are gone on restart, and whose offsets go on.

    Holds at most `retention.bytes` of records (64 MiB if that is not set), or one
    batch if that is larger: the oldest segments go first. Threads as for
    `PartitionLog`; `commit` may also run on the event loop while `commit_waits` is false.
    """

    _disk: Disk
    _reserved: int
    _reserving: threading.Lock

    @classmethod
    def open_empty(cls, path: Path, config: TopicConfig, *, disk: Disk) -> "MemoryLog":
        """An empty log that begins above every offset ever given; `path` is a directory on `disk`."""
        disk.mkdir(path)
        disk.sync_directory(path.parent)
        memory = MemoryDisk()
        start = read_log_start(disk, path / "log-start")
        write_log_start(memory, path / "log-start", start)
        log = cls.open(path, _bounded(config), files=Files(memory, zeros=None))
        assert isinstance(log, MemoryLog)
        log._disk, log._reserving = disk, threading.Lock()
        log._reserved = start
        log._reserve()
        return log

    @property
    def commit_waits(self) -> bool:
        """Whether the next commit has to reserve offsets on the disk first: once in a million."""
        return self.end_offset > self._reserved

    def configure(self, config: TopicConfig) -> None:
        super().configure(_bounded(config))

    def commit(self) -> int:
        """As in `PartitionLog`, without waiting for a disk; then drops what exceeds the bound."""
        if self.commit_waits:
            try:
                self._reserve()
            except OSError as error:
                raise self._refuse(error) from error
        reached = super().commit()
        self._drop_surplus()
        return reached

    def _reserve(self) -> None:
        """Makes sure that no later log gives an offset that this one may give."""
        with self._reserving:
            wanted = max(self.end_offset, self._reserved) + RESERVED_OFFSETS
            write_log_start(self._disk, self.path / "log-start", wanted)
            self._reserved = wanted

    def _drop_surplus(self) -> None:
        surplus = self.size_bytes - self._config.retention_bytes
        # If retention or compaction is at work now, the next commit sees to it.
        if surplus <= 0 or not self._maintenance_lock.acquire(blocking=False):
            return
        try:
            start = self.start_offset
            for segment, following in zip(self._reader.segments, self._reader.segments[1:], strict=False):
                if surplus <= 0:
                    break
                surplus -= segment.size_bytes
                start = following.base_offset
            if start > self.start_offset:
                self._move_start(start)
        finally:
            self._maintenance_lock.release()

    def apply_retention(self, now_ms: int) -> list[Path]:
        """As in `PartitionLog`; also reserves offsets ahead, so that commits need not."""
        if self.end_offset > self._reserved - RESERVED_OFFSETS // 2 and self.failed is None:
            try:
                self._reserve()
            except OSError as error:
                raise DiskError(f"{self.path}: no offsets reserved: {error}", full=is_full(error)) from error
        return super().apply_retention(now_ms)

    def close(self) -> None:
        """Notes where the next log begins: right after the last record, since the stop is a clean one."""
        closed = self.failed is not None
        super().close()
        if not closed:
            with contextlib.suppress(OSError):  # it then begins at the end of the reserve
                write_log_start(self._disk, self.path / "log-start", self.end_offset)


def _bounded(config: TopicConfig) -> TopicConfig:
    """What holds for a log in memory: always a bound, and segments small enough to keep to it."""
    bound = config.retention_bytes if config.retention_bytes >= 0 else DEFAULT_BOUND_BYTES
    segment_bytes = min(config.segment_bytes, max(bound // _SEGMENTS_IN_BOUND, _LEAST_SEGMENT_BYTES))
    return dataclasses.replace(config, retention_bytes=bound, segment_bytes=segment_bytes)
