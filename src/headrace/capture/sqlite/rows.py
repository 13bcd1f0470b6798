"""Rows of a table in key order, a chunk at a time."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.capture.change import Change
from headrace.capture.sqlite.keys import key_encoder
from headrace.capture.sqlite.tables import SqliteTable, quoted
from headrace.capture.sqlite.values import Value, cursor_of, cursor_values, row_encoder

__all__ = ["cursor_behind", "encoded_rows", "fetch_rows"]

Row = Sequence[Value]


def fetch_rows(
    database: sqlite3.Connection, table: SqliteTable, cursor: Sequence[Any] | None, most_rows: int
) -> list[Row]:
    """The next rows behind the cursor; all of a table without a key, because nothing orders its rows."""
    columns = ", ".join(quoted(each) for each in table.names)
    statement, values = f"SELECT {columns} FROM {quoted(table.name)}", []
    if table.key:
        key = ", ".join(quoted(each) for each in table.key)
        if cursor is not None:
            values = cursor_values(cursor)
            statement += f" WHERE ({key}) > ({', '.join('?' for _ in values)})"
        statement += f" ORDER BY {key} LIMIT {most_rows}"
    return database.execute(statement, values).fetchall()


def encoded_rows(table: SqliteTable, rows: Sequence[Row], *, path: Path, capture: str) -> list[Change]:
    """The rows as a snapshot reads them; raises UnclearKey for one whose key is not unique in JSON."""
    encode = row_encoder(table.columns)
    key_of = key_encoder(table.columns, table.key, where=f"{path}: table {table.name}", capture=capture)
    return [Change(table.schema.table, "r", key_of(row), None, encode(row)) for row in rows]


def cursor_behind(table: SqliteTable, rows: Sequence[Row], most_rows: int) -> Sequence[Any] | None:
    """Where the rows behind these begin; None if there are none."""
    if not table.key or len(rows) < most_rows:
        return None
    return cursor_of([rows[-1][table.names.index(each)] for each in table.key])
