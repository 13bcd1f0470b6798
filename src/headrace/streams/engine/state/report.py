"""What the state of a query takes: rows, bytes and the oldest entry, by operator, input and bucket.

Read from the heads of the newest entries, beside whoever writes them: no state is built, and no
Spark is needed. A file that goes while it is looked at is of an older batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import CorruptionError
from headrace.streams.engine.state.files import BucketFiles
from headrace.streams.engine.state.log import Head

__all__ = ["BucketState", "HeldState", "InputRows", "held_state", "read_buckets"]


@dataclass(frozen=True, slots=True)
class InputRows:
    """Rows of one input of an operator, and the event time of the oldest, where rows have one."""

    rows: int
    oldest_us: int | None


@dataclass(frozen=True, slots=True)
class HeldState:
    """The state of one operator in one bucket; `bytes` is what it takes in the entries that count."""

    bytes: int
    inputs: tuple[InputRows, ...]


@dataclass(frozen=True, slots=True)
class BucketState:
    """The states of one bucket, in the order of their operators, and the bytes of all its files."""

    bucket: int
    batch: int
    disk_bytes: int
    states: tuple[HeldState, ...]


def read_buckets(folder: Path) -> Iterator[BucketState]:
    """The buckets of a query's stage, whose entries lie below the folder; nothing if there are none yet."""
    folders = folder.iterdir() if folder.is_dir() else ()
    for bucket in sorted(int(each.name) for each in folders if each.name.isdecimal()):
        found = _newest(folder / str(bucket), BucketFiles(folder, bucket, None))
        if found is not None:
            head, disk_bytes = found
            yield BucketState(bucket, head.number, disk_bytes, tuple(map(held_state, head.held)))


def _newest(folder: Path, files: BucketFiles) -> tuple[Head, int] | None:
    sizes = {int(path.name): size for path, size in _sizes(folder) if path.name.isdecimal()}
    for number in sorted(sizes, reverse=True):
        try:
            return files.head(number), sum(sizes.values())
        except CorruptionError:  # gone meanwhile: the one before tells
            continue
    return None


def _sizes(folder: Path) -> Iterator[tuple[Path, int]]:
    for path in folder.iterdir():
        try:
            yield path, path.stat().st_size
        except FileNotFoundError:
            continue


def held_state(held: object) -> HeldState:
    """What a head says of one state."""
    assert isinstance(held, dict)
    inputs = zip(held["rows"], held["oldest_us"], strict=True)
    return HeldState(held["bytes"], tuple(InputRows(rows, oldest_us) for rows, oldest_us in inputs))
