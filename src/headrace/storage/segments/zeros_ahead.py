"""Zeros written behind the end of the active segment, so that small appends sync faster.

An append that makes a file longer needs, besides its bytes, a commit of the file
system's journal before it is durable; one that overwrites blocks which were
written before needs its bytes only. So behind an append that made the file longer,
and is small as the one before it was, zeros are written, once those who wait for it
were told; the next ones go in their place.

The zeros are no part of the log: the segment's `size_bytes` does not count them,
nobody reads them, a roll and a clean close cut them off, and so does recovery. A
disk without room for them gets none. What a batch says of itself is never all
zeros, so the end of the log can always be told from them.
"""

from typing import NamedTuple

from headrace.storage.disk import Disk, sync_file, write_all

__all__ = ["ZerosAhead", "ZerosPolicy", "end_of_bytes"]

_ZEROS = bytes(64 * 1024)
_CHUNK_BYTES = 1024 * 1024


class ZerosPolicy(NamedTuple):
    """When zeros are written, and how many: never more than the segment holds of records."""

    small_bytes: int = 16 * 1024  # appends below this size are worth it; larger ones would be written twice
    least_bytes: int = 4096  # a shorter segment gets none
    most_bytes: int = 1024 * 1024

    def zeros_behind(self, end: int, *, appended_bytes: int, segment_bytes: int) -> int:
        """How many zeros to write behind `end` after an append that made the file longer."""
        if appended_bytes >= self.small_bytes or end < self.least_bytes:
            return 0
        return max(0, min(end, self.most_bytes, segment_bytes - end))


class ZerosAhead:
    """The zeros of one active segment. One thread at a time: the writer's."""

    __slots__ = ("_appended_bytes", "_disk", "_due_bytes", "_file_bytes", "_policy")

    def __init__(self, disk: Disk, policy: ZerosPolicy | None, size_bytes: int) -> None:
        """`size_bytes`: of the file, which has no zeros yet. No policy: there never are any."""
        self._disk = disk
        self._policy = policy
        self._file_bytes = size_bytes
        self._appended_bytes = 0
        self._due_bytes = 0

    def note_append(self, end: int, *, appended_bytes: int, segment_bytes: int) -> None:
        """An append ended at `end`: are zeros worth it there?"""
        larger = max(appended_bytes, self._appended_bytes)
        self._appended_bytes = appended_bytes
        self._due_bytes = 0
        if end <= self._file_bytes:
            return
        self._file_bytes = end
        if self._policy is not None:
            self._due_bytes = self._policy.zeros_behind(
                end, appended_bytes=larger, segment_bytes=segment_bytes
            )

    @property
    def are_due(self) -> bool:
        """Whether the last append is one to `write` zeros behind."""
        return self._due_bytes > 0

    def write(self, fd: int, end: int) -> None:
        """Writes the zeros that are due behind the last append, which ended at `end`, and syncs them.

        A disk that refuses them is left as it would be without: this segment gets no
        more. OSError only if that fails too, or the sync.
        """
        size, self._due_bytes = self._due_bytes, 0
        whole, rest = divmod(size, len(_ZEROS))
        try:
            self._file_bytes = write_all(self._disk, fd, [_ZEROS] * whole + [_ZEROS[:rest]], end)
        except OSError:
            self._policy = None
            self._disk.truncate(fd, end)
        sync_file(self._disk, fd)

    def cut(self, fd: int, end: int) -> None:
        """Ends the file at `end`, durably; nothing to do where there are no zeros."""
        if self._file_bytes > end:
            self._disk.truncate(fd, end)
            sync_file(self._disk, fd)
            self._file_bytes = end


def end_of_bytes(disk: Disk, fd: int, start: int, end: int) -> int:
    """The position behind the last byte from `start` to `end` that is not zero; `start` if all are."""
    while end > start:
        at = max(start, end - _CHUNK_BYTES)
        found = len(disk.pread(fd, end - at, at).rstrip(b"\0"))
        if found:
            return at + found
        end = at
    return start
