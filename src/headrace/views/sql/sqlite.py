"""Views in an SQLite file: the default store.

A view is a table of its name, with its key as primary key, so that anything that reads
SQLite reads views. `headrace_ledger` has a row per view, `headrace_changes` the changes that
views keep. Each batch is written in one transaction; in WAL mode readers continue meanwhile
and see the state before it.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import ConfigError, CorruptionError, DiskError, RequestError, RetriableError
from headrace.views.sql.row_checks import RecentChecks
from headrace.views.sql.sqlite_session import SqliteSession, create_tables
from headrace.views.sql.sqlite_table import Replaced
from headrace.views.sql.sqlite_values import DECIMAL_COLLATION, compare_decimals
from headrace.views.sql.store import SqlStore

__all__ = ["SqliteStore"]

_BUSY_TIMEOUT_S = 30.0
_CACHE_KIB = 64 << 10
# Twice the default is a tenth faster. Larger pages are faster for batches of neighbouring rows, but
# write too much for corrections that are scattered over a large view.
_PAGE_BYTES = 8192
_REMEDY = "restore it from a copy, or remove it and build its views anew: headrace run --rebuild"


class SqliteStore(SqlStore):
    """A ViewStore in one file; the encodings are those of `headrace.views.sql.sqlite_values`.

    Every commit is synced (`synchronous=FULL`). Needs a local disk, as WAL does.
    Writing and reading have a connection each; a thread waits for another that does
    the same thing on this object.
    """

    def __init__(self, path: str | Path, *, now_s: Callable[[], float] = time.monotonic) -> None:
        self.path = Path(path)
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._recent = RecentChecks(now_s)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _connect(self.path)
            self._writer.execute(f"PRAGMA page_size={_PAGE_BYTES}")  # of a new file only
            self._writer.execute("PRAGMA journal_mode=WAL")
            self._writer.execute("PRAGMA synchronous=FULL")
            self._writer.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            create_tables(self._writer)
            self._replaced = Replaced(self._writer)
            self._reader = _connect(self.path)
            self._reader.execute("PRAGMA query_only=ON")
        except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
            raise ConfigError(
                f"cannot keep views in {self.path}: {error}; give the path of an SQLite file, new or made by "
                "Headrace, in a folder that can be written"
            ) from error

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._writer.close()

    @contextmanager
    def _transaction(self) -> Iterator[SqliteSession]:
        with self._write_lock, _explained(self.path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield SqliteSession(self._writer, self._recent, self._replaced)
                self._writer.execute("COMMIT")
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    @contextmanager
    def _reading(self, view: str | None = None) -> Iterator[SqliteSession]:
        del view  # a transaction sees one moment of everything
        with self._read_lock, _explained(self.path):
            self._reader.execute("BEGIN")
            try:
                yield SqliteSession(self._reader, self._recent)
            finally:
                self._reader.execute("ROLLBACK")


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.create_collation(DECIMAL_COLLATION, compare_decimals)
    return connection


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except (CorruptionError, UnicodeDecodeError) as error:
        raise CorruptionError(f"{path}: {error}; {_REMEDY}") from error
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise RetriableError(
                f"{path} was in use by another writer for {_BUSY_TIMEOUT_S:.0f} s; try again"
            ) from error
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
            raise DiskError(
                f"{path}: {error}; make room or correct the permissions", full=name == "SQLITE_FULL"
            ) from error
        if not name or name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):  # no name: text that is no UTF-8
            raise CorruptionError(f"{path}: {error}; {_REMEDY}") from error
        if name == "SQLITE_ERROR" and str(error).startswith("no such"):  # table, column, collation
            raise CorruptionError(
                f"{path}: {error}: it was changed by another program, or is damaged; {_REMEDY}"
            ) from error
        if name == "SQLITE_ERROR":
            raise RequestError(f"{path}: {error}; was it changed by another program?") from error
        raise
