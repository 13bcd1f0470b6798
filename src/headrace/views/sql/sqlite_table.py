"""The table of one view in an SQLite file: its columns, and a checksum for each row."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import CorruptionError, RequestError
from headrace.views.batch import NetChanges
from headrace.views.schema import ViewSchema, is_nested
from headrace.views.selection import Selection
from headrace.views.sql.row_checks import CHECK, Checks, Tally, row_checks
from headrace.views.sql.selection_sql import quoted, selection_sql
from headrace.views.sql.sqlite_values import (
    DECIMAL_COLLATION,
    declared_type,
    decode,
    encode,
    encode_value,
)

__all__ = ["Replaced", "SqliteTable", "table_texts"]

Columns = list[tuple[Any, ...]]

_ROWS_AT_ONCE = 50_000


class Replaced:
    """Takes down the checksums of rows that a statement replaces or removes: two functions of SQL."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._rows = self._total = 0
        connection.create_function("headrace_replaced", 2, self._replace)
        connection.create_function("headrace_removed", 1, self._remove)

    def taken(self) -> Tally:
        """What was taken down since the last call."""
        found = Tally(self._rows, self._total)
        self._rows = self._total = 0
        return found

    def _replace(self, old: Any, new: int) -> int:
        self._remove(old)
        return new

    def _remove(self, old: Any) -> int:
        self._rows += 1
        self._total += old if isinstance(old, int) else 0  # damaged: then the tally will say so
        return 1


class SqliteTable:
    """Reads and writes the rows of a view, within a transaction.

    What is read has been compared with its checksums; CorruptionError names the table.
    """

    def __init__(self, connection: sqlite3.Connection, schema: ViewSchema) -> None:
        self._connection, self._schema = connection, schema
        self._names = ", ".join(quoted(name) for name in schema.columns.names)

    # --- the table ----------------------------------------------------------------------------

    def create(self) -> None:
        """Makes it; raises RequestError if the name is taken."""
        name = self._schema.name
        taken = self._connection.execute(
            "SELECT name FROM sqlite_master WHERE name = ? COLLATE NOCASE", (name,)
        ).fetchone()
        if taken:
            raise RequestError(
                f"the file has something called {taken[0]!r} already; give the view another name, or keep it "
                "in another file (SQLite does not tell names apart by case)"
            )
        if any(column.lower() == CHECK for column in self._schema.columns.names):
            raise RequestError(
                f"view {name!r} has a column {CHECK!r}, which SQLite files of views have; rename it"
            )
        self._connection.execute(_text(self._schema, null_keys=False))

    def drop(self) -> None:
        with self._named():
            self._connection.execute(f"DROP TABLE {quoted(self._schema.name)}")

    def add_checks(self) -> Tally:
        """Copies a table of an earlier version, whose rows have no checksums, into one whose rows have."""
        with self._named(), self._copying(null_keys=self._admits_null_keys()) as copied:
            found = self._connection.execute(f"SELECT {self._names} FROM {copied}")  # noqa: S608 - quoted
            tally, insert = Tally(), self._insert()
            for values in iter(lambda: found.fetchmany(_ROWS_AT_ONCE), []):
                checks = self._checks(self._arrays(list(zip(*values, strict=True))), len(values))
                rows = ((*row, check) for row, check in zip(values, checks.tolist(), strict=True))
                self._connection.executemany(insert, rows)
                tally = tally.plus(checks)
        return tally

    def _admit_null_keys(self) -> None:
        """Copies the view into a table that takes nulls in its key, unless it is one already."""
        if self._admits_null_keys():
            return
        with self._copying(null_keys=True) as copied:
            table = quoted(self._schema.name)
            self._connection.execute(f"INSERT INTO {table} SELECT * FROM {copied}")  # noqa: S608 - quoted

    def _admits_null_keys(self) -> bool:
        """A table WITHOUT ROWID, which is a third faster and half as large, refuses nulls in its key."""
        found = self._connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = ?", (self._schema.name,)
        ).fetchone()
        return found is not None and not found[0].endswith("WITHOUT ROWID")

    @contextmanager
    def _copying(self, *, null_keys: bool) -> Iterator[str]:
        """Puts the table aside, under the name that is returned, and a new one in its place."""
        copied = quoted("headrace_copied")
        self._connection.execute(f"ALTER TABLE {quoted(self._schema.name)} RENAME TO {copied}")
        self._connection.execute(_text(self._schema, null_keys=null_keys))
        yield copied
        self._connection.execute(f"DROP TABLE {copied}")

    # --- writing ------------------------------------------------------------------------------

    def write(self, net: NetChanges, tally: Tally, replaced: Replaced) -> Tally:
        """Applies a batch; the tally afterwards."""
        with self._named():
            self._require_as_made()
            replaced.taken()
            if net.removed.num_rows:
                self._delete(net.removed)
            if not net.rows.num_rows:
                return tally.minus(replaced.taken())
            nulls = _null_keyed(self._schema, net.rows)
            if nulls is not None:
                self._admit_null_keys()
                self._delete(net.rows.filter(nulls))  # nulls never conflict
            rows = _by_key(self._schema, net.rows)
            values = [encode(column) for column in rows.columns]
            arrays = [_hashable(*each) for each in zip(rows.columns, values, strict=True)]
            checks = self._checks(arrays, rows.num_rows)
            self._connection.executemany(self._insert(), zip(*values, checks.tolist(), strict=True))
            return tally.plus(checks).minus(replaced.taken())

    def _insert(self) -> str:
        schema, check = self._schema, quoted(CHECK)
        key = ", ".join(quoted(name) for name in schema.key)
        updates = [f"{quoted(name)} = excluded.{quoted(name)}" for name in schema.value_names()]
        updates.append(f"{check} = headrace_replaced({quoted(schema.name)}.{check}, excluded.{check})")
        return (
            f"INSERT INTO {quoted(schema.name)} ({self._names}, {check}) "  # noqa: S608 - quoted
            f"VALUES ({', '.join('?' * len(schema.columns))}, ?) "
            f"ON CONFLICT ({key}) DO UPDATE SET {', '.join(updates)}"
        )

    def _delete(self, keys: pa.Table) -> None:
        terms = " AND ".join(f"{quoted(name)} IS ?" for name in self._schema.key)
        self._connection.executemany(
            f"DELETE FROM {quoted(self._schema.name)} "  # noqa: S608 - quoted
            f"WHERE {terms} AND headrace_removed({quoted(CHECK)})",
            zip(*(encode(keys[name]) for name in self._schema.key), strict=True),
        )

    # --- reading ------------------------------------------------------------------------------

    def select(self, selection: Selection, tally: Tally | None) -> pa.Table:
        """The rows; if they are the whole view, they are compared with the tally, too.

        Without a tally, the table is of an earlier version, and its rows have no checksums.
        """
        with self._named():
            table, more = quoted(self._schema.name), "" if tally is None else CHECK
            if tally is not None and self._require_as_made():
                table += " NOT INDEXED"  # it has an index of its own, which no checksum covers
            sql = selection_sql(self._schema, selection, _Dialect(), table, more=more)
            found = list(zip(*self._connection.execute(sql.text, sql.parameters).fetchall(), strict=True))
            arrays = self._arrays(found)
            if tally is not None:
                checks = self._compared(found, arrays)
                if selection.is_whole:
                    _require(Tally().plus(checks), tally)
            return self._table(arrays)

    def check(self, tally: Tally) -> None:
        """Compares all rows with their checksums and the tally."""
        with self._named():
            self._require_as_made()
            table, counted = quoted(self._schema.name), Tally()
            found = self._connection.execute(f"SELECT {self._names}, {quoted(CHECK)} FROM {table}")  # noqa: S608
            for rows in iter(lambda: found.fetchmany(_ROWS_AT_ONCE), []):
                columns = list(zip(*rows, strict=True))
                counted = counted.plus(self._compared(columns, self._arrays(columns)))
            _require(counted, tally)

    def _compared(self, columns: Columns, arrays: list[pa.Array]) -> Checks:
        """The checksums of rows whose last column has theirs."""
        checks = self._checks(arrays, len(arrays[0]))
        written, found = columns[-1] if columns else (), tuple(checks.tolist())
        if written != found:
            wrong = sum(one != other for one, other in zip(written, found, strict=True))
            raise CorruptionError(f"{wrong} of {len(found)} rows are not what was written")
        return checks

    def _checks(self, arrays: list[pa.Array], rows: int) -> Checks:
        return row_checks(self._schema.name, arrays, rows)

    def _arrays(self, columns: Columns) -> list[pa.Array]:
        """The columns of the view, nested ones as their JSON; what stands behind them is left out."""
        return [
            decode(list(values), pa.string() if is_nested(each.type) else each.type)
            for values, each in zip(columns or repeat(()), self._schema.columns, strict=False)
        ]

    def _table(self, arrays: list[pa.Array]) -> pa.Table:
        columns = [
            decode(array.to_pylist(), each.type) if is_nested(each.type) else array
            for array, each in zip(arrays, self._schema.columns, strict=True)
        ]
        return pa.table(columns, schema=self._schema.columns)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Damage is reported with the name of the table, which must have been made as it is made here."""
        try:
            yield
        except (ValueError, TypeError, ArithmeticError, pa.ArrowException) as error:
            raise self._damaged(f"a value is not what was written: {error}") from error
        except CorruptionError as error:
            raise self._damaged(str(error)) from error
        except sqlite3.DatabaseError as error:
            if getattr(error, "sqlite_errorname", "SQLITE_CORRUPT").startswith("SQLITE_CORRUPT"):
                raise self._damaged(str(error)) from error
            raise

    def _damaged(self, what: str) -> CorruptionError:
        return CorruptionError(f"table {self._schema.name!r} is damaged: {what}")

    def _require_as_made(self) -> bool:
        """Whether it takes nulls in its key; CorruptionError if it is declared neither way.

        SQLite reads a table by its declaration, which may be damaged like everything else.
        """
        found = {text for (text,) in self._connection.execute("SELECT sql FROM sqlite_master")}
        for null_keys in (False, True):
            if _text(self._schema, null_keys=null_keys) in found:
                return null_keys
        raise CorruptionError("it is missing, or not declared as it was made")


def table_texts(schema: ViewSchema) -> frozenset[str]:
    """The statements that may have made a view's table."""
    return frozenset(_text(schema, null_keys=null_keys) for null_keys in (False, True))


def _text(schema: ViewSchema, *, null_keys: bool) -> str:
    columns = [f"{quoted(each.name)} {declared_type(each.type)}".rstrip() for each in schema.columns]
    columns.append(f"{quoted(CHECK)} INTEGER")
    key = ", ".join(quoted(name) for name in schema.key)
    kind = "" if null_keys else " WITHOUT ROWID"
    return f"CREATE TABLE {quoted(schema.name)} ({', '.join(columns)}, PRIMARY KEY ({key})){kind}"


def _require(found: Tally, tally: Tally) -> None:
    if found.rows != tally.rows:
        raise CorruptionError(f"it has {found.rows} rows, and {tally.rows} were written")
    if found.total != tally.total:
        raise CorruptionError("some of its rows are not the last that were written")


def _hashable(column: pa.ChunkedArray, values: list[Any]) -> pa.Array:
    """A column as its checksums see it, with its values as SQLite has them."""
    return pa.array(values, pa.string()) if is_nested(column.type) else column.combine_chunks()


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
