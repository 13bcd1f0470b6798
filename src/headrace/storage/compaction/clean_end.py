"""How far a log is compacted, kept in a small file. Losing it costs one more run, nothing else."""

import logging
from pathlib import Path

from headrace.errors import CorruptionError
from headrace.storage.disk import Disk
from headrace.storage.offset_file import read_offset, write_offset

__all__ = ["read_clean_end", "write_clean_end"]

logger = logging.getLogger("headrace.storage")


def write_clean_end(disk: Disk, path: Path, offset: int) -> None:
    """Notes that below `offset` every key has one record, once the files that make it so are in force."""
    write_offset(disk, path, offset)


def read_clean_end(disk: Disk, path: Path) -> int:
    """The offset, 0 if it is not known."""
    try:
        return read_offset(disk, path)
    except CorruptionError:
        logger.warning("%s is damaged; the partition is compacted from its start again", path)
        return 0
