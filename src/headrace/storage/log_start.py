"""The log start: the offset below which records are deleted, kept durably in a small file."""

import logging
from pathlib import Path

from headrace.errors import CorruptionError
from headrace.storage.disk import Disk
from headrace.storage.offset_file import read_offset, write_offset

__all__ = ["read_log_start", "write_log_start"]

logger = logging.getLogger("headrace.storage")


def write_log_start(disk: Disk, path: Path, offset: int) -> None:
    """Returns when the log start can no longer move back."""
    write_offset(disk, path, offset)


def read_log_start(disk: Disk, path: Path) -> int:
    """The log start, 0 if none was ever written."""
    try:
        return read_offset(disk, path)
    except CorruptionError:
        logger.error(
            "%s is damaged; the log starts at its oldest segment, deleted records may reappear", path
        )
        return 0
