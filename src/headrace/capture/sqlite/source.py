"""Reads the change table of a SQLite database.

Position: the sequence number of the last change, and the token that the database had. Each start gives
it a new token, and so does each removal of changes that have reached the log: a database that was replaced,
or restored from a backup, is noticed, also if it has had more changes since.

What was committed between two reads comes as one transaction: it may be several of the writers',
each of them whole. A chunk of a snapshot is read in one transaction together with the last
sequence number, and changes up to there come before it: no row of it can be outdated.
"""

import contextlib
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from headrace.capture.change import Change, Item, Position, Resnapshot, TableSchema, Transaction
from headrace.capture.source import Chunk, Lack, Lag, SourceChanged, TablesGone
from headrace.capture.sqlite.failures import explained, is_busy
from headrace.capture.sqlite.frozen import FrozenFile, frozen_connection
from headrace.capture.sqlite.install import (
    Shape,
    install,
    is_installed,
    meta,
    outdated,
    read_shapes,
    remove,
    set_meta,
)
from headrace.capture.sqlite.keys import UnclearKey, key_encoder
from headrace.capture.sqlite.rows import cursor_behind, encoded_rows, fetch_rows
from headrace.capture.sqlite.tables import SqliteTable, quoted, read_table, table_names
from headrace.capture.sqlite.triggers import Names, most_columns
from headrace.capture.sqlite.values import (
    Value,
    key_candidates,
    row_encoder,
    text,
)
from headrace.errors import ConfigError, HeadraceError, RequestError, RetriableError

__all__ = ["SqliteSource"]

_BUSY_MS = 5_000
_TRIM_BUSY_MS = 50  # a writer of the user's goes first
_LOOK_S = 0.005
_TRIM_S = 1.0
_TRIM_ROWS = 20_000
_PAGE_ROWS = 10_000


class SqliteSource:
    """One database file; `tables` are names, or none for all it has."""

    connector = "sqlite"

    def __init__(self, path: Path, tables: Sequence[str], *, name: str) -> None:
        self.path = path
        self.database = path.stem
        self.url = f"sqlite:///{path}"
        self._wanted = [each.removeprefix("main.") for each in tables]
        self._names = Names(name)
        self._opened: sqlite3.Connection | None = None
        self._tables: dict[str, SqliteTable] = {}
        self._decoders: dict[int, _Decoder] = {}
        self._seq, self._token, self._token_there = 0, "", ""
        self._news: list[Item] = []  # of tables, to be told before the next change
        self._chunk_until = 0
        self._acknowledged = self._trimmed = 0
        self._trimmed_at = 0.0
        self._seen: tuple[int, int, int] | None = None  # data version, schema version, file
        self._schema_version = -1
        self._layout = _Layout([])
        self._missing: HeadraceError | None = None  # a table: to be said once its last changes are written

    # --- setting up ---------------------------------------------------------------------------

    def check(self) -> Sequence[Lack]:
        """The file and every wanted table must be there; nothing else is needed.

        Raises ConfigError for a file that is no database, and for a table with too many columns.
        """
        if not self.path.is_file():
            return [Lack(what=f"there is no file {self.path}")]
        with explained(self.path), contextlib.closing(self._open()) as database:
            found = {each: read_table(database, each) for each in self._wanted or table_names(database)}
            self._require_few_columns(database, found.values())
            missing = [name for name, each in found.items() if each is None]
            return [Lack(what=self._absence(database, each)) for each in missing]

    def _require_few_columns(
        self, database: sqlite3.Connection, tables: Iterable[SqliteTable | None]
    ) -> None:
        most = most_columns(database.getlimit(sqlite3.SQLITE_LIMIT_COLUMN))
        for table in tables:
            if table is not None and len(table.columns) > most:
                raise ConfigError(
                    f"{self.path}: table {table.name} has {len(table.columns):,} columns; a table with more "
                    f"than {most} cannot be captured: name others with --table, or split it"
                )

    def describe(self) -> Mapping[str, TableSchema]:
        with explained(self.path), contextlib.closing(self._open()) as database:
            return {name: each.schema for name, each in self._read_tables(database).items()}

    def connect(self, position: Position | None) -> Position:
        lacks = self.check()
        if lacks:
            raise RetriableError(f"{self.path}: {'; '.join(each.what for each in lacks)}")
        with explained(self.path):
            self._opened = self._open()
            self._require_same(position)
            self._seq = self._last_seq() if position is None else position["seq"]
            self._begin(first=position is None)
            self._acknowledged = self._trimmed = self._seq
        return self._position(self._seq)

    def _begin(self, *, first: bool) -> None:
        """Triggers as they should be, and a new token, in one transaction."""
        database = self._db
        database.execute("BEGIN IMMEDIATE")
        try:
            self._tables = self._read_tables(self._db)
            stale = outdated(database, self._names, list(self._tables.values()))
            known: set[str] = set()
            if is_installed(database, self._names):
                known = {each.table for each in read_shapes(database, self._names).values()}
                remove(database, self._names, sorted(known - {each.name for each in self._tables.values()}))
            install(database, self._names, stale)
            self._token = self._renew_token(database)
            database.execute("COMMIT")
        except BaseException:
            database.execute("ROLLBACK")
            raise
        self._learn_shapes()
        again = [each for each in stale if each.name in known and not first]
        self._note_news(again, "its columns or its triggers were changed")
        self._seen, self._schema_version = None, -1
        self._layout = self._read_layout()

    def _renew_token(self, database: sqlite3.Connection) -> str:
        """A new token; the one before is still good, as the last position that was written may have it."""
        token = secrets.token_hex(8)
        set_meta(database, self._names, "previous", meta(database, self._names, "token"))
        set_meta(database, self._names, "token", token)
        return token

    def _read_layout(self) -> "_Layout":
        found = self._db.execute(f"PRAGMA main.table_info({quoted(self._names.changes)})")
        return _Layout([each[1] for each in found])

    def _require_same(self, position: Position | None) -> None:
        if position is None:
            return
        tokens: tuple[str, ...] = ()
        if is_installed(self._db, self._names):
            tokens = (meta(self._db, self._names, "token"), meta(self._db, self._names, "previous"))
        advice = "read its tables again with `headrace capture resnapshot`"
        if position["token"] not in tokens:
            raise SourceChanged(
                f"{self.path} is not the database that was captured, or was restored from a backup; {advice}"
            )
        if self._last_seq() < position["seq"]:
            raise SourceChanged(f"{self.path} was restored from a backup; {advice}")

    def _read_tables(self, database: sqlite3.Connection) -> dict[str, SqliteTable]:
        found = {}
        for each in self._wanted or table_names(database):
            table = read_table(database, each)
            if table is None:
                raise RetriableError(f"{self.path}: {self._absence(database, each)}")
            found[f"main.{table.name}"] = table
        return found

    def _absence(self, database: sqlite3.Connection, table: str) -> str:
        """That a table is missing. Its triggers know its new name, if it was renamed."""
        found = database.execute(
            "SELECT tbl_name FROM main.sqlite_master WHERE type = 'trigger' AND name = ?",
            (self._names.trigger(table, "insert"),),
        ).fetchone()
        if found is not None:
            return (
                f"table {table} is called {found[0]} now: give it its name back, or capture {found[0]} in "
                "its place, and it is read under that name"
            )
        return (
            f"there is no table {table}: create it, or take it out of the capture (views and virtual tables "
            "cannot be captured)"
        )

    def _learn_shapes(self) -> None:
        for number, shape in read_shapes(self._db, self._names).items():
            if number not in self._decoders:
                self._decoders[number] = _Decoder(shape, self.path, self._names.capture)

    def _note_news(self, tables: Iterable[SqliteTable], reason: str) -> None:
        for each in tables:
            self._news += [each.schema, Resnapshot(each.schema.table, reason)]

    def schemas(self) -> Mapping[str, TableSchema]:
        return {name: each.schema for name, each in self._tables.items()}

    def remove(self) -> None:
        """Takes triggers and tables of the capture out of the database."""
        self._remove(None)

    def remove_triggers(self) -> None:
        """Takes the triggers out, so that columns can be dropped.

        The next look puts new ones in, and the tables are read again.
        """
        self._remove(self._wanted)

    def _remove(self, tables: Sequence[str] | None) -> None:
        if not self.path.is_file():
            return
        with explained(self.path), contextlib.closing(self._open()) as database:
            database.execute("BEGIN IMMEDIATE")
            remove(database, self._names, tables)
            database.execute("COMMIT")

    # --- changes ------------------------------------------------------------------------------

    def first_load(self, _tables: Sequence[str]) -> None:
        return None

    def transactions(self, wait_s: float) -> Iterable[Transaction]:
        if self._missing is not None:
            raise self._missing
        with explained(self.path):
            told = self._token
            self._trim()
            if not self._wait_for_change(wait_s if self._token == told else 0):
                if self._token != told:
                    yield self._moved()
                return
            self._missing = self._keep_up_with_schema()
            last, at_ms = self._last_change(self._db)
        if last < self._seq:
            raise SourceChanged(
                f"{self.path} was restored from a backup; "
                "read its tables again with `headrace capture resnapshot`"
            )
        bounds = [last] if not self._seq < self._chunk_until < last else [self._chunk_until, last]
        for bound in bounds:
            if bound > self._seq or self._news:
                news, self._news, after, self._seq = self._news, [], self._seq, bound
                yield Transaction(
                    id=str(bound),
                    position=self._position(bound),
                    committed_us=(at_ms or _now_ms()) * 1000,
                    changes=self._changes(news, after, bound),
                )

    def _moved(self) -> Transaction:
        """A position with the token of now, which tells this database from a backup with the one before."""
        return Transaction(
            id=str(self._seq), position=self._position(self._seq), committed_us=_now_ms() * 1000, changes=()
        )

    def _changes(self, news: Sequence[Item], after: int, until: int) -> Iterator[Item]:
        """The changes of these numbers. One whose key is unclear is left out, and its table read again.

        So it only stops a capture for as long as the table has such a row.
        """
        yield from news
        skipped: set[str] = set()
        select = (
            f"SELECT * FROM {quoted(self._names.changes)} WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
        )
        while after < until:
            with explained(self.path):
                rows = self._db.execute(select, (after, until, _PAGE_ROWS)).fetchall()
            if not rows:
                break
            for row in rows:
                decoder = self._decoders[row[1]]
                try:
                    yield from decoder.changes(row, self._layout)
                except UnclearKey as error:
                    if decoder.table in self._tables and decoder.table not in skipped:
                        skipped.add(decoder.table)
                        yield Resnapshot(decoder.table, error.what, skipped=True)
            after = rows[-1][0]

    def _wait_for_change(self, wait_s: float) -> bool:
        """Whether anything was committed by others since the last look; waits for it."""
        deadline = time.monotonic() + wait_s
        while True:
            now = self._look()
            if now != self._seen or self._news or self._seq < self._chunk_until:
                if self._seen is not None and now[2] != self._seen[2]:
                    raise RetriableError(f"{self.path} was replaced by another file")
                self._seen = now
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_S)

    def _look(self) -> tuple[int, int, int]:
        (data,) = self._db.execute("PRAGMA data_version").fetchone()
        (schema,) = self._db.execute("PRAGMA schema_version").fetchone()
        try:
            return data, schema, self.path.stat().st_ino
        except OSError as error:
            raise RetriableError(f"{self.path}: {error.strerror}") from error

    def _keep_up_with_schema(self) -> HeadraceError | None:
        """Brings triggers up to date when any schema was changed; such tables are read again.

        What to raise where one is gone: a table that the capture names is waited for.
        """
        assert self._seen is not None
        if self._seen[1] == self._schema_version:
            return None
        if gone := [each.name for each in self._tables.values() if read_table(self._db, each.name) is None]:
            if self._wanted:
                return RetriableError(f"{self.path}: {self._absence(self._db, gone[0])}")
            return TablesGone([f"main.{each}" for each in gone], are_named=False)
        stale = outdated(self._db, self._names, list(self._read_tables(self._db).values()))
        if stale:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                self._tables = self._read_tables(self._db)
                stale = outdated(self._db, self._names, list(self._tables.values()))
                install(self._db, self._names, stale)
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._learn_shapes()
            self._note_news(stale, "its columns or its triggers were changed")
        self._layout = self._read_layout()
        (self._schema_version,) = self._db.execute("PRAGMA schema_version").fetchone()
        return None

    def _last_change(self, database: sqlite3.Connection) -> tuple[int, int]:
        row = database.execute(
            f"SELECT seq, at_ms FROM {quoted(self._names.changes)} ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        return (0, 0) if row is None else row

    def _last_seq(self) -> int:
        return self._last_change(self._db)[0] if is_installed(self._db, self._names) else 0

    # --- snapshots ----------------------------------------------------------------------------

    def read_chunk(self, table: str, cursor: Sequence[Any] | None, most_rows: int) -> Chunk:
        """Rows in key order; a table without a key comes in one chunk, because nothing orders its rows."""
        found = self._tables[table]
        with explained(self.path):
            until, rows = self._together(lambda: fetch_rows(self._db, found, cursor, most_rows))
        read = encoded_rows(found, rows, path=self.path, capture=self._names.capture)
        return self._chunk(table, read, until, cursor_behind(found, rows, most_rows))

    def read_keys(self, table: str, keys: Sequence[bytes]) -> Chunk:
        found = self._tables[table]
        condition = " AND ".join(f"{quoted(each)} = ?" for each in found.key)
        statement = f"SELECT 1 FROM {quoted(found.name)} WHERE {condition}"

        def is_gone(key: bytes) -> bool:
            said = orjson.loads(key)
            if not all(each in said for each in found.key):
                return True
            return not any(
                self._db.execute(statement, values).fetchone()
                for values in _products([key_candidates(said[each]) for each in found.key])
            )

        with explained(self.path):
            until, gone = self._together(lambda: [each for each in keys if found.key and is_gone(each)])
        return self._chunk(table, [Change(table, "d", each, None, None) for each in gone], until, None)

    def _together(self, read: Callable[[], Any]) -> tuple[int, Any]:
        """What is read, and the last change before it."""
        self._db.execute("BEGIN")
        try:
            return self._last_seq(), read()
        finally:
            self._db.execute("ROLLBACK")

    def _chunk(self, table: str, rows: Sequence[Change], until: int, cursor: Sequence[Any] | None) -> Chunk:
        self._chunk_until = until
        return Chunk(
            table=table,
            rows=rows,
            cursor=cursor,
            read_us=_now_ms() * 1000,
            reached=lambda position: position["seq"] >= until,
            sees=lambda transaction: transaction.position["seq"] <= until,
        )

    @contextlib.contextmanager
    def freeze(self) -> Iterator[FrozenFile]:
        with contextlib.ExitStack() as opened:
            with explained(self.path):
                database = opened.enter_context(contextlib.closing(self._open()))
                if not is_installed(database, self._names):
                    raise RequestError(
                        f"{self.path} has no triggers of capture {self._names.capture}: it was never run here"
                    )
                frozen = opened.enter_context(frozen_connection(database))
                until, tables = self._last_change(frozen)[0], self._read_tables(frozen)
            yield FrozenFile(frozen, self.path, tables, until=until, capture=self._names.capture)

    def count(self, table: str) -> int | None:
        with explained(self.path):
            found = self._db.execute(f"SELECT count(*) FROM {quoted(self._tables[table].name)}")
            return int(found.fetchone()[0])

    # --- the change table ---------------------------------------------------------------------

    def lag(self) -> Lag:
        with explained(self.path):
            last, at_ms = self._last_change(self._db)
        behind = max(last - self._seq, 0)
        return Lag(changes=behind, seconds=max(_now_ms() - at_ms, 0) / 1000 if behind else 0.0)

    def acknowledge(self, position: Position) -> None:
        self._acknowledged, self._token_there = position["seq"], position["token"]

    def _trim(self) -> None:
        """Deletes what the log has, but for the last change: its number must not be given out again."""
        waiting = self._acknowledged - self._trimmed
        if not waiting or (waiting < _TRIM_ROWS and time.monotonic() - self._trimmed_at < _TRIM_S):
            return
        self._trimmed_at = time.monotonic()
        self._db.execute(f"PRAGMA busy_timeout = {_TRIM_BUSY_MS}")
        try:
            self._db.execute("BEGIN IMMEDIATE")
            changes = quoted(self._names.changes)
            (first,) = self._db.execute(f"SELECT min(seq) FROM {changes}").fetchone()
            until = min(self._acknowledged, (first or 0) + _TRIM_ROWS)  # writers wait meanwhile
            self._db.execute(f"DELETE FROM {changes} WHERE seq < ?", (until,))
            self._db.execute(f"DELETE FROM {quoted(self._names.replaced)}")
            token = self._renew_token(self._db) if self._token_there == self._token else self._token
            self._db.execute("COMMIT")
            self._trimmed, self._token = until, token
        except sqlite3.OperationalError as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if not is_busy(error):
                raise
        finally:
            self._db.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")

    def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    @property
    def _db(self) -> sqlite3.Connection:
        assert self._opened is not None, "connect comes first"
        return self._opened

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode=rw",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
        )
        database.execute(f"PRAGMA busy_timeout = {_BUSY_MS}")
        database.text_factory = text
        return database

    def _position(self, seq: int) -> Position:
        return {"seq": seq, "token": self._token}


class _Decoder:
    """Rows of the change table that one generation of a table's triggers has written."""

    def __init__(self, shape: Shape, path: Path, capture: str) -> None:
        self.shape = shape
        self.table = f"main.{shape.table}"
        self._width = len(shape.columns)
        self._encode = row_encoder(shape.columns)
        where = f"{path}: table {shape.table}"
        self._key = key_encoder(shape.columns, shape.key, where=where, capture=capture)

    def changes(self, row: Sequence[Any], layout: "_Layout") -> Iterator[Change]:
        """One change, or two where an update has changed the key."""
        seq, _, op = row[:3]
        source = b'"seq":%d' % seq
        values = layout.new(row, self._width)
        encoded, key = self._encode(values), self._key(values)
        if op == "c":
            yield Change(self.table, "c", key, None, encoded, source)
        elif op == "d":
            yield Change(self.table, "d", key, encoded, None, source)
        else:
            old = layout.old(row, self._width)
            before, old_key = self._encode(old), self._key(old)
            if old_key == key:
                yield Change(self.table, "u", key, before, encoded, source)
            else:
                yield Change(self.table, "d", old_key, before, None, source)
                yield Change(self.table, "c", key, None, encoded, source)


class _Layout:
    """Where the values of a row of the change table are: its columns were added as tables needed them."""

    def __init__(self, columns: Sequence[str]) -> None:
        at = {name: number for number, name in enumerate(columns)}
        self._new = [at[f"c{number}"] for number in range(len(at)) if f"c{number}" in at]
        self._old = [at[f"p{number}"] for number in range(len(at)) if f"p{number}" in at]

    def new(self, row: Sequence[Value], width: int) -> list[Value]:
        return [row[each] for each in self._new[:width]]

    def old(self, row: Sequence[Value], width: int) -> list[Value]:
        return [row[each] for each in self._old[:width]]


def _products(candidates: Sequence[Sequence[Value]]) -> Iterator[list[Value]]:
    if not candidates:
        yield []
        return
    for first in candidates[0]:
        for rest in _products(candidates[1:]):
            yield [first, *rest]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
