"""The log start: the offset below which records are deleted, kept durably in a small file."""

import logging
from pathlib import Path

from crc32c import crc32c

from headrace.storage.disk import Disk

__all__ = ["read_log_start", "write_log_start"]

logger = logging.getLogger("headrace.storage")


def write_log_start(disk: Disk, path: Path, offset: int) -> None:
    """Returns when the log start can no longer move back."""
    text = f"headrace log-start 1 {offset}\n".encode()
    disk.replace_file(path, text + f"{crc32c(text):08x}\n".encode())


def read_log_start(disk: Disk, path: Path) -> int:
    """The log start, 0 if none was ever written."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return 0
    text, crc = data[:-9], data[-9:-1]
    if f"{crc32c(text):08x}".encode() != crc:
        logger.error(
            "%s is damaged; the log starts at its oldest segment, deleted records may reappear", path
        )
        return 0
    return int(text.split()[-1])
