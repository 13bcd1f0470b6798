"""A bucket's log in files, one per entry, in a folder that all workers see.

A file is an entry (`entries`). It is written beside and renamed, so it is whole
when it is there; what a crash of the machine cut off, or a disk changed, its checksums tell.
It is not synced: after such a crash Spark's own files, which name the batches that are done,
are in no better state, and a checkpoint that cannot be used is rebuilt from the log.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from crc32c import crc32c

from headrace.crash_points import reached
from headrace.errors import CorruptionError, DiskError
from headrace.streams.engine.state.entries import (
    START_BYTES,
    decode_head,
    encode_entry,
    head_bytes,
    whose,
)
from headrace.streams.engine.state.log import Head

__all__ = ["BucketFiles", "StateInFolders"]

_BUFFER_BYTES = 4096


class BucketFiles:
    """The entries of one bucket of a query below `folder`; several attempts may write at the same time.

    Without a query they can be read, whosever they are, and not be written.
    """

    receipt = None

    def __init__(self, folder: Path, bucket: int, query: str | None) -> None:
        self._folder = folder / str(bucket)
        self._query = query

    @property
    def query(self) -> str:
        assert self._query is not None
        return self._query

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
        parts = encode_entry(head, blobs)
        path = self._path(head.number)
        beside = path.with_name(f"{path.name}.{head.token}")
        with _explained(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            try:
                with beside.open("xb", buffering=0) as file:
                    _write_all(file, parts)
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
                f"the state behind batch {number} is not there; rebuild the views from the log (headrace run "
                "--rebuild). On a cluster, see first that all executors share the --data folder",
                path=self._path(number),
            ) from None
        with file:
            yield file

    def _head(self, file: IO[bytes], number: int) -> tuple[Head, Sequence[tuple[int, int]]]:
        try:
            size, checksum = head_bytes(file.read(START_BYTES))
            return decode_head(file.read(size), size, checksum, self._query)
        except LookupError as owner:
            raise CorruptionError(
                whose(number, str(owner.args[0]), self.query), path=self._path(number)
            ) from None
        except ValueError:
            raise self._damaged(number) from None

    def _damaged(self, number: int) -> CorruptionError:
        return CorruptionError(
            f"the state behind batch {number} is not what was written; rebuild the views from the log "
            "(headrace run --rebuild)",
            path=self._path(number),
        )


@dataclass(frozen=True, slots=True)
class StateInFolders:
    """The state of a query in folders that all its workers see, one for each stage."""

    query: str
    folders: tuple[Path, ...]

    def logs(self, stage: int, batch: int) -> Callable[[int], BucketFiles]:
        """The same for every batch: a later attempt's entry takes the place of an earlier one's."""
        del batch
        folder = self.folders[stage]
        return lambda bucket: BucketFiles(folder, bucket, self.query)


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
