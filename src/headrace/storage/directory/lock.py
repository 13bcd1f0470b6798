"""Who has a data directory: one process at a time."""

import contextlib
import os
from pathlib import Path

from headrace.storage.disk import Disk

__all__ = ["DirectoryLock", "InUse"]


class InUse(Exception):  # noqa: N818 - what is the case
    """Another process has the directory; `holder` is its pid, or "unknown"."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"in use by process {holder}")
        self.holder = holder


class DirectoryLock:
    """Holds the directory from the moment it is made until `release`.

    The directory itself is locked, so that a removed file `lock` lets nobody in; and that
    file, which names the holder, for file systems that do not lock directories.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        """Raises InUse, OSError if the directory cannot be locked."""
        self._disk = disk
        self._path = path
        with contextlib.ExitStack() as undo:
            try:
                self._directory = disk.lock_directory(path)
                undo.callback(disk.close, self._directory)
                self._file = disk.lock(path / "lock")
            except BlockingIOError:
                raise InUse(_holder(disk, path / "lock")) from None
            undo.callback(disk.close, self._file)
            disk.truncate(self._file, 0)
            disk.pwritev(self._file, [f"{os.getpid()}\n".encode()], 0)
            undo.pop_all()

    @property
    def is_reachable(self) -> bool:
        """Whether the directory is still where it was: not removed, moved or replaced by another."""
        return self._disk.is_at(self._directory, self._path)

    def release(self) -> None:
        self._disk.close(self._file)
        self._disk.close(self._directory)


def _holder(disk: Disk, path: Path) -> str:
    try:
        return disk.read_file(path).decode(errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"
