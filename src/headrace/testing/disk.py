"""Disks that crash, fail and fill up, for tests of anything that promises durability.

`SimulatedDisk` keeps files in memory and, beside what a process sees, what would
be left after a power cut: bytes become durable with a sync of their file, names
with a sync of their directory. Everything else may be lost, in any combination.
"""

import errno
import itertools
import os
import random
from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Self

from headrace.storage.disk import Disk, Readable

__all__ = ["Crash", "SimulatedDisk"]


class Crash(BaseException):
    """The machine stopped. Not an Exception: nothing in the code under test may catch it."""


class _File:
    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)  # what processes see
        self.durable = bytearray(data)  # what a power cut leaves
        self.pending: list[tuple[int, bytes | None]] = []  # writes (position, bytes), cuts (size, None)
        self.locked = False

    def apply(self, change: tuple[int, bytes | None], target: bytearray) -> None:
        position, data = change
        if data is None:
            del target[position:]
            target.extend(bytes(position - len(target)))
        else:
            target.extend(bytes(max(0, position - len(target))))
            target[position : position + len(data)] = data


class _Directory:
    def __init__(self) -> None:
        self.entries: dict[str, _File | _Directory] = {}
        self.durable: dict[str, _File | _Directory] = {}
        self.pending: list[Callable[[dict[str, _File | _Directory]], None]] = []
        self.locked = False

    def change(self, operation: Callable[[dict[str, "_File | _Directory"]], None]) -> None:
        operation(self.entries)
        self.pending.append(operation)


class SimulatedDisk(Disk):
    """A disk in memory that can stop at any step and lose what was not synced.

    `steps` counts everything that changes the disk. Set `crash_at` to a step to
    stop there: that step happens in part or not at all, and every later call
    raises `Crash`. `after_power_cut` and `after_kill` give the disk as it is found afterwards.
    Steps in `failing_steps` fail with an input/output error instead, and nothing is
    changed by them. Set `failing_syncs` to make that many syncs fail, with the bytes lost as Linux
    loses them: still readable until the restart, never written. Set
    `capacity_bytes` to let space run out. `short_writes` makes writes take fewer
    bytes than given. One thread at a time, as tests are.
    """

    def __init__(self) -> None:
        self._root = _Directory()
        self._open: dict[int, _File] = {}
        self._open_directories: dict[int, _Directory] = {}
        self._numbers = itertools.count(1000)
        self.steps = 0
        self.log: list[str] = []
        self.crash_at: int | None = None
        self.failing_steps: Container[int] = ()
        self.failing_syncs = 0
        self.sync_errno = errno.EIO
        self.capacity_bytes: int | None = None
        self.short_writes: random.Random | None = None

    # -- faults

    def _step(self, what: str) -> None:
        if self.crash_at is not None and self.steps >= self.crash_at:
            raise Crash(f"at step {self.steps}: {what}")
        failing = self.steps in self.failing_steps
        self.steps += 1
        self.log.append(what)
        if failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def after_power_cut(self, rng: random.Random | None = None) -> Self:
        """What a power cut leaves: what was synced, and of the rest an arbitrary part (`rng`) or none."""
        disk = type(self)()
        disk._root = _survivor(self._root, rng)
        return disk

    def after_kill(self) -> Self:
        """What `kill -9` leaves: all that was written, synced or not."""
        disk = type(self)()
        disk._root = self._root
        for file in _files(self._root):
            file.locked = False
        for directory in _directories(self._root):
            directory.locked = False
        return disk

    def used_bytes(self) -> int:
        return sum(len(file.data) for file in _files(self._root))

    # -- finding

    def _directory(self, path: Path) -> _Directory:
        node: _File | _Directory = self._root
        for part in path.parts:
            if not isinstance(node, _Directory) or part not in node.entries:
                raise FileNotFoundError(errno.ENOENT, "no such directory", str(path))
            node = node.entries[part]
        if not isinstance(node, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
        return node

    def _file(self, path: Path) -> _File:
        node = self._directory(path.parent).entries.get(path.name)
        if not isinstance(node, _File):
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return node

    # -- files

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        del write
        if create:
            parent = self._directory(path.parent)
            if path.name in parent.entries:
                raise FileExistsError(errno.EEXIST, "file exists", str(path))
            self._step(f"create {path.name}")
            self._require_space(1)
            file = _File()
            parent.change(lambda entries: entries.__setitem__(path.name, file))
        else:
            file = self._file(path)
        fd = next(self._numbers)
        self._open[fd] = file
        return fd

    def close(self, fd: int) -> None:
        opened = self._open_directories if fd in self._open_directories else self._open
        opened.pop(fd).locked = False

    def pwritev(self, fd: int, buffers: Sequence[Readable], position: int) -> int:
        file, data = self._open[fd], b"".join(bytes(buffer) for buffer in buffers)
        if self.short_writes is not None and len(data) > 1:
            data = data[: self.short_writes.randint(1, len(data))]
        if self.capacity_bytes is not None:
            room = self.capacity_bytes - self.used_bytes() + max(0, len(file.data) - position)
            data = data[: max(0, room)]
            self._require_space(0 if data else 1)
        change = (position, data)
        if self.crash_at is not None and self.steps == self.crash_at:
            file.pending.append(change)  # under way when the power went
            file.apply(change, file.data)
        self._step(f"write {len(data)} at {position}")
        file.pending.append(change)
        file.apply(change, file.data)
        return len(data)

    def _require_space(self, size: int) -> None:
        if self.capacity_bytes is not None and size and self.used_bytes() + size > self.capacity_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def pread(self, fd: int, size: int, position: int) -> bytes:
        return bytes(self._open[fd].data[position : position + size])

    def pread_into(self, fd: int, buffer: bytearray | memoryview, position: int) -> int | None:
        data = self.pread(fd, len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def size(self, fd: int) -> int:
        return len(self._open[fd].data)

    def sync(self, fd: int) -> None:
        file = self._open[fd]
        self._step("sync")
        if self.failing_syncs > 0:
            self.failing_syncs -= 1
            file.pending.clear()  # the kernel marks the pages clean and forgets them
            raise OSError(self.sync_errno, os.strerror(self.sync_errno))
        for change in file.pending:
            file.apply(change, file.durable)
        file.pending.clear()

    def truncate(self, fd: int, size: int) -> None:
        self._step(f"truncate to {size}")
        file = self._open[fd]
        file.pending.append((size, None))
        file.apply((size, None), file.data)

    def read_file(self, path: Path) -> bytes:
        return bytes(self._file(path).data)

    def lock(self, path: Path) -> int:
        if not self.exists(path):
            self.close(self.open(path, create=True))
        if self._file(path).locked:
            raise BlockingIOError(errno.EAGAIN, "locked", str(path))
        fd = self.open(path)
        self._open[fd].locked = True
        return fd

    def lock_directory(self, path: Path) -> int:
        directory = self._directory(path)
        if directory.locked:
            raise BlockingIOError(errno.EAGAIN, "locked", str(path))
        directory.locked = True
        fd = next(self._numbers)
        self._open_directories[fd] = directory
        return fd

    def is_at(self, fd: int, path: Path) -> bool:
        opened = self._open.get(fd) or self._open_directories[fd]
        try:
            return self._directory(path.parent).entries.get(path.name) is opened
        except (FileNotFoundError, NotADirectoryError):
            return False

    # -- names

    def sync_directory(self, path: Path) -> None:
        directory = self._directory(path)
        self._step(f"sync directory {path.name}")
        if self.failing_syncs > 0:
            self.failing_syncs -= 1
            raise OSError(self.sync_errno, os.strerror(self.sync_errno))
        for operation in directory.pending:
            operation(directory.durable)
        directory.pending.clear()

    def rename(self, source: Path, target: Path) -> None:
        if source.parent != target.parent:
            raise ValueError("only renames within a directory are simulated")
        parent = self._directory(source.parent)
        if source.name not in parent.entries:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(source))
        self._step(f"rename {source.name} to {target.name}")
        node = parent.entries[source.name]

        def operation(entries: dict[str, _File | _Directory]) -> None:
            entries.pop(source.name, None)
            entries[target.name] = node

        parent.change(operation)

    def unlink(self, path: Path) -> None:
        self._file(path)
        self._step(f"unlink {path.name}")
        self._directory(path.parent).change(_unlinking(path.name))

    def list(self, path: Path) -> dict[str, int]:
        entries = self._directory(path).entries
        return {name: len(node.data) if isinstance(node, _File) else 0 for name, node in entries.items()}

    def exists(self, path: Path) -> bool:
        if not path.name:
            return True
        try:
            return path.name in self._directory(path.parent).entries
        except FileNotFoundError:
            return False

    def mkdir(self, path: Path) -> None:
        node = self._root
        for part in path.parts:
            if part not in node.entries:
                self._step(f"mkdir {part}")
                fresh = _Directory()
                node.change(_linking(part, fresh))
            child = node.entries[part]
            if not isinstance(child, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            node = child

    def remove_tree(self, path: Path) -> None:
        directory = self._directory(path)
        for name, node in list(directory.entries.items()):
            if isinstance(node, _Directory):
                self.remove_tree(path / name)
            else:
                self.unlink(path / name)
        self._step(f"rmdir {path.name}")
        self._directory(path.parent).change(_unlinking(path.name))

    # -- tampering

    def flip(self, path: Path, position: int, mask: int = 1) -> None:
        """Changes bits on the platter, behind everybody's back."""
        file = self._file(path)
        if file.pending:
            raise ValueError("bytes that are not synced are not on the platter")
        for data in (file.data, file.durable):
            data[position] ^= mask

    def cut(self, path: Path, size: int) -> None:
        """Shortens a file behind everybody's back."""
        file = self._file(path)
        del file.data[size:]
        del file.durable[size:]


def _linking(name: str, node: _File | _Directory) -> Callable[[dict[str, _File | _Directory]], None]:
    return lambda entries: entries.__setitem__(name, node)


def _unlinking(name: str) -> Callable[[dict[str, _File | _Directory]], None]:
    def operation(entries: dict[str, _File | _Directory]) -> None:
        entries.pop(name, None)

    return operation


def _files(directory: _Directory) -> Iterable[_File]:
    for node in directory.entries.values():
        if isinstance(node, _Directory):
            yield from _files(node)
        else:
            yield node


def _directories(directory: _Directory) -> Iterable[_Directory]:
    yield directory
    for node in directory.entries.values():
        if isinstance(node, _Directory):
            yield from _directories(node)


def _survivor(directory: _Directory, rng: random.Random | None) -> _Directory:
    entries = dict(directory.durable)
    kept = rng.randint(0, len(directory.pending)) if rng is not None else 0
    for operation in directory.pending[:kept]:  # a journal keeps the order of names
        operation(entries)
    after = _Directory()
    for name, node in entries.items():
        survivor = _survivor(node, rng) if isinstance(node, _Directory) else _surviving_file(node, rng)
        after.entries[name] = after.durable[name] = survivor
    return after


def _surviving_file(file: _File, rng: random.Random | None) -> _File:
    data = bytearray(file.durable)
    for position, written in file.pending if rng is not None else ():
        assert rng is not None
        fate = rng.choice(("lost", "whole", "torn"))
        if fate == "whole":
            file.apply((position, written), data)
        elif fate == "torn" and written:
            file.apply((position, written[: rng.randrange(len(written))]), data)
    return _File(bytes(data))
