"""A table, or a full-text index, in a SQLite file.

Position and rows are in one file, written in one transaction. A row has a column for each
of its fields, and `_key`, the key of its record. Columns are added as rows bring new fields;
a field that a row does not have is NULL. Columns have no declared type: every value is stored
as it is, booleans as 0 and 1, arrays and objects as JSON.
"""

import contextlib
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from headrace.crash_points import reached
from headrace.derived.changes import Row
from headrace.derived.pace import EAGER
from headrace.derived.state import FollowState, parse_state
from headrace.derived.target import Refuse, StateLost
from headrace.errors import ConfigError, FencedError, RetriableError

__all__ = ["SqliteSearchTarget", "SqliteTableTarget"]

KEY = "_key"
_STATES = "_headrace_followers"
_BUSY_TIMEOUT_S = 10.0
_PASSING = ("locked", "busy", "disk i/o", "unable to open", "full")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class _SqliteTarget:
    """What both kinds share: the file, its transactions and the follower's state."""

    has_snapshots = True
    pace = EAGER

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._name = name
        self._opened: sqlite3.Connection | None = None

    # --- state --------------------------------------------------------------------------------

    def state(self) -> FollowState | None:
        with self._errors():
            return self._read_state(self._database())

    def claim(self, state: FollowState) -> None:
        with self._transaction() as database:
            self._write_state(database, state)

    def apply(
        self, upserts: Mapping[bytes, Row], deletes: Collection[bytes], state: FollowState, refuse: Refuse
    ) -> None:
        with self._transaction() as database:
            self._require_owner(database, state)
            for key in deletes:
                self._delete(database, key)
            for key, row in upserts.items():
                try:
                    self._put(database, key, row)
                except (sqlite3.Error, OverflowError) as error:
                    if _is_passing(error):
                        raise
                    refuse(key, f"SQLite does not take the row: {error}")
            reached("rows written")
            self._write_state(database, state)
            reached("ledger written")

    def delete_identities(self, identities: Collection[bytes], state: FollowState) -> None:
        self.apply({}, identities, state, lambda *_: None)

    def get(self, keys: Collection[bytes]) -> dict[bytes, Row]:
        with self._errors():
            database = self._database()
            return {key: row for key in keys if (row := self._get(database, key)) is not None}

    def identity(self, key: bytes) -> bytes:
        return key

    def stored(self, row: Row) -> Row:
        return {name: _stored(each) for name, each in row.items()}

    @contextlib.contextmanager
    def reading(self) -> Iterator[FollowState | None]:
        with self._errors():
            database = self._database()
            database.execute("BEGIN")
            try:
                yield self._read_state(database)
            finally:
                database.execute("COMMIT")

    def read_together(self, identities: Collection[bytes]) -> tuple[FollowState | None, dict[bytes, Row]]:
        with self.reading() as state:
            return state, self.get(identities)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    # --- of each kind -------------------------------------------------------------------------

    def _prepare(self, database: sqlite3.Connection) -> None:
        raise NotImplementedError

    def _put(self, database: sqlite3.Connection, key: bytes, row: Row) -> None:
        raise NotImplementedError

    def _delete(self, database: sqlite3.Connection, key: bytes) -> None:
        raise NotImplementedError

    def _get(self, database: sqlite3.Connection, key: bytes) -> Row | None:
        raise NotImplementedError

    # --- the file -----------------------------------------------------------------------------

    def _database(self) -> sqlite3.Connection:
        if self._opened is None:
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ConfigError(f"{self._path.parent}: {error.strerror}; name another folder") from error
            database = sqlite3.connect(
                self._path, isolation_level=None, timeout=_BUSY_TIMEOUT_S, check_same_thread=False
            )
            try:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("BEGIN IMMEDIATE")
                database.execute(
                    f"CREATE TABLE IF NOT EXISTS {_STATES} (name TEXT PRIMARY KEY, state TEXT NOT NULL)"
                )
                self._prepare(database)
                database.execute("COMMIT")
            except BaseException:
                database.close()
                raise
            self._opened = database
        return self._opened

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._errors():
            database = self._database()
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("COMMIT")
            except BaseException:
                if database.in_transaction:
                    database.execute("ROLLBACK")
                self._forget()
                raise

    def _forget(self) -> None:
        """What was known of the file may have been rolled back."""

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            self.close()
            if _is_passing(error):
                raise RetriableError(f"{self._path}: {error}") from error
            raise ConfigError(f"{self._path}: {error}; correct that, or name another file") from error

    def _read_state(self, database: sqlite3.Connection) -> FollowState | None:
        asked = f"SELECT state FROM {_STATES} WHERE name = ?"  # noqa: S608 - a name of ours
        found = database.execute(asked, (self._name,)).fetchone()
        return None if found is None else parse_state(found[0])

    def _write_state(self, database: sqlite3.Connection, state: FollowState) -> None:
        written = f"REPLACE INTO {_STATES} VALUES (?, ?)"  # noqa: S608 - a name of ours
        database.execute(written, (self._name, state.to_json().decode()))

    def _require_owner(self, database: sqlite3.Connection, state: FollowState) -> None:
        found = self._read_state(database)
        if found is None:
            raise StateLost(f"{self._path} no longer has the position of {self._name}")
        if found.owner != state.owner:
            raise FencedError(f"another process follows into {self._path} as {self._name}")


class SqliteTableTarget(_SqliteTarget):
    """A table of this name. The file, the table and its columns are created as they are needed."""

    def __init__(self, path: Path, name: str, *, table: str) -> None:
        super().__init__(path, name)
        self._table = quoted(table)
        self._plain_table = table
        self._columns: dict[str, str] = {}

    def is_empty(self) -> bool:
        with self._errors():
            asked = f"SELECT 1 FROM {self._table} LIMIT 1"  # noqa: S608 - quoted
            return self._database().execute(asked).fetchone() is None

    def rows(self) -> Iterator[tuple[bytes, Row]]:
        with self._errors():
            names = self._names(self._database())
            listed = ", ".join(map(quoted, [KEY, *names]))
            for key, *values in self._database().execute(f"SELECT {listed} FROM {self._table}"):  # noqa: S608
                yield key, _row(names, values)

    def _prepare(self, database: sqlite3.Connection) -> None:
        database.execute(
            f"CREATE TABLE IF NOT EXISTS {self._table} ({quoted(KEY)} BLOB PRIMARY KEY NOT NULL)"
        )
        self._forget()
        if KEY not in self._info(database):
            raise ConfigError(
                f"{self._path} has a table {self._plain_table} without a column {KEY}: name another"
            )

    def _put(self, database: sqlite3.Connection, key: bytes, row: Row) -> None:
        self._add_columns(database, row)
        there = self._names(database)
        values = [_stored(row.get(name)) for name in there]
        marks = ", ".join("?" * (1 + len(there)))
        names = ", ".join(map(quoted, [KEY, *there]))
        database.execute(f"REPLACE INTO {self._table} ({names}) VALUES ({marks})", (key, *values))  # noqa: S608

    def _delete(self, database: sqlite3.Connection, key: bytes) -> None:
        database.execute(f"DELETE FROM {self._table} WHERE {quoted(KEY)} = ?", (key,))  # noqa: S608

    def _get(self, database: sqlite3.Connection, key: bytes) -> Row | None:
        names = self._names(database)
        listed = ", ".join(map(quoted, [KEY, *names]))
        asked = f"SELECT {listed} FROM {self._table} WHERE {quoted(KEY)} = ?"  # noqa: S608
        found = database.execute(asked, (key,)).fetchone()
        return None if found is None else _row(names, found[1:])

    def _forget(self) -> None:
        self._columns = {}

    def _names(self, database: sqlite3.Connection) -> list[str]:
        if not self._columns:
            self._columns = {each: each for each in self._info(database) if each != KEY}
        return list(self._columns)

    def _info(self, database: sqlite3.Connection) -> list[str]:
        return [each[1] for each in database.execute(f"PRAGMA table_info({self._table})")]

    def _add_columns(self, database: sqlite3.Connection, row: Row) -> None:
        known = self._names(database)
        for name in row:
            if name in self._columns or row[name] is None:
                continue
            if name.lower() in (KEY, *(each.lower() for each in known)):
                raise sqlite3.DataError(f"field {name!r} is a column already, in other letters: rename that")
            database.execute(f"ALTER TABLE {self._table} ADD COLUMN {quoted(name)}")
            self._columns[name] = name


class SqliteSearchTarget(_SqliteTarget):
    """A full-text index (FTS5) of some fields; beside them, each entry has its `row` as JSON and its `_key`.

    `INDEX_keys` says which entry belongs to a key.
    """

    def __init__(self, path: Path, name: str, *, index: str, fields: Collection[str]) -> None:
        super().__init__(path, name)
        self._plain_index = index
        self._index = quoted(index)
        self._keys = quoted(f"{index}_keys")
        self._fields = list(fields)

    def is_empty(self) -> bool:
        with self._errors():
            asked = f"SELECT 1 FROM {self._keys} LIMIT 1"  # noqa: S608 - quoted
            return self._database().execute(asked).fetchone() is None

    def stored(self, row: Row) -> Row:
        return row

    def rows(self) -> Iterator[tuple[bytes, Row]]:
        listed = ", ".join(f"i.{quoted(each)}" for each in self._fields)
        asked = (
            f"SELECT k.key, i.row, {listed} FROM {self._keys} k LEFT JOIN {self._index} i ON i.rowid = k.id"  # noqa: S608
        )
        with self._errors():
            for key, text, *found in self._database().execute(asked):
                yield key, self._checked(text, found)

    def _checked(self, text: str | None, indexed: list[Any]) -> Row:
        """The row of an entry; one that is missing, or whose fields differ from it, is no such row."""
        row: Row = {} if text is None else orjson.loads(text)
        if [_text(row.get(each)) for each in self._fields] != indexed:
            return {**row, "indexed": indexed}
        return row

    def _prepare(self, database: sqlite3.Connection) -> None:
        there = [each[1] for each in database.execute(f"PRAGMA table_info({self._index})")]
        if not there:
            self._create(database, self._index)
        elif there != [*self._fields, "row", KEY]:
            self._index_again(database)
        database.execute(
            f"CREATE TABLE IF NOT EXISTS {self._keys} (key BLOB PRIMARY KEY NOT NULL, id INTEGER NOT NULL)"
        )

    def _create(self, database: sqlite3.Connection, index: str) -> None:
        fields = ", ".join(map(quoted, self._fields))
        database.execute(f"CREATE VIRTUAL TABLE {index} USING fts5({fields}, row UNINDEXED, {KEY} UNINDEXED)")

    def _index_again(self, database: sqlite3.Connection) -> None:
        """The entries by other fields than before, from the whole row that each of them has."""
        other = quoted(f"{self._plain_index}_again")
        database.execute(f"DROP TABLE IF EXISTS {other}")
        self._create(database, other)
        names = ", ".join(["rowid", *map(quoted, self._fields), "row", KEY])
        marks = ", ".join("?" * (3 + len(self._fields)))
        entries = database.execute(f"SELECT rowid, row, {KEY} FROM {self._index}")  # noqa: S608 - quoted
        for number, text, key in entries:
            row: Row = orjson.loads(text)
            values = [number, *(_text(row.get(each)) for each in self._fields), text, key]
            database.execute(f"INSERT INTO {other} ({names}) VALUES ({marks})", values)  # noqa: S608
        database.execute(f"DROP TABLE {self._index}")
        database.execute(f"ALTER TABLE {other} RENAME TO {self._index}")

    def _put(self, database: sqlite3.Connection, key: bytes, row: Row) -> None:
        self._delete(database, key)
        names = ", ".join([*map(quoted, self._fields), "row", KEY])
        marks = ", ".join("?" * (2 + len(self._fields)))
        values = [*(_text(row.get(each)) for each in self._fields), orjson.dumps(row).decode(), key]
        made = database.execute(f"INSERT INTO {self._index} ({names}) VALUES ({marks})", values)  # noqa: S608
        database.execute(f"INSERT INTO {self._keys} VALUES (?, ?)", (key, made.lastrowid))  # noqa: S608

    def _delete(self, database: sqlite3.Connection, key: bytes) -> None:
        found = database.execute(f"DELETE FROM {self._keys} WHERE key = ? RETURNING id", (key,)).fetchone()  # noqa: S608
        if found is not None:
            database.execute(f"DELETE FROM {self._index} WHERE rowid = ?", found)  # noqa: S608

    def _get(self, database: sqlite3.Connection, key: bytes) -> Row | None:
        asked = f"SELECT row FROM {self._index} WHERE rowid = (SELECT id FROM {self._keys} WHERE key = ?)"  # noqa: S608
        found = database.execute(asked, (key,)).fetchone()
        return None if found is None else orjson.loads(found[0])


def _stored(value: Any) -> Any:
    """A value as SQLite stores it."""
    if isinstance(value, bool):
        return int(value)
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else value


def _text(value: Any) -> str | None:
    """A value as text to be searched."""
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _row(names: Collection[str], values: Collection[Any]) -> Row:
    return {name: each for name, each in zip(names, values, strict=True) if each is not None}


def _is_passing(error: BaseException) -> bool:
    said = str(error).lower()
    return isinstance(error, sqlite3.OperationalError) and any(each in said for each in _PASSING)
