"""The log start: the offset below which records are deleted, kept durably in a small file."""

from pathlib import Path

from headrace.errors import CorruptionError
from headrace.storage.disk import Disk, read_number, write_number

__all__ = ["read_log_start", "write_log_start"]


def write_log_start(disk: Disk, path: Path, offset: int) -> None:
    """Returns when the log start can no longer move back."""
    write_number(disk, path, offset)


def read_log_start(disk: Disk, path: Path) -> int:
    """The log start, 0 if none was ever written.

    CorruptionError if the file is damaged: to guess would bring deleted records back, and give
    the offsets of a topic in memory to others.
    """
    try:
        return read_number(disk, path) or 0
    except CorruptionError as error:
        raise CorruptionError(
            "its checksum does not hold; restore it from a copy, or remove it: the log then starts at its"
            " oldest segment, and deleted records may reappear (a topic in memory gives offsets again)",
            path=path,
            end=error.end,
        ) from None
