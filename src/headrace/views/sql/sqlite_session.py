"""What happens inside one SQLite transaction."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pyarrow as pa

from headrace.checked_json import decode_fields, encode_fields
from headrace.errors import CorruptionError, RequestError
from headrace.views.batch import NetChanges, StagedChanges
from headrace.views.changes import ViewChange
from headrace.views.formats import dumps
from headrace.views.ledger import Ledger
from headrace.views.schema import ViewSchema
from headrace.views.selection import Selection
from headrace.views.sql.row_checks import CHECK, RecentChecks, Tally, change_check
from headrace.views.sql.selection_sql import quoted
from headrace.views.sql.sqlite_table import Replaced, SqliteTable, table_texts
from headrace.views.sql.sqlite_values import encode

__all__ = ["SqliteSession", "create_tables"]

_LEDGERS = """
CREATE TABLE IF NOT EXISTS headrace_ledger (
  view TEXT PRIMARY KEY COLLATE NOCASE, query_id TEXT, batch_id INTEGER, watermark TEXT, ledger TEXT NOT NULL
)
"""
_CHANGES = f"""
CREATE TABLE IF NOT EXISTS headrace_changes (
  view TEXT NOT NULL, sequence INTEGER NOT NULL, batch_id INTEGER NOT NULL, kind INTEGER NOT NULL,
  "key" TEXT NOT NULL, "before" TEXT, "after" TEXT, {CHECK} INTEGER, PRIMARY KEY (view, sequence)
) WITHOUT ROWID
"""
_CHANGE_COLUMNS = 'view, sequence, batch_id, kind, "key", "before", "after"'

_EARLIER = ("schema", "reflected", "sequence", "next_query", "next_schema", "next_batch")


def create_tables(connection: sqlite3.Connection) -> None:
    """Makes the two tables that all views of a file share, unless they are there."""
    connection.execute(_LEDGERS)
    connection.execute(_CHANGES)
    columns = connection.execute("SELECT name FROM pragma_table_info('headrace_changes')")
    if (CHECK,) not in columns.fetchall():  # made by an earlier version
        connection.execute(f"ALTER TABLE headrace_changes ADD COLUMN {CHECK} INTEGER")


@dataclass(frozen=True, slots=True)
class _Entry:
    """A ledger, and the tally of the view's rows; without one, an earlier version has written them."""

    ledger: Ledger
    tally: Tally | None


class SqliteSession:
    """An `SqlSession`; every name that stands in its statements is quoted.

    What is read is compared with the checksums it was written with. Those of earlier versions have
    none: they are read as they are, and get theirs with the next batch.
    """

    def __init__(
        self, connection: sqlite3.Connection, recent: RecentChecks, replaced: Replaced | None = None
    ) -> None:
        self._connection, self._recent, self._replaced = connection, recent, replaced
        self._tallies: dict[str, Tally | None] = {}

    def ledger(self, view: str, *, lock: bool = False) -> Ledger | None:
        del lock  # a writing transaction keeps all others waiting
        row = self._connection.execute(
            "SELECT view, ledger FROM headrace_ledger WHERE view = ? COLLATE BINARY", (view,)
        ).fetchone()
        if row is None:
            if view in self.views():
                raise CorruptionError(f"table headrace_ledger is damaged: view {view!r} is not in its index")
            return None
        entry = _entry_of(*row)
        self._tallies[view] = entry.tally
        return entry.ledger

    def views(self) -> list[str]:
        found = self._connection.execute("SELECT view, ledger FROM headrace_ledger NOT INDEXED")
        schemas = [_entry_of(*each).ledger.schema for each in found.fetchall()]
        self._require_ledgers(schemas)
        return sorted(each.name for each in schemas)

    def write_ledger(self, ledger: Ledger) -> None:
        reflected, tally = ledger.reflected, self._tallies.get(ledger.schema.name)
        watermark = pa.array([reflected.watermark_us], pa.timestamp("us", "UTC"))
        fields = ledger.to_json()
        if tally is not None:
            fields |= {"rows": tally.rows, "checks": tally.total}
        self._connection.execute(
            "INSERT OR REPLACE INTO headrace_ledger VALUES (?, ?, ?, ?, ?)",
            (
                ledger.schema.name,
                reflected.query_id,
                reflected.batch_id,
                encode(pa.chunked_array([watermark]))[0],
                encode_fields(fields).decode(),
            ),
        )

    def create(self, schema: ViewSchema) -> None:
        self._table(schema).create()
        self._tallies[schema.name] = Tally()

    def clear(self, old: ViewSchema, new: ViewSchema) -> None:
        self._drop(old)
        self.create(new)

    def forget(self, schema: ViewSchema) -> None:
        self._drop(schema)
        self._connection.execute("DELETE FROM headrace_ledger WHERE view = ?", (schema.name,))

    def write_rows(self, schema: ViewSchema, net: NetChanges) -> None:
        assert self._replaced is not None, "only a writer's connection takes down what is replaced"
        table, tally = self._table(schema), self._tallies[schema.name]
        if tally is None:
            tally = table.add_checks()
        self._tallies[schema.name] = table.write(net, tally, self._replaced)

    def write_changes(self, view: str, changes: list[ViewChange], drop_up_to: int) -> None:
        self._connection.executemany(
            f"INSERT INTO headrace_changes ({_CHANGE_COLUMNS}, {CHECK}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            ((*row, change_check(row)) for row in _change_rows(view, changes)),
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
        table, tally = self._table(schema), self._tallies[schema.name]
        if tally is not None and not selection.is_whole and not self._recent.has(schema.name):
            table.check(tally)
            self._recent.add(schema.name)
        return table.select(selection, tally)

    def oldest_change(self, view: str) -> int | None:
        (oldest,) = self._connection.execute(
            "SELECT min(sequence) FROM headrace_changes WHERE view = ?", (view,)
        ).fetchone()
        return oldest  # type: ignore[no-any-return]

    def changes(self, view: str, since: int, limit: int) -> list[ViewChange]:
        found = self._connection.execute(
            f"SELECT {_CHANGE_COLUMNS}, {CHECK} FROM headrace_changes "  # noqa: S608 - constants
            "WHERE view = ? AND sequence > ? ORDER BY sequence LIMIT ?",
            (view, since, limit),
        ).fetchall()
        for number, (*values, check) in enumerate(found, since + 1):
            if values[1] != number or check not in (None, change_check(values)):
                raise CorruptionError(f"change {number} of view {view!r} in headrace_changes is damaged")
        try:
            return [ViewChange(*each[1:4], *_rows(*each[4:7])) for each in found]
        except ValueError as error:
            raise CorruptionError(f"a change of {view!r} is not what was written: {error}") from error

    def _table(self, schema: ViewSchema) -> SqliteTable:
        return SqliteTable(self._connection, schema)

    def _drop(self, schema: ViewSchema) -> None:
        self._table(schema).drop()
        self._connection.execute("DELETE FROM headrace_changes WHERE view = ?", (schema.name,))

    def _require_ledgers(self, schemas: Iterable[ViewSchema]) -> None:
        """Raises CorruptionError for a table that was made for a view of which there is no ledger."""
        made = {text for each in schemas for text in table_texts(each)}
        found = self._connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE instr(sql, ?) AND NOT instr(sql, 'headrace_changes')",
            (quoted(CHECK),),
        )
        for name, text in found:
            if text not in made:
                raise CorruptionError(
                    f"table {name!r} or headrace_ledger is damaged: they do not go together"
                )


def _entry_of(view: str, text: str) -> _Entry:
    """Those of earlier versions have no checksum."""
    try:
        fields = decode_fields(text.encode(), _EARLIER).fields
        ledger = Ledger.from_json(fields)
        if ledger.schema.name != view:
            raise ValueError(f"it is that of {ledger.schema.name!r}")
        return _Entry(ledger, Tally(fields["rows"], fields["checks"]) if "rows" in fields else None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(
            f"the ledger of view {view!r} (a row of headrace_ledger) is damaged: {error}"
        ) from error


def _change_rows(view: str, changes: Iterable[ViewChange]) -> Iterator[tuple[Any, ...]]:
    for each in changes:
        texts = _texts(each.key, each.before, each.after)
        yield (view, each.sequence, each.batch_id, int(each.kind), *texts)


def _texts(*rows: dict[str, Any] | None) -> list[str | None]:
    return [None if each is None else dumps(each) for each in rows]


def _rows(*texts: str | None) -> list[Any]:
    return [None if each is None else orjson.loads(each) for each in texts]
