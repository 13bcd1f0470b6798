"""The file system: one door to it, checked small files, and what is known to be damaged or unreadable."""

from headrace.storage.disk.checked_file import CheckedFile, replace_or_put_back
from headrace.storage.disk.disk import Disk, Readable, SyncFailed, make_directory

__all__ = ["CheckedFile", "Disk", "Readable", "SyncFailed", "make_directory", "replace_or_put_back"]
