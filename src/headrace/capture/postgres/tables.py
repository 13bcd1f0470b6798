"""The captured tables as the stream describes them, and what a change of their columns means.

The stream describes a table again when it has changed, before its next row. Rows that were
written before do not fit where a column was renamed or dropped, has another type or came with values;
then the table is read again (`Resnapshot`). A change after which no row came is found in
the catalog, now and then (`survey`). A table under another name stops the capture.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from headrace.capture.change import Item, Resnapshot, TableSchema
from headrace.capture.postgres.catalog import Table, TableColumn, Types, read_tables
from headrace.capture.postgres.decode import RelationColumn, RelationMessage, RowColumn, RowWriter, row_table
from headrace.capture.postgres.partitions import Mark, mark_of, read_partitions, why_read_again
from headrace.capture.postgres.wire import Connection
from headrace.capture.source import TablesGone
from headrace.errors import RequestError
from headrace.kernels import RowTable, RowTables

__all__ = ["CapturedTables"]


class CapturedTables:
    """Tables by `schema.name`; `shapes` shows whether one has changed since it was last seen, `partitions`
    whether a partition has by itself.

    `wanted` are the captured ones; none for all of them.
    """

    def __init__(self, queries: Connection, wanted: Sequence[str], types: Types) -> None:
        self._queries, self._wanted, self._types = queries, tuple(wanted), types
        self.tables: Mapping[str, Table] = read_tables(queries, wanted)
        self.shapes: Mapping[str, str] = {}
        self.partitions: Mapping[str, Mark] = {}
        self._noted: dict[int, RelationMessage] = {}
        self._writers: dict[int, RowWriter | None] = {}
        self._row_tables: dict[int, RowTable] = {}
        self._plain: RowTables | None = None

    def schemas(self) -> dict[str, TableSchema]:
        return {name: self._types.schema_of(table, table.key) for name, table in self.tables.items()}

    def writer(self, oid: int) -> RowWriter | None:
        """Who writes rows of a table that was described; None if that is not captured."""
        return self._writers[oid]

    def plain(self) -> RowTables:
        """The tables of which nothing is to be said before a row, and whose rows a kernel can encode."""
        if self._plain is None:
            self._plain = RowTables(
                [each for oid, each in self._row_tables.items() if oid not in self._noted]
            )
        return self._plain

    def current(self, name: str) -> tuple[Table, RowWriter]:
        """A table as it is now, for a chunk of its rows."""
        found = read_tables(self._queries, [name])
        if name not in found:
            raise self._absence(name, read_tables(self._queries))
        self.tables = {**self.tables, **found}
        return found[name], self._catalog_writer(found[name])

    def known(self, name: str) -> tuple[Table, RowWriter]:
        """A table as it was when this began."""
        return self.tables[name], self._catalog_writer(self.tables[name])

    # --- found in the catalog -----------------------------------------------------------------

    def look_again(self) -> Mapping[str, Table]:
        """The tables as they are now; RequestError if one is gone."""
        found = read_tables(self._queries, self._wanted)
        for name in self.tables:
            if name not in found:
                raise self._absence(name, read_tables(self._queries))
        return found

    def _absence(self, name: str, found: Mapping[str, Table]) -> TablesGone:
        oid = self.tables[name].oid
        now = next((each.full_name for each in found.values() if each.oid == oid), "")
        return TablesGone([name], now=now, are_named=bool(self._wanted))

    def survey(self, found: Mapping[str, Table], unpublished: set[str]) -> list[Item]:
        """Compares tables with what is known of them: what is to be said of those that differ.

        `unpublished` were captured and yet not in the publication, so that changes are missing.
        """
        items: list[Item] = []
        shapes = dict(self.shapes)
        partitions = read_partitions(self._queries, found.values())
        for name, table in found.items():
            shape = self._catalog_writer(table).shape
            if name not in shapes and name not in self.tables:
                items.append(self._types.schema_of(table, table.key))
            elif shapes.get(name, shape) != shape:
                items.append(self._types.schema_of(table, table.key))
                items.append(Resnapshot(name, "it has other columns than when it was last read"))
            elif name in unpublished and name in shapes:
                items.append(Resnapshot(name, "it was not in the publication for a while"))
            elif reason := why_read_again(self.partitions, name, partitions.get(name, ())):
                items.append(Resnapshot(name, reason))
            shapes[name] = shape
        self.partitions = {name: mark_of(each) for name, each in partitions.items()}
        self.shapes, self.tables = shapes, dict(found)
        return items

    def _catalog_writer(self, table: Table) -> RowWriter:
        columns = [self._column(each.name, each.type_oid, each.type_modifier) for each in table.columns]
        return RowWriter(table.full_name, table.oid, columns, table.key)

    def _column(self, name: str, type_oid: int, type_modifier: int) -> RowColumn:
        encoding = self._types.encoding(type_oid, type_modifier)
        return RowColumn(name=name, type_oid=type_oid, type_modifier=type_modifier, encoding=encoding)

    # --- described by the stream --------------------------------------------------------------

    def note(self, relation: RelationMessage) -> None:
        """Takes note of a description, which counts from the next row of the table on.

        Partitions are described too, though their rows come as rows of the whole table.
        """
        self._noted[relation.oid] = relation
        self._plain = None

    def before_row(self, oid: int) -> Iterable[Item]:
        """What is to be said before a row of this table."""
        relation = self._noted.pop(oid, None)
        if relation is not None:
            self._plain = None
        return () if relation is None else self._described(relation)

    def _described(self, relation: RelationMessage) -> Iterator[Item]:
        """What a description means for the table's topic."""
        name = f"{relation.schema}.{relation.name}"
        table = self._now(relation, name)
        if not self._is_captured(relation, name, table):
            self._set_writer(relation.oid, None)
            return
        known = self._writers.get(relation.oid)
        columns = [self._column(each.name, each.type_oid, each.type_modifier) for each in relation.columns]
        writer = RowWriter(name, relation.oid, columns, _key_of(relation, name, table))
        self._set_writer(relation.oid, writer)
        if self.shapes.get(name) == writer.shape:
            return
        yield self._schema(relation, writer, table)
        reason = _misfit(known, writer, table) if name in self.shapes else ""
        self.shapes = {**self.shapes, name: writer.shape}
        if reason:
            yield Resnapshot(name, reason)

    def _set_writer(self, oid: int, writer: RowWriter | None) -> None:
        self._writers[oid], self._plain = writer, None
        self._row_tables.pop(oid, None)
        table = row_table(writer) if writer is not None else None
        if table is not None:
            self._row_tables[oid] = table

    def _is_captured(self, relation: RelationMessage, name: str, now: Table | None) -> bool:
        """Whether rows under this name are wanted; RequestError if a captured table has got it just now.

        Rows from before a table was renamed or dropped may come long after that. They are
        left out: the table is read under the name that it has.
        """
        if name in self.tables:
            return True
        captured_as = next((each for each, table in self.tables.items() if table.oid == relation.oid), None)
        if captured_as is not None and now is not None:
            raise TablesGone([captured_as], now=name, are_named=bool(self._wanted))
        return captured_as is None and not self._wanted and now is not None

    def _now(self, relation: RelationMessage, name: str) -> Table | None:
        """The table as the catalog has it now, which may be later than what the stream describes."""
        found = read_tables(self._queries, [name]).get(name)
        return found if found is not None and found.oid == relation.oid else None

    def _schema(self, relation: RelationMessage, writer: RowWriter, table: Table | None) -> TableSchema:
        """The table for the schema topic, as it is from here on."""
        described = Table(
            oid=relation.oid,
            schema=relation.schema,
            name=relation.name,
            replica_identity=relation.replica_identity,
            columns=tuple(self._types.column(each, _same(each, table)) for each in relation.columns),
            key=writer.key,
        )
        return self._types.schema_of(described, writer.key)


def _same(column: RelationColumn, table: Table | None) -> TableColumn | None:
    """The column as the catalog has it now, if it still is the same."""
    now = table.column(column.name) if table is not None else None
    if now is None or (now.type_oid, now.type_modifier) != (column.type_oid, column.type_modifier):
        return None
    return now


def _key_of(relation: RelationMessage, name: str, table: Table | None) -> Sequence[str]:
    """The replica identity says which columns; where whole rows are logged, the catalog."""
    if relation.replica_identity in ("d", "i"):
        return [each.name for each in relation.columns if each.in_identity]
    key = table.key if table is not None else ()
    missing = set(key) - {each.name for each in relation.columns}
    if missing:
        raise RequestError(
            f"a column of the key of {name} is called {', '.join(sorted(missing))} now, while rows with its "
            "former name are still to be read; resnapshot the capture"
        )
    return key


def _misfit(known: RowWriter | None, writer: RowWriter, table: Table | None) -> str:
    """Why rows that were written before do not fit the table any longer; nothing if they do."""
    if known is None:
        return "it has other columns than when it was last read"
    before = {each.name: (each.type_oid, each.type_modifier) for each in known.columns}
    after = {each.name: (each.type_oid, each.type_modifier) for each in writer.columns}
    retyped = sorted(each for each in before.keys() & after.keys() if before[each] != after[each])
    added, gone = sorted(after.keys() - before.keys()), sorted(before.keys() - after.keys())
    if known.key != writer.key:
        return f"its key is ({', '.join(writer.key)}) now"
    if retyped:
        return f"another type: {', '.join(retyped)}"
    if added and gone:
        return f"columns {', '.join(gone)} became {', '.join(added)}"
    if gone:
        return f"no columns {', '.join(gone)} any longer"
    now = {each.name: each.is_filled for each in table.columns} if table else {}
    filled = [each for each in added if now.get(each, True)]
    return f"new columns with values: {', '.join(filled)}" if filled else ""
