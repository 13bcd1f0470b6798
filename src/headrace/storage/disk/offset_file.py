"""One offset, kept durably in a small file with a checksum."""

from pathlib import Path

from crc32c import crc32c

from headrace.errors import CorruptionError
from headrace.storage.disk.disk import Disk

__all__ = ["read_offset", "write_offset"]


def write_offset(disk: Disk, path: Path, offset: int) -> None:
    """Returns when the offset is on disk, in place of the one before; the file's name says what it is of."""
    text = f"headrace {path.name} 1 {offset}\n".encode()
    disk.replace_file(path, text + f"{crc32c(text):08x}\n".encode())


def read_offset(disk: Disk, path: Path) -> int:
    """The offset, 0 if none was ever written; raises CorruptionError if the file is damaged."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return 0
    text = data[:-9]
    if data != text + f"{crc32c(text):08x}\n".encode():
        raise CorruptionError("its checksum does not hold", path=path, end=len(data))
    return int(text.split()[-1])
