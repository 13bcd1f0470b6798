"""Views in an SQLite file: the default store.

A view is a table of its name, with its key as primary key, so that anything that reads
SQLite reads views. Beside them, `headrace_ledger` has a row a view and
`headrace_changes` the changes that views keep. Batches are written in one transaction
each; in WAL mode readers go on meanwhile and see the state before it.
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import ConfigError, DiskError, RequestError, RetriableError
from headrace.views.batch import Net, ViewBatch, net_changes
from headrace.views.changelog import kept_changes
from headrace.views.json_values import dumps
from headrace.views.ledger import Ledger, Reflected
from headrace.views.schema import ViewSchema
from headrace.views.selecting import Condition, Order, Selection
from headrace.views.selecting_sql import quoted, selection_sql
from headrace.views.sqlite_values import (
    DECIMAL_COLLATION,
    compare_decimals,
    declared_type,
    decode,
    encode,
    encode_value,
)
from headrace.views.store import Change, Snapshot, require_since, require_view

__all__ = ["SqliteStore"]

_BUSY_TIMEOUT_S = 30.0
_CACHE_KIB = 64 << 10

_TABLES = """
CREATE TABLE IF NOT EXISTS headrace_ledger (
  view TEXT PRIMARY KEY COLLATE NOCASE, query_id TEXT, batch_id INTEGER, watermark TEXT, ledger TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS headrace_changes (
  view TEXT NOT NULL, sequence INTEGER NOT NULL, batch_id INTEGER NOT NULL, kind INTEGER NOT NULL,
  "key" TEXT NOT NULL, "before" TEXT, "after" TEXT, PRIMARY KEY (view, sequence)
) WITHOUT ROWID;
"""


class SqliteStore:
    """A ViewStore in one file; the encodings are those of `headrace.views.sqlite_values`.

    Every commit is synced (`synchronous=FULL`). Needs a local disk, as WAL does.
    Writing and reading have a connection each; a thread waits for another that does
    the same thing on this object.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._writing, self._reading = threading.Lock(), threading.Lock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._writer = _connect(self.path)
            self._writer.execute("PRAGMA journal_mode=WAL")
            self._writer.execute("PRAGMA synchronous=FULL")
            self._writer.execute(f"PRAGMA cache_size=-{_CACHE_KIB}")
            self._writer.executescript(_TABLES)
            self._reader = _connect(self.path)
            self._reader.execute("PRAGMA query_only=ON")
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(
                f"cannot keep views in {self.path}: {error}; give the path of an SQLite file, new or made by "
                "Headrace, in a folder that can be written"
            ) from error

    def prepare(self, schema: ViewSchema) -> None:
        with self._transaction() as connection:
            ledger = _ledger(connection, schema.name)
            if ledger is None:
                _create(connection, schema)
                _write_ledger(connection, Ledger(schema=schema))
                return
            ledger.require_rows_of(schema)
            _write_ledger(connection, ledger.with_schema(schema))

    def begin(
        self, view: str, query_id: str, *, schema: ViewSchema | None = None, first_batch: int = 0
    ) -> Reflected:
        with self._transaction() as connection:
            ledger = _require(connection, view).begin(query_id, schema, first_batch)
            _write_ledger(connection, ledger)
            return ledger.reflected

    def apply(self, view: str, batch: ViewBatch) -> bool:
        with self._transaction() as connection:
            entry = _require(connection, view).enter(batch)
            if entry is None:
                return False
            schema = entry.ledger.schema
            if entry.resets:
                _forget(connection, view)
                _create(connection, schema)
            _write_rows(connection, schema, net_changes(schema, batch.changes))
            sequence = _write_changes(connection, schema, batch, entry.ledger.sequence)
            _write_ledger(connection, entry.ledger.with_sequence(sequence))
            return True

    def read(
        self,
        view: str,
        *,
        where: Iterable[Condition] = (),
        order: Iterable[Order] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> pa.Table:
        return self.snapshot(view, where=where, order=order, limit=limit, offset=offset).rows

    def snapshot(
        self,
        view: str,
        *,
        where: Iterable[Condition] = (),
        order: Iterable[Order] = (),
        limit: int | None = None,
        offset: int = 0,
    ) -> Snapshot:
        with self._read() as connection:
            ledger = _require(connection, view)
            schema = ledger.schema
            selection = Selection.of(schema, where, order, limit, offset)
            sql = selection_sql(schema, selection, _Dialect(), quoted(schema.name))
            found = connection.execute(sql.text, sql.parameters).fetchall()
        return Snapshot(_to_table(schema, found), ledger.reflected)

    def reflected(self, view: str) -> Reflected:
        with self._read() as connection:
            return _require(connection, view).reflected

    def changes(self, view: str, since: int = 0, limit: int = 1_000) -> list[Change]:
        with self._read() as connection:
            ledger = _require(connection, view)
            name = ledger.schema.name
            (oldest,) = connection.execute(
                "SELECT min(sequence) FROM headrace_changes WHERE view = ?", (name,)
            ).fetchone()
            require_since(view, since, oldest, ledger.sequence)
            found = connection.execute(
                'SELECT sequence, batch_id, kind, "key", "before", "after" FROM headrace_changes '
                "WHERE view = ? AND sequence > ? ORDER BY sequence LIMIT ?",
                (name, since, limit),
            ).fetchall()
        return [_to_change(each) for each in found]

    def last_sequence(self, view: str) -> int:
        with self._read() as connection:
            return _require(connection, view).sequence

    def views(self) -> list[str]:
        with self._read() as connection:
            return _names(connection)

    def schema(self, view: str) -> ViewSchema:
        with self._read() as connection:
            return _require(connection, view).schema

    def drop(self, view: str) -> None:
        with self._transaction() as connection:
            ledger = _ledger(connection, view)
            if ledger is not None:
                _forget(connection, ledger.schema.name)
                connection.execute("DELETE FROM headrace_ledger WHERE view = ?", (view,))

    def close(self) -> None:
        with self._writing, self._reading:
            self._reader.close()
            self._writer.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """One step: everything in the block is written and synced, or nothing."""
        with self._writing, _explained(self.path):
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            finally:
                if self._writer.in_transaction:
                    self._writer.execute("ROLLBACK")

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        """One moment: everything in the block sees the same batches."""
        with self._reading, _explained(self.path):
            self._reader.execute("BEGIN")
            try:
                yield self._reader
            finally:
                self._reader.execute("ROLLBACK")


class _Dialect:
    """SQLite sorts nulls first and compares text by its bytes, which is what is wanted."""

    placeholder = "?"

    def operand(self, name: str, kind: pa.DataType) -> str:
        collation = f" COLLATE {DECIMAL_COLLATION}" if pa.types.is_decimal(kind) else ""
        return quoted(name) + collation

    def parameter(self, value: Any, kind: pa.DataType) -> Any:
        return encode_value(value, kind)

    def order(self, operand: str, descending: bool) -> str:
        return f"{operand} DESC" if descending else operand


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    connection.create_collation(DECIMAL_COLLATION, compare_decimals)
    return connection


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """SQLite's errors as ours."""
    try:
        yield
    except sqlite3.OperationalError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise RetriableError(
                f"{path} was in use by another writer for {_BUSY_TIMEOUT_S:.0f} s; try again"
            ) from error
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN")):
            raise DiskError(
                f"{path}: {error}; make room or correct the permissions", full=name == "SQLITE_FULL"
            ) from error
        raise


# --- on one connection, inside a transaction -------------------------------------------------------


def _ledger(connection: sqlite3.Connection, view: str) -> Ledger | None:
    row = connection.execute(
        "SELECT ledger FROM headrace_ledger WHERE view = ? COLLATE BINARY", (view,)
    ).fetchone()
    return None if row is None else Ledger.loads(row[0])


def _names(connection: sqlite3.Connection) -> list[str]:
    return [name for (name,) in connection.execute("SELECT view FROM headrace_ledger ORDER BY view")]


def _require(connection: sqlite3.Connection, view: str) -> Ledger:
    ledger = _ledger(connection, view)
    return ledger if ledger is not None else require_view(None, view, _names(connection))


def _write_ledger(connection: sqlite3.Connection, ledger: Ledger) -> None:
    reflected = ledger.reflected
    watermark = pa.array([reflected.watermark_us], pa.timestamp("us", "UTC"))
    connection.execute(
        "INSERT OR REPLACE INTO headrace_ledger VALUES (?, ?, ?, ?, ?)",
        (
            ledger.schema.name,
            reflected.query_id,
            reflected.batch_id,
            encode(pa.chunked_array([watermark]))[0],
            ledger.dumps(),
        ),
    )


def _create(connection: sqlite3.Connection, schema: ViewSchema, *, null_keys: bool = False) -> None:
    """Makes the view's table.

    WITHOUT ROWID, which is a third faster and half as large, as long as no key has a
    null: such a table refuses them.
    """
    taken = connection.execute(
        "SELECT name FROM sqlite_master WHERE name = ? COLLATE NOCASE", (schema.name,)
    ).fetchone()
    if taken:
        raise RequestError(
            f"the file has something called {taken[0]!r} already; give the view another name, or keep it "
            "in another file (SQLite does not tell names apart by case)"
        )
    columns = [f"{quoted(each.name)} {declared_type(each.type)}".rstrip() for each in schema.columns]
    key = ", ".join(quoted(name) for name in schema.key)
    kind = "" if null_keys else " WITHOUT ROWID"
    connection.execute(
        f"CREATE TABLE {quoted(schema.name)} ({', '.join(columns)}, PRIMARY KEY ({key})){kind}"
    )


def _forget(connection: sqlite3.Connection, view: str) -> None:
    """Removes the rows and the changes of a view, and its table."""
    connection.execute(f"DROP TABLE {quoted(view)}")
    connection.execute("DELETE FROM headrace_changes WHERE view = ?", (view,))


def _write_rows(connection: sqlite3.Connection, schema: ViewSchema, net: Net) -> None:
    if net.removed.num_rows:
        _delete(connection, schema, net.removed)
    if not net.rows.num_rows:
        return
    nulls = _null_keyed(schema, net.rows)
    if nulls is not None:
        _admit_null_keys(connection, schema)
        _delete(connection, schema, net.rows.filter(nulls))  # nulls never conflict
    names = ", ".join(quoted(name) for name in schema.columns.names)
    key = ", ".join(quoted(name) for name in schema.key)
    updates = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in schema.value_names())
    connection.executemany(
        f"INSERT INTO {quoted(schema.name)} ({names}) VALUES ({', '.join('?' * len(schema.columns))}) "  # noqa: S608
        f"ON CONFLICT ({key}) DO {'UPDATE SET ' + updates if updates else 'NOTHING'}",
        zip(*(encode(column) for column in _by_key(schema, net.rows).columns), strict=True),
    )


def _by_key(schema: ViewSchema, rows: pa.Table) -> pa.Table:
    """In the order of the table on disk: rows that are neighbours there are written together."""
    keys = rows.select(list(schema.key)).rename_columns([str(index) for index in range(len(schema.key))])
    return rows.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))


def _admit_null_keys(connection: sqlite3.Connection, schema: ViewSchema) -> None:
    """Copies the view into a table that takes nulls in its key, unless it is one already."""
    (sql,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (schema.name,)).fetchone()
    if not sql.endswith("WITHOUT ROWID"):
        return
    copied = quoted("headrace_copied")
    connection.execute(f"ALTER TABLE {quoted(schema.name)} RENAME TO {copied}")
    _create(connection, schema, null_keys=True)
    connection.execute(f"INSERT INTO {quoted(schema.name)} SELECT * FROM {copied}")  # noqa: S608 - quoted
    connection.execute(f"DROP TABLE {copied}")


def _null_keyed(schema: ViewSchema, rows: pa.Table) -> pa.Array | None:
    """Which rows have a null in their key; None if none has."""
    masks = [pc.is_null(rows[name]) for name in schema.key if rows[name].null_count]
    if not masks:
        return None
    found = masks[0]
    for each in masks[1:]:
        found = pc.or_(found, each)
    return found


def _delete(connection: sqlite3.Connection, schema: ViewSchema, keys: pa.Table) -> None:
    terms = " AND ".join(f"{quoted(name)} IS ?" for name in schema.key)
    connection.executemany(
        f"DELETE FROM {quoted(schema.name)} WHERE {terms}",  # noqa: S608 - quoted
        zip(*(encode(keys[name]) for name in schema.key), strict=True),
    )


def _write_changes(
    connection: sqlite3.Connection, schema: ViewSchema, batch: ViewBatch, sequence: int
) -> int:
    kept, last = kept_changes(schema, batch, sequence)
    connection.executemany(
        "INSERT INTO headrace_changes VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            (schema.name, each.sequence, each.batch_id, each.kind, *_texts(each.key, each.before, each.after))
            for each in kept
        ],
    )
    connection.execute(
        "DELETE FROM headrace_changes WHERE view = ? AND sequence <= ?",
        (schema.name, last - schema.keep_changes),
    )
    return last


def _texts(*rows: dict[str, Any] | None) -> list[str | None]:
    return [None if each is None else dumps(each) for each in rows]


# --- rows to values --------------------------------------------------------------------------------


def _to_table(schema: ViewSchema, found: list[tuple[Any, ...]]) -> pa.Table:
    if not found:
        return schema.columns.empty_table()
    arrays = [
        decode(list(values), each.type)
        for values, each in zip(zip(*found, strict=True), schema.columns, strict=True)
    ]
    return pa.table(arrays, schema=schema.columns)


def _to_change(row: tuple[Any, ...]) -> Change:
    sequence, batch_id, kind, key, before, after = row
    parts = [None if each is None else orjson.loads(each) for each in (before, after)]
    return Change(sequence, batch_id, kind, orjson.loads(key), *parts)
