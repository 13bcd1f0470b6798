"""A file system in memory, for partitions that are kept there."""

import errno
import itertools
import os
from collections.abc import Sequence
from pathlib import Path

from headrace.storage.disk.disk import Disk, Readable

__all__ = ["MemoryDisk"]


class MemoryDisk(Disk):
    """Files as byte arrays; syncing does nothing, since nothing outlives the process.

    A file that is unlinked stays readable for those who have it open. Every
    operation is one call into an array, so any thread may read while one writes.
    """

    def __init__(self) -> None:
        self._files: dict[Path, bytearray] = {}
        self._open: dict[int, bytearray] = {}
        self._numbers = itertools.count(1)

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        del write
        if create:
            if path in self._files:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            self._files[path] = bytearray()
        fd = next(self._numbers)
        self._open[fd] = self._file(path)
        return fd

    def _file(self, path: Path) -> bytearray:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None

    def close(self, fd: int) -> None:
        del self._open[fd]

    def pwritev(self, fd: int, buffers: Sequence[Readable], position: int) -> int:
        data, end = self._open[fd], position
        for buffer in buffers:
            if end == len(data):
                data.extend(buffer)
            else:
                data[end : end + len(buffer)] = buffer
            end += len(buffer)
        return end - position

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return bytes(self._open[fd][position : position + size])

    def pread_nowait(self, fd: int, size: int, position: int) -> bytes | bytearray | None:
        return self._open[fd][position : position + size]

    def pread_into(self, fd: int, buffer: bytearray | memoryview, position: int) -> int | None:
        data = self._open[fd][position : position + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def size(self, fd: int) -> int:
        return len(self._open[fd])

    def sync(self, fd: int) -> None:
        """Nothing to do."""

    def sync_directory(self, path: Path) -> None:
        """Nothing to do."""

    def truncate(self, fd: int, size: int) -> None:
        del self._open[fd][size:]

    def rename(self, source: Path, target: Path) -> None:
        self._files[target] = self._files.pop(source)

    def unlink(self, path: Path) -> None:
        self._file(path)
        del self._files[path]

    def list(self, path: Path) -> dict[str, int]:
        return {file.name: len(data) for file, data in self._files.copy().items() if file.parent == path}

    def exists(self, path: Path) -> bool:
        return path in self._files

    def is_at(self, fd: int, path: Path) -> bool:
        return self._files.get(path) is self._open[fd]

    def mkdir(self, path: Path) -> None:
        """Nothing to do: a directory is there when a file is in it."""

    def remove_tree(self, path: Path) -> None:
        for file in [file for file in self._files if path in file.parents]:
            del self._files[file]

    def read_file(self, path: Path) -> bytes:
        return bytes(self._file(path))

    def replace_file(self, path: Path, data: bytes) -> None:
        self._files[path] = bytearray(data)
