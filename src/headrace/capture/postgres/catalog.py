"""What PostgreSQL's catalog says of tables and types, as values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.capture.change import Column, TableSchema
from headrace.capture.postgres.decode import Encoding, Kind, RelationColumn, TypeFacts, encoding_of
from headrace.capture.postgres.wire import Connection, literal, qualified

__all__ = ["Table", "TableColumn", "Types", "read_files", "read_tables", "spark_type"]

_OF_USERS = (
    "c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition "
    "AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema'"
)
_TABLES = (
    "SELECT c.oid, n.nspname, c.relname, c.relreplident, c.relkind "
    "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE {which} ORDER BY 2, 3"
)
# Generated columns are left out, as the stream leaves them out.
_COLUMNS = (
    "SELECT a.attrelid, a.attname, a.atttypid, a.atttypmod, format_type(a.atttypid, a.atttypmod), "
    "a.attnotnull, a.atthasdef OR a.attidentity <> '' OR a.atthasmissing FROM pg_attribute a "
    "WHERE a.attrelid IN ({oids}) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' "
    "ORDER BY a.attrelid, a.attnum"
)
_KEYS = (
    "SELECT i.indrelid, a.attname FROM pg_index i "
    "CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(attnum, place) "
    "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum "
    "WHERE i.indisprimary AND k.place <= i.indnkeyatts AND i.indrelid IN ({oids}) "
    "ORDER BY i.indrelid, k.place"
)
_TYPES = (
    "SELECT t.oid, t.typtype = 'd', t.typbasetype, t.typtypmod, "
    "CASE WHEN t.typinput = 'array_in'::regproc THEN t.typelem ELSE 0 END, coalesce(e.typdelim, ',') "
    "FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column as it is now; `is_filled` says that rows written before it may have a value in it."""

    name: str
    type_oid: int
    type_modifier: int
    type_name: str
    not_null: bool
    is_filled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as it is now; `key` is its primary key in the order of the index."""

    oid: int
    schema: str
    name: str
    replica_identity: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    is_partitioned: bool = False

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return qualified(self.schema, self.name)

    @property
    def own_rows(self) -> str:
        """Its own rows, for a FROM: those of tables that inherit from it come as theirs."""
        return self.quoted if self.is_partitioned else f"ONLY {self.quoted}"

    @property
    def has_identity(self) -> bool:
        """Whether updates and deletes say which row they are of; if not, publishing it makes them fail."""
        return self.replica_identity in ("f", "i") or (self.replica_identity == "d" and bool(self.key))

    def column(self, name: str) -> TableColumn | None:
        return next((each for each in self.columns if each.name == name), None)


def read_tables(connection: Connection, names: Sequence[str] = ()) -> dict[str, Table]:
    """Tables by `schema.name`: these, as far as they exist; or all of users' tables with an identity."""
    which = _named(names) if names else _OF_USERS
    rows = connection.query(_TABLES.format(which=which))
    oids = ", ".join(str(row[0]) for row in rows)
    if not oids:
        return {}
    columns: dict[str, list[TableColumn]] = {}
    for oid, name, type_oid, modifier, type_name, not_null, is_filled in connection.query(
        _COLUMNS.format(oids=oids)
    ):
        column = TableColumn(
            name=name or "",
            type_oid=int(type_oid or 0),
            type_modifier=int(modifier or -1),
            type_name=type_name or "",
            not_null=not_null == "t",
            is_filled=is_filled == "t",
        )
        columns.setdefault(oid or "", []).append(column)
    keys: dict[str, list[str]] = {}
    for oid, name in connection.query(_KEYS.format(oids=oids)):
        keys.setdefault(oid or "", []).append(name or "")
    tables = [
        Table(
            oid=int(oid or 0),
            schema=schema or "",
            name=name or "",
            replica_identity=identity or "",
            columns=tuple(columns.get(oid or "", ())),
            key=tuple(keys.get(oid or "", ())),
            is_partitioned=kind == "p",
        )
        for oid, schema, name, identity, kind in rows
    ]
    return {each.full_name: each for each in tables if names or each.has_identity}


def read_files(connection: Connection, tables: Iterable[Table]) -> dict[str, str]:
    """By id, the file in which a table or a partition has its rows; another one if they were rewritten."""
    oids = ", ".join(str(each.oid) for each in tables)
    rows = connection.query(
        "SELECT relid::oid, coalesce(pg_relation_filenode(relid), 0) FROM pg_class c, "
        f"LATERAL (SELECT c.oid::regclass AS relid UNION SELECT relid FROM pg_partition_tree(c.oid)) AS p "
        f"WHERE c.oid IN ({oids})"
    ) if oids else []  # fmt: skip
    return {oid or "": file or "" for oid, file in rows}


def _named(names: Iterable[str]) -> str:
    pairs = (each.partition(".") for each in names)
    wanted = ", ".join(f"({literal(schema)}, {literal(name)})" for schema, _, name in pairs)
    return f"c.relkind IN ('r', 'p') AND (n.nspname, c.relname) IN ({wanted})"


class Types:
    """The types of one database; reads the catalog again for one that it does not know."""

    def __init__(self, connection: Connection, decimals: str = "string") -> None:
        self._connection = connection
        self._decimals = decimals
        self._facts: Mapping[int, TypeFacts] = {}
        self._known: set[int] = set()

    def encoding(self, type_oid: int, type_modifier: int) -> Encoding:
        if type_oid not in self._known:
            self._read()
        return encoding_of(type_oid, type_modifier, self._facts, decimals=self._decimals)

    def base_oid(self, type_oid: int) -> int:
        """The type below a domain or an array, down to the last."""
        facts = self._facts.get(type_oid)
        below = (facts.base_oid or facts.element_oid) if facts else 0
        return self.base_oid(below) if below else type_oid

    def _read(self) -> None:
        facts = {}
        rows = self._connection.query(_TYPES)
        for oid, is_domain, base, modifier, element, delimiter in rows:
            base_oid, element_oid = (int(base or 0) if is_domain == "t" else 0), int(element or 0)
            if base_oid or element_oid:
                facts[int(oid or 0)] = TypeFacts(base_oid, int(modifier or -1), element_oid, delimiter or ",")
        self._facts = facts
        self._known = {int(row[0] or 0) for row in rows}

    def column(self, described: RelationColumn, now: TableColumn | None) -> TableColumn:
        """A column of the stream, with what only the catalog knows."""
        return TableColumn(
            name=described.name,
            type_oid=described.type_oid,
            type_modifier=described.type_modifier,
            type_name=now.type_name if now else self._type_name(described),
            not_null=now.not_null if now else False,
            is_filled=now.is_filled if now else False,
        )

    def _type_name(self, described: RelationColumn) -> str:
        return self._connection.value(
            f"SELECT coalesce(format_type({described.type_oid}, {described.type_modifier}), '???')"
        )

    def schema_of(self, table: Table, key: Sequence[str]) -> TableSchema:
        """The table for the schema topic."""
        columns = tuple(
            Column(
                name=each.name,
                type=each.type_name,
                spark_type=self.spark_type(each.type_oid, each.type_modifier),
                optional=not each.not_null,
            )
            for each in table.columns
        )
        in_order = tuple(each.name for each in table.columns if each.name in key)
        return TableSchema(table=table.full_name, columns=columns, key=in_order)

    def spark_type(self, type_oid: int, type_modifier: int) -> str:
        return spark_type(self.encoding(type_oid, type_modifier), self.base_oid(type_oid))


_INTEGERS = {21: "smallint", 23: "int"}
_SPARK = {
    Kind.BOOLEAN: "boolean",
    Kind.BIT: "boolean",
    Kind.DECIMAL_AS_DOUBLE: "double",
    Kind.DATE: "int",
    Kind.TIME_MS: "int",
    Kind.TIME_US: "bigint",
    Kind.TIMESTAMP_MS: "bigint",
    Kind.TIMESTAMP_US: "bigint",
    Kind.TIMESTAMPTZ: "timestamp",
    Kind.INTERVAL: "bigint",
}


def spark_type(encoding: Encoding, base_oid: int) -> str:
    """What Spark reads an encoded value as."""
    if encoding.kind is Kind.INTEGER:
        scalar = _INTEGERS.get(base_oid, "bigint")
    elif encoding.kind is Kind.FLOAT:
        scalar = "float" if base_oid == 700 else "double"
    else:
        scalar = _SPARK.get(encoding.kind, "string")
    return f"array<{scalar}>" if encoding.is_array else scalar
