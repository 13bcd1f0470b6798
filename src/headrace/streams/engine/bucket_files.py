"""A bucket's log in files, one per entry, in a folder that all workers see.

A file is: 8 bytes that say what it is; size and checksum of the head; the head as JSON, with
size and checksum of every blob; the blobs. It is written beside and renamed, so it is whole
when it is there; what a crash of the machine cut off, or a disk changed, its checksums tell.
It is not synced: after such a crash Spark's own files, which name the batches that are done,
are in no better state, and a checkpoint that cannot be used is built anew from the log.
"""

import json
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from crc32c import crc32c

from headrace.errors import CorruptionError, DiskError
from headrace.steps import reached
from headrace.streams.engine.bucket_log import Head

__all__ = ["BucketFiles"]

_MAGIC = b"hr.state"
_START = struct.Struct("<8sII")
_BUFFER_BYTES = 4096


class BucketFiles:
    """The entries of one bucket below `folder`; several attempts may write at the same time."""

    def __init__(self, folder: Path, bucket: int) -> None:
        self._folder = folder / str(bucket)

    def head(self, number: int) -> Head:
        with self._open(number) as file:
            return self._head(file, number)[0]

    def entry(self, number: int) -> tuple[Head, list[bytes]]:
        with self._open(number) as file:
            head, described = self._head(file, number)
            blobs = [file.read(size) for size, _ in described]
        for blob, (size, checksum) in zip(blobs, described, strict=True):
            if len(blob) != size or crc32c(blob) != checksum:
                raise self._damaged(number)
        return head, blobs

    def put(self, head: Head, blobs: Sequence[bytes]) -> None:
        fields = {**asdict(head), "blobs": [(len(blob), crc32c(blob)) for blob in blobs]}
        described = json.dumps(fields, separators=(",", ":")).encode()
        start = _START.pack(_MAGIC, len(described), crc32c(described))
        path = self._path(head.number)
        beside = path.with_name(f"{path.name}.{head.token}")
        with _explained(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                with beside.open("xb", buffering=0) as file:
                    _write_all(file, [start, described, *blobs])
            except OSError:
                beside.unlink(missing_ok=True)  # a half would keep a full disk full
                raise
            reached("state written")
            beside.replace(path)
        reached("state renamed")

    def remove_before(self, number: int) -> None:
        for path in self._folder.iterdir():
            if int(path.name.partition(".")[0]) < number:
                path.unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:012}"

    @contextmanager
    def _open(self, number: int) -> Iterator[IO[bytes]]:
        try:
            file = self._path(number).open("rb", buffering=_BUFFER_BYTES)
        except FileNotFoundError:
            raise CorruptionError(
                f"the state behind batch {number} is not there; rebuild the views from the log",
                path=self._path(number),
            ) from None
        with file:
            yield file

    def _head(self, file: IO[bytes], number: int) -> tuple[Head, list[tuple[int, int]]]:
        start = file.read(_START.size)
        if len(start) < _START.size:
            raise self._damaged(number)
        magic, size, checksum = _START.unpack(start)
        described = file.read(size) if magic == _MAGIC else b""
        if len(described) != size or crc32c(described) != checksum:
            raise self._damaged(number)
        fields: dict[str, Any] = json.loads(described)
        blobs = fields.pop("blobs")
        return Head(**fields), blobs

    def _damaged(self, number: int) -> CorruptionError:
        return CorruptionError(
            f"the state behind batch {number} is not what was written; rebuild the views from the log",
            path=self._path(number),
        )


def _write_all(file: IO[bytes], parts: Sequence[bytes]) -> None:
    for part in parts:
        left = memoryview(part)
        while left:
            left = left[file.write(left) :]


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskError.at(path, error) from error
