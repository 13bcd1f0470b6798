"""The one door to the file system, so that a test can put a failing disk behind it."""

import contextlib
import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["Disk", "SyncFailed", "is_full", "make_directory", "sync_file", "write_all"]

_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_IOV_MAX = os.sysconf("SC_IOV_MAX") if "SC_IOV_MAX" in os.sysconf_names else 1024

# What file systems answer that lock files only, such as NFS.
_NO_DIRECTORY_LOCKS = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)

# One call with many megabytes costs several times the processor time of many calls with
# one each (measured on ext4, Linux 6.18); many small buffers still share a call.
_WRITE_BYTES = 256 * 1024

Readable = bytes | bytearray | memoryview


class Disk:
    """The machine's own file system. Stateless, and so safe on any thread.

    Failures surface as OSError; the log decides what they mean.
    """

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        """A descriptor; `create` makes a new file and fails if there is one."""
        flags = os.O_RDWR if write else os.O_RDONLY
        if create:
            flags |= os.O_CREAT | os.O_EXCL
        return os.open(path, flags | os.O_CLOEXEC, 0o640)

    def close(self, fd: int) -> None:
        os.close(fd)

    def pwritev(self, fd: int, buffers: Sequence[Readable], position: int) -> int:
        """Writes some or all of at most IOV_MAX buffers; the number of bytes written."""
        return os.pwritev(fd, buffers, position)

    def pread(self, fd: int, size: int, position: int) -> bytes:
        """Up to `size` bytes; fewer only at the end of the file."""
        return os.pread(fd, size, position)

    def pread_nowait(self, fd: int, size: int, position: int) -> bytes | bytearray | None:
        """What of these bytes is in memory, or None if the disk would have to be asked."""
        buffer = bytearray(size)
        count = self.pread_into(fd, buffer, position)
        if count is None:
            return None
        del buffer[count:]
        return buffer

    def pread_into(self, fd: int, buffer: bytearray | memoryview, position: int) -> int | None:
        """As `pread_nowait`, into memory that is there; how many bytes."""
        try:
            return os.preadv(fd, [buffer], position, _NOWAIT)
        except OSError as error:
            if error.errno == errno.EAGAIN:
                return None
            if error.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
                return os.preadv(fd, [buffer], position)
            raise

    @property
    def reads_plainly(self) -> bool:
        """Whether its descriptors are the system's, and reading them leads past nobody."""
        return type(self).pread_into is Disk.pread_into

    @property
    def commits_plainly(self) -> bool:
        """Whether a write and a sync of its descriptors are the system's own, no matter who calls them."""
        plain = type(self).pwritev is Disk.pwritev and type(self).sync is Disk.sync
        return plain and sys.platform == "linux"

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def sync(self, fd: int) -> None:
        """Returns when the file's bytes and length are on the platter, not in its cache."""
        if sys.platform == "darwin":
            _full_sync(fd)
        else:
            os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        """Makes creations, renames and removals in `path` durable."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if sys.platform == "darwin":
                _full_sync(fd)
            else:
                os.fsync(fd)
        finally:
            os.close(fd)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def rename(self, source: Path, target: Path) -> None:
        """Atomically replaces `target`; not durable until its directory is synced."""
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def list(self, path: Path) -> dict[str, int]:
        """Names in a directory and their sizes, without opening any."""
        sizes = {}
        with os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # removed meanwhile by another thread
                    sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
        return sizes

    def exists(self, path: Path) -> bool:
        return path.exists()

    def mkdir(self, path: Path) -> None:
        """Makes the directory and its parents; no error if it is there."""
        path.mkdir(parents=True, exist_ok=True)

    def remove_tree(self, path: Path) -> None:
        shutil.rmtree(path)

    def read_file(self, path: Path) -> bytes:
        return path.read_bytes()

    def replace_file(self, path: Path, data: bytes) -> None:
        """Puts `data` in place of the file: after a crash the old bytes or the new, never a mixture."""
        draft = path.with_name(path.name + ".tmp")
        with contextlib.suppress(FileNotFoundError):
            self.unlink(draft)
        fd = self.open(draft, write=True, create=True)
        try:
            write_all(self, fd, [data], 0)
            self.sync(fd)
        finally:
            self.close(fd)
        self.rename(draft, path)
        self.sync_directory(path.parent)

    def is_at(self, fd: int, path: Path) -> bool:
        """Whether `path` still leads to what is open here; no if it was removed, moved or replaced."""
        try:
            return os.path.samestat(os.fstat(fd), path.stat())
        except (FileNotFoundError, NotADirectoryError):
            return False

    def lock(self, path: Path) -> int:
        """A descriptor that holds the lock of a file, which is made; BlockingIOError if another has it."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return fd

    def lock_directory(self, path: Path) -> int:
        """As `lock`, of a directory. Where the file system locks none, a descriptor that holds no lock."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_DIRECTORY_LOCKS:
                os.close(fd)
                raise
        return fd


def _full_sync(fd: int) -> None:
    """Syncs on macOS, where fsync alone leaves the bytes in the drive's own cache.

    A file system that has no such call (some on the network) gets an fsync, which is
    all that can be asked of it; any other failure is one, and surfaces.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined, unused-ignore]
    except OSError as error:
        if error.errno not in (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY):
            raise
        os.fsync(fd)


class SyncFailed(OSError):  # noqa: N818 - what happened, not an error of ours
    """A sync failed, for whatever reason: what the kernel kept of the pages cannot be known."""


def is_full(error: OSError) -> bool:
    """Whether a write found no space, which may pass; a sync that found none is worse than that."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT) and not isinstance(error, SyncFailed)


def sync_file(disk: Disk, fd: int, directory: Path | None = None) -> None:
    """Syncs a file, and the directory that names it if given; SyncFailed if either fails."""
    try:
        disk.sync(fd)
        if directory is not None:
            disk.sync_directory(directory)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror) from error


def make_directory(disk: Disk, path: Path) -> None:
    """Makes a directory and those above it that are missing; returns when all of their names are durable."""
    missing = [each for each in (path, *path.parents) if not disk.exists(each)]
    disk.mkdir(path)
    for made in reversed(missing):
        disk.sync_directory(made.parent)


def write_all(disk: Disk, fd: int, buffers: Sequence[Readable], position: int) -> int:
    """Writes every byte, however few the kernel takes at a time; the position after the last."""
    for group, left in _groups(buffers) if len(buffers) != 1 else [(buffers, len(buffers[0]))]:
        while left:
            written = disk.pwritev(fd, group, position)
            if written <= 0:
                raise OSError(errno.EIO, "the disk took no bytes of a write")
            position += written
            left -= written
            if left:
                group = _without(group, written)
    return position


def _groups(buffers: Sequence[Readable]) -> Iterator[tuple[list[Readable], int]]:
    """Buffers to be written in one call each, and how many bytes they are."""
    group: list[Readable] = []
    size = 0
    for buffer in buffers:
        group.append(buffer)
        size += len(buffer)
        if size >= _WRITE_BYTES or len(group) == _IOV_MAX:
            yield group, size
            group, size = [], 0
    if group:
        yield group, size


def _without(buffers: Sequence[Readable], count: int) -> list[Readable]:
    """The buffers minus their first `count` bytes."""
    rest: list[Readable] = []
    for buffer in buffers:
        if count >= len(buffer):
            count -= len(buffer)
        else:
            rest.append(memoryview(buffer)[count:] if count else buffer)
            count = 0
    return rest
