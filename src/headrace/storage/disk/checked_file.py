"""Small files of named fields that are replaced whole, with a checksum (`headrace.checked_json`)."""

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from headrace.checked_json import Found, decode_fields, encode_fields
from headrace.errors import CorruptionError
from headrace.storage.disk.disk import Disk

__all__ = ["CheckedFile", "replace_or_put_back"]

logger = logging.getLogger("headrace.storage")


class CheckedFile:
    """One such file, replaced whole: after a crash it is the old one or the new. Blocks."""

    def __init__(self, disk: Disk, path: Path, *, fields: Iterable[str], remedy: str) -> None:
        """`fields`: those of the earlier format. `remedy`: what to do when the file is damaged."""
        self.path = path
        self._disk = disk
        self._fields = tuple(fields)
        self._remedy = remedy

    def read(self) -> Found | None:
        """What the file holds; None if there is none. CorruptionError if it is not what was written."""
        try:
            data = self._disk.read_file(self.path)
        except FileNotFoundError:
            return None
        try:
            return decode_fields(data, self._fields)
        except ValueError as error:
            raise self.damaged(str(error), len(data)) from None

    def damaged(self, why: str, size: int = 0) -> CorruptionError:
        """That the file cannot be used, and what to do."""
        return CorruptionError(f"{why}; {self._remedy}", path=self.path, end=size)

    def write(self, fields: Mapping[str, object]) -> None:
        """Returns when the fields are on disk. OSError if the disk refuses; the file is then as it was."""
        replace_or_put_back(self._disk, self.path, encode_fields(fields))

    def create(self, fields: Mapping[str, object]) -> None:
        """As `write`, for a file of something that is not in force yet: nothing is taken back."""
        self._disk.replace_file(self.path, encode_fields(fields))

    def add_checksum(self, found: Found) -> None:
        """Brings a file of the earlier format up to date; one that cannot be written stays as it is."""
        if found.is_checked:
            return
        try:
            self.write(found.fields)
        except OSError as error:
            logger.warning("%s has no checksum yet, and cannot be written: %s", self.path, error)


def replace_or_put_back(disk: Disk, path: Path, data: bytes) -> None:
    """As `Disk.replace_file`, but what cannot be made durable is taken back: nobody counts on it then.

    If that fails too, which of the two is found after a restart is not known; that is logged.
    """
    before = disk.read_file(path) if disk.exists(path) else None
    try:
        disk.replace_file(path, data)
    except OSError:
        _put_back(disk, path, before)
        raise


def _put_back(disk: Disk, path: Path, before: bytes | None) -> None:
    try:
        now = disk.read_file(path) if disk.exists(path) else None
        if now == before:
            return
        if before is None:
            disk.unlink(path)
            disk.sync_directory(path.parent)
        else:
            disk.replace_file(path, before)
    except OSError as error:
        logger.error(
            "%s was changed, the disk refused to make it durable, and to take it back: %s; "
            "check the disk, then make the change again: after a restart the old or the new may hold",
            path,
            error,
        )
