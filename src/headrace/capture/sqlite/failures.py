"""SQLite's errors as ours."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ConfigError, RetriableError

__all__ = ["explained", "is_busy"]

_PASSING = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR)


def is_busy(error: sqlite3.OperationalError) -> bool:
    """Whether somebody else has locked the file for a moment."""
    return error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """A busy or unreachable file may be read later, others not."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in _PASSING:
            raise RetriableError(f"{path}: {error}") from error
        raise ConfigError(f"{path}: {error}") from error
    except sqlite3.DatabaseError as error:
        raise ConfigError(f"{path}: {error}; is this a SQLite database?") from error
