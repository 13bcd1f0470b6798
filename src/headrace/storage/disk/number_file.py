"""One number, kept durably in a small file with a checksum."""

from pathlib import Path

from crc32c import crc32c

from headrace.errors import CorruptionError
from headrace.storage.disk.disk import Disk

__all__ = ["read_number", "write_number"]


def write_number(disk: Disk, path: Path, number: int) -> None:
    """Returns when the number is on disk, in place of the one before; the file's name says what it is of."""
    text = f"headrace {path.name} 1 {number}\n".encode()
    disk.replace_file(path, text + f"{crc32c(text):08x}\n".encode())


def read_number(disk: Disk, path: Path) -> int | None:
    """The number, None if none was ever written; raises CorruptionError if the file is damaged."""
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    text = data[:-9]
    if data != text + f"{crc32c(text):08x}\n".encode():
        raise CorruptionError("its checksum does not hold", path=path, end=len(data))
    return int(text.split()[-1])
