"""The tables of a file in one state, read through a connection of its own."""

import contextlib
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.capture.change import Change, Position, TableSchema
from headrace.capture.sqlite.failures import explained
from headrace.capture.sqlite.rows import cursor_behind, encoded_rows, fetch_rows
from headrace.capture.sqlite.tables import SqliteTable

__all__ = ["FrozenFile", "frozen_connection"]


@contextlib.contextmanager
def frozen_connection(database: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """A connection that sees one state of the database, and holds nobody up.

    Without WAL mode a reader locks writers out, so that a copy is read: they wait while it is made.
    """
    (mode,) = database.execute("PRAGMA journal_mode").fetchone()
    if mode == "wal":
        database.execute("BEGIN")
        yield database
        return
    with contextlib.ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory(prefix="headrace-"))
        copy = sqlite3.connect(Path(folder) / "copy.db", isolation_level=None)
        opened.enter_context(contextlib.closing(copy))
        database.backup(copy)
        copy.text_factory = database.text_factory
        yield copy


class FrozenFile:
    """`until` is the number of the last change before the transaction that is open in `database`."""

    def __init__(
        self,
        database: sqlite3.Connection,
        path: Path,
        tables: Mapping[str, SqliteTable],
        *,
        until: int,
        capture: str,
    ) -> None:
        self._database, self._path, self._tables = database, path, tables
        self._until, self._capture = until, capture

    def schemas(self) -> Mapping[str, TableSchema]:
        return {name: each.schema for name, each in self._tables.items()}

    def rows(self, table: str, chunk_rows: int) -> Iterator[Change]:
        found = self._tables[table]
        cursor: Sequence[Any] | None = None
        while True:
            with explained(self._path):
                rows = fetch_rows(self._database, found, cursor, chunk_rows)
            yield from encoded_rows(found, rows, path=self._path, capture=self._capture)
            cursor = cursor_behind(found, rows, chunk_rows)
            if cursor is None:
                return

    def sees(self, said: Mapping[str, Any]) -> bool | None:
        seq = said.get("seq")
        return seq <= self._until if isinstance(seq, int) else None

    def reached(self, position: Position) -> bool:
        return int(position["seq"]) >= self._until
