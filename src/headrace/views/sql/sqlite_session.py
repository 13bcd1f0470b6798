"""What happens inside one SQLite transaction."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headrace.checked_json import decode_fields, encode_fields
from headrace.errors import CorruptionError, RequestError
from headrace.views.batch import NetChanges, StagedChanges
from headrace.views.changes import ViewChange
from headrace.views.formats import dumps
from headrace.views.ledger import Ledger
from headrace.views.schema import ViewSchema
from headrace.views.selection import Selection
from headrace.views.sql.selection_sql import quoted, selection_sql
from headrace.views.sql.sqlite_values import DECIMAL_COLLATION, declared_type, decode, encode, encode_value

__all__ = ["TABLES", "SqliteSession"]

TABLES = """
CREATE TABLE IF NOT EXISTS headrace_ledger (
  view TEXT PRIMARY KEY COLLATE NOCASE, query_id TEXT, batch_id INTEGER, watermark TEXT, ledger TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS headrace_changes (
  view TEXT NOT NULL, sequence INTEGER NOT NULL, batch_id INTEGER NOT NULL, kind INTEGER NOT NULL,
  "key" TEXT NOT NULL, "before" TEXT, "after" TEXT, PRIMARY KEY (view, sequence)
) WITHOUT ROWID;
"""

_EARLIER = ("schema", "reflected", "sequence", "next_query", "next_schema", "next_batch")


class SqliteSession:
    """An `SqlSession`; every name that stands in its statements is quoted."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def ledger(self, view: str, *, lock: bool = False) -> Ledger | None:
        del lock  # a writing transaction keeps all others waiting
        row = self._connection.execute(
            "SELECT ledger FROM headrace_ledger WHERE view = ? COLLATE BINARY", (view,)
        ).fetchone()
        return None if row is None else _ledger_of(view, row[0])

    def views(self) -> list[str]:
        found = self._connection.execute("SELECT view FROM headrace_ledger ORDER BY view COLLATE BINARY")
        return [name for (name,) in found]

    def write_ledger(self, ledger: Ledger) -> None:
        reflected = ledger.reflected
        watermark = pa.array([reflected.watermark_us], pa.timestamp("us", "UTC"))
        self._connection.execute(
            "INSERT OR REPLACE INTO headrace_ledger VALUES (?, ?, ?, ?, ?)",
            (
                ledger.schema.name,
                reflected.query_id,
                reflected.batch_id,
                encode(pa.chunked_array([watermark]))[0],
                encode_fields(ledger.to_json()).decode(),
            ),
        )

    def create(self, schema: ViewSchema) -> None:
        self._create(schema, null_keys=False)

    def clear(self, old: ViewSchema, new: ViewSchema) -> None:
        self._connection.execute(f"DROP TABLE {quoted(old.name)}")
        self._connection.execute("DELETE FROM headrace_changes WHERE view = ?", (old.name,))
        self.create(new)

    def forget(self, schema: ViewSchema) -> None:
        self._connection.execute(f"DROP TABLE {quoted(schema.name)}")
        self._connection.execute("DELETE FROM headrace_changes WHERE view = ?", (schema.name,))
        self._connection.execute("DELETE FROM headrace_ledger WHERE view = ?", (schema.name,))

    def write_rows(self, schema: ViewSchema, net: NetChanges) -> None:
        if net.removed.num_rows:
            self._delete(schema, net.removed)
        if not net.rows.num_rows:
            return
        nulls = _null_keyed(schema, net.rows)
        if nulls is not None:
            self._admit_null_keys(schema)
            self._delete(schema, net.rows.filter(nulls))  # nulls never conflict
        self._connection.executemany(
            _upsert(schema),
            zip(*(encode(column) for column in _by_key(schema, net.rows).columns), strict=True),
        )

    def write_changes(self, view: str, changes: list[ViewChange], drop_up_to: int) -> None:
        self._connection.executemany(
            "INSERT INTO headrace_changes VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (view, each.sequence, each.batch_id, each.kind, *_texts(each.key, each.before, each.after))
                for each in changes
            ],
        )
        self._connection.execute(
            "DELETE FROM headrace_changes WHERE view = ? AND sequence <= ?", (view, drop_up_to)
        )

    def take_up(
        self, schema: ViewSchema, batch_id: int, staged: Sequence[StagedChanges], sequence: int
    ) -> None:
        del batch_id, staged, sequence
        raise RequestError(f"view {schema.name!r}: executors cannot write to SQLite, only the driver can")

    def select(self, schema: ViewSchema, selection: Selection) -> pa.Table:
        sql = selection_sql(schema, selection, _Dialect(), quoted(schema.name))
        found = self._connection.execute(sql.text, sql.parameters).fetchall()
        if not found:
            return schema.columns.empty_table()
        columns = zip(zip(*found, strict=True), schema.columns, strict=True)
        try:
            arrays = [decode(list(values), each.type) for values, each in columns]
        except (ValueError, TypeError, pa.ArrowException) as error:
            raise CorruptionError(f"a row of {schema.name!r} is not what was written: {error}") from error
        return pa.table(arrays, schema=schema.columns)

    def oldest_change(self, view: str) -> int | None:
        (oldest,) = self._connection.execute(
            "SELECT min(sequence) FROM headrace_changes WHERE view = ?", (view,)
        ).fetchone()
        return oldest  # type: ignore[no-any-return]

    def changes(self, view: str, since: int, limit: int) -> list[ViewChange]:
        found = self._connection.execute(
            'SELECT sequence, batch_id, kind, "key", "before", "after" FROM headrace_changes '
            "WHERE view = ? AND sequence > ? ORDER BY sequence LIMIT ?",
            (view, since, limit),
        )
        try:
            return [ViewChange(*each[:3], *_rows(*each[3:])) for each in found.fetchall()]
        except ValueError as error:
            raise CorruptionError(f"a change of {view!r} is not what was written: {error}") from error

    # --- tables and keys ----------------------------------------------------------------------

    def _create(self, schema: ViewSchema, *, null_keys: bool) -> None:
        """Makes the view's table.

        WITHOUT ROWID, which is a third faster and half as large, as long as no key has a
        null: such a table refuses them.
        """
        taken = self._connection.execute(
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
        self._connection.execute(
            f"CREATE TABLE {quoted(schema.name)} ({', '.join(columns)}, PRIMARY KEY ({key})){kind}"
        )

    def _admit_null_keys(self, schema: ViewSchema) -> None:
        """Copies the view into a table that takes nulls in its key, unless it is one already."""
        found = self._connection.execute("SELECT sql FROM sqlite_master WHERE name = ?", (schema.name,))
        if not found.fetchone()[0].endswith("WITHOUT ROWID"):
            return
        table, copied = quoted(schema.name), quoted("headrace_copied")
        self._connection.execute(f"ALTER TABLE {table} RENAME TO {copied}")
        self._create(schema, null_keys=True)
        self._connection.execute(f"INSERT INTO {table} SELECT * FROM {copied}")  # noqa: S608 - quoted
        self._connection.execute(f"DROP TABLE {copied}")

    def _delete(self, schema: ViewSchema, keys: pa.Table) -> None:
        terms = " AND ".join(f"{quoted(name)} IS ?" for name in schema.key)
        self._connection.executemany(
            f"DELETE FROM {quoted(schema.name)} WHERE {terms}",  # noqa: S608 - quoted
            zip(*(encode(keys[name]) for name in schema.key), strict=True),
        )


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


def _ledger_of(view: str, text: str) -> Ledger:
    """Those of earlier versions have no checksum."""
    try:
        return Ledger.from_json(decode_fields(text.encode(), _EARLIER).fields)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(
            f"the ledger of view {view!r} (a row of headrace_ledger) is damaged: {error}"
        ) from error


def _upsert(schema: ViewSchema) -> str:
    names = ", ".join(quoted(name) for name in schema.columns.names)
    key = ", ".join(quoted(name) for name in schema.key)
    updates = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in schema.value_names())
    return (
        f"INSERT INTO {quoted(schema.name)} ({names}) VALUES ({', '.join('?' * len(schema.columns))}) "  # noqa: S608
        f"ON CONFLICT ({key}) DO {'UPDATE SET ' + updates if updates else 'NOTHING'}"
    )


def _by_key(schema: ViewSchema, rows: pa.Table) -> pa.Table:
    """In the order of the table on disk: rows that are neighbours there are written together."""
    keys = rows.select(list(schema.key)).rename_columns([str(index) for index in range(len(schema.key))])
    return rows.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names]))


def _null_keyed(schema: ViewSchema, rows: pa.Table) -> pa.Array | None:
    """Which rows have a null in their key; None if none has."""
    masks = [pc.is_null(rows[name]) for name in schema.key if rows[name].null_count]
    if not masks:
        return None
    found = masks[0]
    for each in masks[1:]:
        found = pc.or_(found, each)
    return found


def _texts(*rows: dict[str, Any] | None) -> list[str | None]:
    return [None if each is None else dumps(each) for each in rows]


def _rows(*texts: str | None) -> list[Any]:
    return [None if each is None else orjson.loads(each) for each in texts]
