"""The file system: one door to it, checked small files, and what is known to be damaged or unreadable."""

from headrace.storage.disk.checked_file import CheckedFile, replace_or_put_back
from headrace.storage.disk.damage import Damage, load_damage, save_damage
from headrace.storage.disk.disk import (
    Disk,
    Readable,
    SyncFailed,
    is_full,
    make_directory,
    sync_file,
    write_all,
)
from headrace.storage.disk.memory_disk import MemoryDisk
from headrace.storage.disk.number_file import read_number, write_number
from headrace.storage.disk.unreadable import UnreadableBytes, UnreadablePlaces

__all__ = [
    "CheckedFile",
    "Damage",
    "Disk",
    "MemoryDisk",
    "Readable",
    "SyncFailed",
    "UnreadableBytes",
    "UnreadablePlaces",
    "is_full",
    "load_damage",
    "make_directory",
    "read_number",
    "replace_or_put_back",
    "save_damage",
    "sync_file",
    "write_all",
    "write_number",
]
