"""How far a log is compacted, kept in a small file. Losing it costs one more run, nothing else."""

import logging
from pathlib import Path

from crc32c import crc32c

from headrace.storage.disk import Disk

__all__ = ["read_clean_end", "write_clean_end"]

logger = logging.getLogger("headrace.storage")


def write_clean_end(disk: Disk, path: Path, offset: int) -> None:
    """Notes that below `offset` every key has one record, once the files that make it so are in force."""
    text = f"headrace clean-end 1 {offset}\n".encode()
    disk.replace_file(path, text + f"{crc32c(text):08x}\n".encode())


def read_clean_end(disk: Disk, path: Path) -> int:
    """The offset, 0 if it is not known."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return 0
    text, crc = data[:-9], data[-9:-1]
    if f"{crc32c(text):08x}".encode() != crc:
        logger.warning("%s is damaged; the partition is compacted from its start again", path)
        return 0
    return int(text.split()[-1])
