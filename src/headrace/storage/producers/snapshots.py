"""What is synced of producers and transactions, and its snapshots on disk.

Snapshot format, big-endian: "HRPS", version uint16, bytes of the table uint32,
bytes of the aborted transactions uint32, the two, CRC-32C of everything before.

Three files. `producers` is durable, replaced whole whenever a segment is sealed.
`producers-0` and `producers-1` go with the checkpoints: written in turn, in
place and not synced, so that a crash spoils one of them at most before the other
is older than `producers`. The newest whose checksum holds, and that does not
speak of more than the log has, is believed; what the log has behind it is
replayed. Losing all of them costs time only.
"""

import contextlib
import logging
import struct
from pathlib import Path

from crc32c import crc32c

from headrace.errors import CorruptionError
from headrace.storage.disk import Disk, write_all
from headrace.storage.producers.aborted_transactions import AbortedIndex
from headrace.storage.producers.table import AppendedMarker, ProducerBatch, ProducerTable

__all__ = ["ProducerSnapshots", "SyncedProducers"]

logger = logging.getLogger("headrace.storage")

_HEAD = struct.Struct(">4sHII")
_VERSION = 1
_SEALED = "producers"
_IN_TURN = ("producers-0", "producers-1")
_WRITTEN_PER_SNAPSHOT = 4


class SyncedProducers:
    """Producers, open and aborted transactions of everything that is synced.

    The committing thread changes it. `last_stable_offset` and `aborted` may be
    read from any thread: the offset moves only after the transactions below it
    are among the aborted ones, if they belong there.
    """

    def __init__(self, table: ProducerTable | None = None, aborted: AbortedIndex | None = None) -> None:
        self.table = table if table is not None else ProducerTable()
        self.aborted = aborted if aborted is not None else AbortedIndex()
        self.last_stable_offset = self.table.last_stable_offset()

    def apply(self, entry: ProducerBatch | AppendedMarker, now_ms: int = 0) -> None:
        """Takes in a batch or a marker; batches come in the order of their offsets."""
        if isinstance(entry, ProducerBatch):
            self.table.add(entry, now_ms)
            return
        aborted = self.table.end(entry, now_ms)
        if aborted is not None:
            self.aborted.add(aborted, self.table.last_stable_offset())

    def publish(self, next_offset: int) -> None:
        """Everything up to `next_offset` was taken in; readers may see it."""
        self.table.next_offset = next_offset
        self.last_stable_offset = self.table.last_stable_offset()

    def encode(self) -> bytes:
        table, aborted = self.table.encode(), self.aborted.encode()
        body = _HEAD.pack(b"HRPS", _VERSION, len(table), len(aborted)) + table + aborted
        return body + crc32c(body).to_bytes(4, "big")

    @classmethod
    def decode(cls, data: bytes) -> "SyncedProducers":
        """Raises CorruptionError unless every byte is as it was written; what is behind them is ignored."""
        try:
            magic, version, table, aborted = _HEAD.unpack_from(data)
        except struct.error as error:
            raise CorruptionError(f"a snapshot of producers: {error}") from error
        middle = _HEAD.size + table
        end = middle + aborted
        whole = len(data) >= end + 4 and crc32c(data[:end]).to_bytes(4, "big") == data[end : end + 4]
        if magic != b"HRPS" or version != _VERSION or not whole:
            raise CorruptionError("a snapshot of producers fails its checksum")
        return cls(ProducerTable.decode(data[_HEAD.size : middle]), AbortedIndex(data[middle:end]))


class ProducerSnapshots:
    """The snapshot files of one partition. One thread at a time."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._turn = 0
        self._written = 0  # bytes of the partition when the last one was taken,
        self._size = 0  # and its own size
        self.is_damaged = False  # the durable one

    def load(self, next_offset: int) -> SyncedProducers:
        """The newest believable snapshot of a log that ends at `next_offset`; an empty one if there is none.

        One that speaks of more is of a log that is gone; it is removed, so that
        it cannot be taken for one of the log that now grows.
        """
        best = SyncedProducers()
        removed = False
        for name in (_SEALED, *_IN_TURN):
            found = self._read(name)
            if found is None:
                continue
            if found.table.next_offset > next_offset:
                self._disk.unlink(self._directory / name)
                removed = True
            elif found.table.next_offset > best.table.next_offset:
                best = found
                self._turn = 1 if name == _IN_TURN[0] else 0
        if removed:
            self._disk.sync_directory(self._directory)
        return best

    def _read(self, name: str) -> SyncedProducers | None:
        with contextlib.suppress(FileNotFoundError):
            try:
                return SyncedProducers.decode(self._disk.read_file(self._directory / name))
            except CorruptionError as error:
                self.is_damaged = self.is_damaged or name == _SEALED
                # A crash in the midst of writing one of the others is nothing to be told of.
                level = logging.WARNING if name == _SEALED else logging.INFO
                logger.log(level, "%s: %s; it is made again from the log", self._directory / name, error)
        return None

    def seal(self, producers: SyncedProducers) -> None:
        """Replaces the durable one. OSError if the disk refuses; the old one then stays."""
        self._disk.replace_file(self._directory / _SEALED, producers.encode())

    def save(self, producers: SyncedProducers, written_bytes: int, *, durable: bool) -> None:
        """Goes with a checkpoint; unless durable it is put off while it would cost more than it saves."""
        if not durable and 0 <= written_bytes - self._written < _WRITTEN_PER_SNAPSHOT * self._size:
            return
        data = producers.encode()
        path = self._directory / _IN_TURN[self._turn]
        self._turn = 1 - self._turn
        try:
            fd = self._disk.open(path, write=True)
        except FileNotFoundError:
            fd = self._disk.open(path, write=True, create=True)
        try:
            write_all(self._disk, fd, [data], 0)
            if durable:
                self._disk.sync(fd)
        finally:
            self._disk.close(fd)
        self._written, self._size = written_bytes, len(data)
