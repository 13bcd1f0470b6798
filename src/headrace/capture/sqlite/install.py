"""Installs the triggers of a capture in a database, updates them, and removes them.

Whatever was done to a table (columns added or renamed, the table rebuilt, triggers dropped), the
triggers that should be there are compared with those that are: if they differ, they are
replaced, and the table has to be read again, since changes may have gone by unrecorded.
"""

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.capture.change import Column
from headrace.capture.sqlite.tables import SqliteTable, quoted, spark_type
from headrace.capture.sqlite.triggers import Names, own_tables, triggers

__all__ = ["Shape", "install", "is_installed", "meta", "outdated", "read_shapes", "remove", "set_meta"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The columns of a table that one generation of its triggers records."""

    shape: int
    table: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]


def is_installed(database: sqlite3.Connection, names: Names) -> bool:
    """Whether the capture has its own tables here."""
    found = database.execute(
        "SELECT count(*) FROM main.sqlite_master WHERE type = 'table' AND name IN (?, ?)",
        (names.changes, names.meta),
    )
    return bool(found.fetchone()[0] == 2)


def outdated(database: sqlite3.Connection, names: Names, tables: Sequence[SqliteTable]) -> list[SqliteTable]:
    """The tables whose triggers are not those they should have."""
    if not is_installed(database, names):
        return list(tables)
    shapes = {each.table: each for each in read_shapes(database, names).values()}
    there = dict(
        database.execute(
            "SELECT name, sql FROM main.sqlite_master WHERE type = 'trigger' AND name GLOB ?",
            (f"_headrace_{names.capture}_*",),
        ).fetchall()
    )
    found = []
    for table in tables:
        shape = shapes.get(table.name)
        wanted = triggers(names, table, shape.shape) if shape is not None else []
        same = shape is not None and _described(shape.columns) == _described(table.columns)
        if not same or any(there.get(each.name) != each.sql for each in wanted):
            found.append(table)
    return found


def install(database: sqlite3.Connection, names: Names, tables: Sequence[SqliteTable]) -> None:
    """Gives these tables new triggers; in the caller's transaction, which writes."""
    for statement in own_tables(names):
        database.execute(statement)
    for table in tables:
        _drop_triggers(database, names, table.name)
        _widen(database, names.changes, ("c", "p"), len(table.columns))
        _widen(database, names.replaced, ("c",), len(table.columns))
        described = json.dumps(_described(table.columns))
        cursor = database.execute(
            f"INSERT INTO {quoted(names.shapes)} (name, columns, key) VALUES (?, ?, ?)",
            (table.name, described, json.dumps(table.key)),
        )
        assert cursor.lastrowid is not None
        for each in triggers(names, table, cursor.lastrowid):
            database.execute(each.sql)


def remove(database: sqlite3.Connection, names: Names, tables: Sequence[str] | None = None) -> None:
    """Takes the triggers of these tables out; with None everything that the capture has here."""
    if tables is not None:
        for table in tables:
            _drop_triggers(database, names, table)
        return
    found = database.execute(
        "SELECT name FROM main.sqlite_master WHERE type = 'trigger' AND name GLOB ?",
        (f"_headrace_{names.capture}_*",),
    )
    for (name,) in found.fetchall():
        database.execute(f"DROP TRIGGER {quoted(name)}")
    for name in (names.changes, names.replaced, names.shapes, names.meta):
        database.execute(f"DROP TABLE IF EXISTS {quoted(name)}")


def read_shapes(database: sqlite3.Connection, names: Names) -> dict[int, Shape]:
    """Every generation of triggers that rows of the change table may be from; the newest of a table last."""
    found = {}
    for shape, table, columns, key in database.execute(
        f"SELECT shape, name, columns, key FROM {quoted(names.shapes)} ORDER BY shape"
    ):
        made = tuple(
            Column(name=name, type=kind, spark_type=spark_type(kind), optional=optional)
            for name, kind, optional in json.loads(columns)
        )
        found[shape] = Shape(shape=shape, table=table, columns=made, key=tuple(json.loads(key)))
    return found


def meta(database: sqlite3.Connection, names: Names, name: str) -> Any:
    """What was noted under this name; None if nothing was."""
    row = database.execute(f"SELECT value FROM {quoted(names.meta)} WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def set_meta(database: sqlite3.Connection, names: Names, name: str, value: Any) -> None:
    """Notes a value under this name."""
    database.execute(f"REPLACE INTO {quoted(names.meta)} VALUES (?, ?)", (name, value))


def _described(columns: Sequence[Column]) -> list[list[Any]]:
    return [[each.name, each.type, each.optional] for each in columns]


def _drop_triggers(database: sqlite3.Connection, names: Names, table: str) -> None:
    for event in ("insert", "update", "delete", "before_insert", "before_update"):
        database.execute(f"DROP TRIGGER IF EXISTS {quoted(names.trigger(table, event))}")


def _widen(database: sqlite3.Connection, table: str, letters: Sequence[str], columns: int) -> None:
    """Adds the columns for values that are missing."""
    there = {each[1] for each in database.execute(f"PRAGMA main.table_info({quoted(table)})")}
    for number in range(columns):
        for letter in letters:
            if f"{letter}{number}" not in there:
                database.execute(f"ALTER TABLE {quoted(table)} ADD COLUMN {letter}{number}")
