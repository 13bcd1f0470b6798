"""The lock on a data folder: one run at a time, and whether there is one now."""

import contextlib
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from headrace.errors import ConfigError

__all__ = ["is_running", "locked"]

_FILE = "run.lock"
_TRIES, _PAUSE_S = 100, 0.05


@contextlib.contextmanager
def locked(data: Path) -> Iterator[None]:
    """Keeps a second run off the same folder; raises ConfigError if there is one."""
    data.mkdir(parents=True, exist_ok=True)
    with (data / _FILE).open("w") as file:
        if not _lock(file):
            raise ConfigError(
                f"an application is already running on {data}; stop it, or choose another --data"
            )
        yield


def _lock(file: IO[str]) -> bool:
    """Takes the lock; False if it stays taken. Others may hold it for a moment, which is waited out:
    `is_running`, and a child process that a run was starting when it was killed.
    """
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE_S)
        else:
            return True
    return False


def is_running(data: Path) -> bool:
    """Whether a driver holds the folder's lock now."""
    try:
        with (data / _FILE).open("r") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False
    except FileNotFoundError:
        return False
