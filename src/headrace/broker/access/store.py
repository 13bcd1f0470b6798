"""`access.json` in the data directory: users and permissions, durable before they count."""

import os
import secrets
from pathlib import Path

from headrace.broker.access.state import AccessState, DamagedError, decode, encode
from headrace.errors import CorruptionError, DiskError
from headrace.storage import Disk
from headrace.storage.disk import replace_or_put_back

__all__ = ["AccessStore"]

FILE_NAME = "access.json"


class _PrivateDisk(Disk):
    """The machine's disk; what it creates is the owner's only."""

    def open(self, path: Path, *, write: bool = False, create: bool = False) -> int:
        if not create:
            return super().open(path, write=write)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)


class AccessStore:
    """Reads and replaces the file as a whole: after a crash the old state or the new. Blocks."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.path = directory / FILE_NAME
        self._disk = _PrivateDisk() if disk is None or type(disk) is Disk else disk

    def load(self) -> AccessState:
        """What was saved last, or nobody; raises CorruptionError, since to guess would open doors."""
        if not self._disk.exists(self.path):
            return AccessState(decoy_secret=secrets.token_bytes(32))
        try:
            return decode(self._disk.read_file(self.path))
        except DamagedError as error:
            raise CorruptionError(
                f"{error}; restore the file from a copy, or remove it and add users and permissions again",
                path=self.path,
            ) from None

    def save(self, state: AccessState) -> None:
        """Returns when the state is on disk; raises DiskError, and the old one stays."""
        try:
            replace_or_put_back(self._disk, self.path, encode(state))
        except OSError as error:
            raise DiskError(f"{self.path} could not be written ({error.strerror or error})") from error
