"""The one error tree; each class answers "whose fault, and may I retry?"

HeadraceError
├─ RequestError      the caller's fault; carries the Kafka code where there is one
├─ RetriableError    try again: rebalancing, busy sink, not yet caught up
├─ CorruptionError   bytes are wrong: file, position, expected, found
├─ DiskError         the disk refused: full (may pass), or a failed sync (stays)
├─ FencedError       a newer owner exists; stop
└─ ConfigError       refuse to start; names the setting and what to do

A message gives the cause and the next step.
"""

import errno
from pathlib import Path

__all__ = [
    "ConfigError",
    "CorruptionError",
    "DiskError",
    "FencedError",
    "HeadraceError",
    "RequestError",
    "RetriableError",
]


class HeadraceError(Exception):
    """Base of everything Headrace raises on purpose."""


class RequestError(HeadraceError):
    """The caller asked for something that cannot be done; asking again will not help.

    `code` is the Kafka error code to answer with (`wire.ErrorCode`), where there is one.
    """

    def __init__(self, message: str, *, code: int = -1) -> None:
        super().__init__(message)
        self.code = code


class RetriableError(HeadraceError):
    """Nothing is wrong with the request; the same one may succeed later."""

    def __init__(self, message: str, *, code: int = -1) -> None:
        super().__init__(message)
        self.code = code


class CorruptionError(HeadraceError):
    """Bytes on disk or on the wire are not what they claim to be.

    `path` and the range `start`..`end` (end exclusive) say where; the damaged
    bytes are never handed to anyone.
    """

    def __init__(self, message: str, *, path: Path | None = None, start: int = 0, end: int = 0) -> None:
        where = f"{path} [{start}, {end}): " if path is not None else ""
        super().__init__(where + message)
        self.path = path
        self.start = start
        self.end = end


class DiskError(HeadraceError):
    """The disk refused a write or a sync.

    `full` means that space ran out and the same write may succeed once there is
    room; otherwise a sync failed, and the partition stays read-only until it is
    reopened, since what the kernel kept of the failed pages cannot be known.
    """

    def __init__(self, message: str, *, full: bool = False) -> None:
        super().__init__(message)
        self.full = full

    @classmethod
    def at(cls, path: Path, error: OSError) -> "DiskError":
        """What the system said of a file that may be written once somebody has seen to it."""
        reason = f"{path}: {error.strerror or error}; make room or correct the permissions"
        return cls(reason, full=error.errno in (errno.ENOSPC, errno.EDQUOT))


class FencedError(HeadraceError):
    """A newer owner of the same thing exists; the holder of this error must stop."""


class ConfigError(HeadraceError):
    """A setting or the environment does not allow to start; the message names it."""
