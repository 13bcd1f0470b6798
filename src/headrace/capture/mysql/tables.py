"""The captured tables: as the log describes them row by row, and what a change of them means.

Rows are read by the table map before them, which has the names and types of their time. Whether
rows that were written before still fit is decided by the catalog, looked at after each statement
that may have changed a table, and now and then. A table that is gone stops the capture.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from headrace.capture.change import Change, Item, Resnapshot, TableSchema
from headrace.capture.mysql.catalog import Cascade, Table, read_cascades, read_charsets, read_tables
from headrace.capture.mysql.decode import (
    MALFORMED,
    Kind,
    LoggedColumn,
    LogRows,
    Meaning,
    Statement,
    TableMap,
    kind_of,
    log_reader,
    log_table,
    mentions,
    read_table_map,
    table_id,
)
from headrace.capture.mysql.wire import Connection
from headrace.capture.source import TablesGone
from headrace.kernels import LogTable

__all__ = ["CapturedTables", "LoggedTable", "touched_by"]

_NAMED = (Kind.UUID, Kind.INET4, Kind.INET6)


class LoggedTable:
    """A table of the log: who reads its rows, or why nobody can.

    `misfit` says why its rows do not fit those of today: they come from before it was changed. `layout` is
    how a kernel reads them, unless the table has columns that only Python knows.
    """

    def __init__(
        self,
        described: TableMap,
        rows: LogRows | None,
        reason: str,
        *,
        is_captured: bool,
        misfit: str = "",
        layout: LogTable | None = None,
    ) -> None:
        self.described, self.rows, self.reason = described, rows, reason
        self.is_captured, self.misfit, self.layout = is_captured, misfit, layout

    @property
    def name(self) -> str:
        return self.described.full_name


class CapturedTables:
    """Tables by `schema.name`; `shapes` tells whether one has changed since it was last seen.

    `wanted` are the captured ones; none for all of the database.
    """

    def __init__(self, queries: Connection, schema: str, wanted: Sequence[str]) -> None:
        self._queries, self._schema, self._wanted = queries, schema, tuple(wanted)
        self.tables: Mapping[str, Table] = read_tables(queries, schema, wanted)
        self.shapes: Mapping[str, str] = {}
        self._charsets = read_charsets(queries)
        self.cascades: Mapping[str, list[Cascade]] = read_cascades(queries, schema)
        self._logged: dict[int, tuple[bytes, LoggedTable]] = {}

    def schemas(self) -> dict[str, TableSchema]:
        return {name: table.schema_now() for name, table in self.tables.items()}

    def current(self, name: str) -> Table:
        """A table as it is now, for a chunk of its rows."""
        found = read_tables(self._queries, self._schema, [name])
        if name not in found:
            raise self._absence(name)
        self.tables = {**self.tables, **found}
        return found[name]

    # --- found in the catalog -----------------------------------------------------------------

    def look_again(self) -> list[Item]:
        """What is to be said of tables that differ from what is known; RequestError if one is gone."""
        found = read_tables(self._queries, self._schema, self._wanted)
        for name in self.tables:
            if name not in found:
                raise self._absence(name)
        self.cascades = read_cascades(self._queries, self._schema)
        return self.survey(found)

    def _absence(self, name: str) -> TablesGone:
        return TablesGone([name], are_named=bool(self._wanted))

    def survey(self, found: Mapping[str, Table]) -> list[Item]:
        """Compares tables with what is known of them: what is to be said of those that differ."""
        items: list[Item] = []
        shapes = dict(self.shapes)
        for name, table in found.items():
            known, shape = self.tables.get(name), table.shape
            if name not in shapes and known is None:
                items.append(table.schema_now())
            elif shapes.get(name, shape) != shape:
                items.append(table.schema_now())
                reason = _misfit(known, table)
                if reason:
                    items.append(Resnapshot(name, reason))
            shapes[name] = shape
        if items:
            self._logged.clear()
        self.shapes, self.tables = shapes, dict(found)
        return items

    def changed_by(self, statement: Statement, source: bytes) -> Iterator[Item]:
        """What a statement has done to captured tables."""
        if statement.meaning is Meaning.TRUNCATE:
            name = self._known(statement.table)
            if name:
                yield Change(name, "t", None, None, None, source)
            return
        if statement.meaning is Meaning.DML:
            for name in self.tables:
                yield Resnapshot(name, "a session logs statements (binlog_format) and not rows", True)
            return
        named = mentions(statement.text, self.tables)
        if not named and statement.meaning is Meaning.OTHER:
            return
        items = self.look_again()
        yield from items
        if statement.meaning is Meaning.REPLACES_ROWS:
            again = {each.table for each in items if isinstance(each, Resnapshot)}
            for name in named:
                if name not in again:
                    yield Resnapshot(name, f"other rows may have come in by {statement.text[:60]!r}")

    def _known(self, table: str) -> str:
        """The captured table of that name, which may be written in other letters."""
        if table in self.tables:
            return table
        return next((each for each in self.tables if each.lower() == table.lower()), "")

    # --- described by the log -----------------------------------------------------------------

    def note(self, body: bytes) -> None:
        """Takes note of a table map."""
        number = table_id(body)
        known = self._logged.get(number)
        if known is not None and known[0] == body:
            return
        described = read_table_map(body, self._charsets, is_mariadb=self._queries.is_mariadb)
        self._logged[number] = (body, self._readable(described))

    def logged(self, number: int) -> LoggedTable | None:
        """The table of events with this number; None if no table map came."""
        known = self._logged.get(number)
        return None if known is None else known[1]

    def forget_maps(self) -> None:
        """Numbers of tables mean others after a server has started again."""
        self._logged.clear()

    def _readable(self, described: TableMap) -> LoggedTable:
        name = described.full_name
        is_captured = name in self.tables
        if not is_captured and name not in self.cascades:
            return LoggedTable(described, None, "", is_captured=False)
        if not described.is_named:
            reason = "binlog_row_metadata was not FULL: the log has no names of columns"
            return LoggedTable(described, None, reason, is_captured=is_captured)
        table = self.tables.get(name)
        columns = [_with_kind(each, table) for each in described.columns]
        try:
            readers = [(each.name, log_reader(each)) for each in columns]
        except MALFORMED as error:
            return LoggedTable(described, None, f"the log has {error}", is_captured=is_captured)
        rows = LogRows(name, readers, described.key)
        misfit = _misfit_of_rows(columns, table) if table is not None else ""
        layout = log_table(columns, described.key)
        return LoggedTable(described, rows, "", is_captured=is_captured, misfit=misfit, layout=layout)


def _with_kind(column: LoggedColumn, table: Table | None) -> LoggedColumn:
    now = table.column(column.name) if table is not None else None
    if now is not None and now.kind in _NAMED:
        return replace(column, kind=now.kind)
    return column


def _misfit_of_rows(columns: Sequence[LoggedColumn], table: Table) -> str:
    """Why rows of the log do not fit the table as it is; nothing if they do.

    A column that was added since makes no difference, nor one that was dropped: for what these
    need, the statement itself is looked at.
    """
    logged = {each.name: _said_as(kind_of(each)) for each in columns}
    now = {each.name: _said_as(each.kind) for each in table.columns}
    gone, added = logged.keys() - now.keys(), now.keys() - logged.keys()
    if gone and added:
        return f"rows were written when {', '.join(sorted(added))} was called {', '.join(sorted(gone))}"
    retyped = sorted(each for each in logged.keys() & now.keys() if logged[each] != now[each])
    return f"rows were written with another type: {', '.join(retyped)}" if retyped else ""


def _said_as(kind: Kind | None) -> Kind | None:
    """Kinds that are the same in JSON are one."""
    return Kind.TEXT if kind in (Kind.ENUM, Kind.SET, Kind.JSON) else kind


def _misfit(known: Table | None, table: Table) -> str:
    """Why rows that were written before do not fit the table any longer; nothing if they do."""
    if known is None or known.shape == table.shape:
        return "it has other columns than when it was last read"
    before = {each.name: (each.type_name, each.charset) for each in known.columns}
    after = {each.name: (each.type_name, each.charset) for each in table.columns}
    retyped = sorted(each for each in before.keys() & after.keys() if before[each] != after[each])
    added, gone = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    if known.key != table.key:
        return f"its key is ({', '.join(table.key)}) now"
    if retyped:
        return f"another type: {', '.join(retyped)}"
    if added and gone:
        return f"columns {', '.join(gone)} became {', '.join(added)}"
    if gone:
        return f"no columns {', '.join(gone)} any longer"
    filled = [each.name for each in table.columns if each.name in added and each.is_filled]
    return f"new columns with values: {', '.join(filled)}" if filled else ""


def touched_by(cascades: Iterable[Cascade], op: str, changed: Sequence[str]) -> set[str]:
    """The tables in which a delete, or a change of these columns, may have changed rows."""
    return {
        each.child
        for each in cascades
        if (op == "d" and each.on_delete)
        or (op == "u" and each.on_update and set(each.columns) & set(changed))
    }
