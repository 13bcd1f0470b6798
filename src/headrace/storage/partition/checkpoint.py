"""What is known to be synced and indexed, so that recovery need not look at it again.

Written in place and not synced, since losing it costs time only: without a
checkpoint whose checksum holds, the whole newest segment is scanned. It is
written only after the bytes it speaks of were synced.
"""

import contextlib
import struct
from pathlib import Path
from typing import NamedTuple

from crc32c import crc32c

from headrace.storage.disk import Disk, write_all

__all__ = ["SegmentCheckpoint", "read_checkpoint", "write_checkpoint"]

_FORMAT = struct.Struct(">4sHqqqqqII")
_VERSION = 1


class SegmentCheckpoint(NamedTuple):
    """The state of the active segment at one sync."""

    base_offset: int  # of the active segment
    position: int  # bytes of it that are synced and checked
    next_offset: int
    largest_timestamp: int
    created_ms: int  # when its first batch was appended; 0 if there is none
    index_entries: int  # entries in its index file
    index_crc: int


def write_checkpoint(disk: Disk, path: Path, checkpoint: SegmentCheckpoint, *, durable: bool) -> None:
    body = _FORMAT.pack(b"HRCP", _VERSION, *checkpoint)
    try:
        fd = disk.open(path, write=True)
    except FileNotFoundError:
        fd = disk.open(path, write=True, create=True)
    try:
        write_all(disk, fd, [body + crc32c(body).to_bytes(4, "big")], 0)
        if durable:
            disk.sync(fd)
    finally:
        disk.close(fd)


def read_checkpoint(disk: Disk, path: Path) -> SegmentCheckpoint | None:
    """The checkpoint, or None if there is none that can be believed."""
    with contextlib.suppress(FileNotFoundError):
        data = disk.read_file(path)
        body, crc = data[: _FORMAT.size], data[_FORMAT.size :]
        if len(body) == _FORMAT.size and crc32c(body).to_bytes(4, "big") == crc:
            magic, version, *fields = _FORMAT.unpack(body)
            if magic == b"HRCP" and version == _VERSION:
                return SegmentCheckpoint._make(fields)
    return None
