"""What the catalog of MySQL says of tables, as values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

import orjson

from headrace.capture.change import Column, TableSchema
from headrace.capture.mysql.decode import BINARY, Kind, TextRows, decoder
from headrace.capture.mysql.wire import Connection, identifier, literal, qualified

__all__ = ["Cascade", "Table", "TableColumn", "read_cascades", "read_charsets", "read_tables"]

_TABLES = (
    "SELECT TABLE_NAME FROM information_schema.TABLES "
    "WHERE TABLE_SCHEMA = {schema} AND TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_NAME"
)
_COLUMNS = (
    "SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, COLUMN_DEFAULT, "
    "CHARACTER_SET_NAME, DATETIME_PRECISION, NUMERIC_PRECISION, EXTRA FROM information_schema.COLUMNS "
    "WHERE TABLE_SCHEMA = {schema} ORDER BY TABLE_NAME, ORDINAL_POSITION"
)
_KEYS = (
    "SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.STATISTICS "
    "WHERE TABLE_SCHEMA = {schema} AND INDEX_NAME = 'PRIMARY' ORDER BY TABLE_NAME, SEQ_IN_INDEX"
)
_CASCADES = (
    "SELECT r.TABLE_NAME, k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME, k.REFERENCED_COLUMN_NAME, "
    "r.DELETE_RULE, r.UPDATE_RULE FROM information_schema.REFERENTIAL_CONSTRAINTS r "
    "JOIN information_schema.KEY_COLUMN_USAGE k ON k.CONSTRAINT_SCHEMA = r.CONSTRAINT_SCHEMA "
    "AND k.CONSTRAINT_NAME = r.CONSTRAINT_NAME AND k.TABLE_NAME = r.TABLE_NAME "
    "WHERE r.CONSTRAINT_SCHEMA = {schema} AND (r.DELETE_RULE IN {acting} OR r.UPDATE_RULE IN {acting})"
)
_ACTING = ("CASCADE", "SET NULL", "SET DEFAULT")

_KINDS = {
    "tinyint": Kind.INTEGER, "smallint": Kind.INTEGER, "mediumint": Kind.INTEGER, "int": Kind.INTEGER,
    "bigint": Kind.INTEGER, "year": Kind.YEAR, "float": Kind.FLOAT, "double": Kind.DOUBLE,
    "decimal": Kind.DECIMAL, "bit": Kind.BITS, "date": Kind.DATE, "time": Kind.TIME,
    "datetime": Kind.DATETIME, "timestamp": Kind.TIMESTAMP, "char": Kind.TEXT, "varchar": Kind.TEXT,
    "tinytext": Kind.TEXT, "text": Kind.TEXT, "mediumtext": Kind.TEXT, "longtext": Kind.TEXT,
    "binary": Kind.BYTES, "varbinary": Kind.BYTES, "tinyblob": Kind.BYTES, "blob": Kind.BYTES,
    "mediumblob": Kind.BYTES, "longblob": Kind.BYTES, "enum": Kind.ENUM, "set": Kind.SET,
    "json": Kind.JSON, "point": Kind.POINT, "geometry": Kind.GEOMETRY, "linestring": Kind.GEOMETRY,
    "polygon": Kind.GEOMETRY, "multipoint": Kind.GEOMETRY, "multilinestring": Kind.GEOMETRY,
    "multipolygon": Kind.GEOMETRY, "geometrycollection": Kind.GEOMETRY, "geomcollection": Kind.GEOMETRY,
    "vector": Kind.VECTOR, "uuid": Kind.UUID, "inet4": Kind.INET4, "inet6": Kind.INET6,
}  # fmt: skip
_INTEGERS = {
    "tinyint": ("smallint", "smallint"), "smallint": ("smallint", "int"), "mediumint": ("int", "int"),
    "int": ("int", "bigint"), "bigint": ("bigint", "decimal(20,0)"),
}  # fmt: skip
_SPARK = {
    Kind.YEAR: "int", Kind.FLOAT: "float", Kind.DOUBLE: "double", Kind.BIT: "boolean", Kind.DATE: "int",
    Kind.TIME: "bigint", Kind.DATETIME: "bigint", Kind.TIMESTAMP: "timestamp",
    Kind.GEOMETRY: "struct<wkb:string,srid:int>",
    Kind.POINT: "struct<x:double,y:double,wkb:string,srid:int>", Kind.VECTOR: "array<float>",
}  # fmt: skip
_OF_ONE_BIT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column as it is now; `kind` is None for a type that cannot be captured.

    `is_filled` says that rows written before it was added may have a value in it.
    """

    name: str
    kind: Kind | None
    type_name: str
    base_type: str
    digits: int = 0
    charset: str = ""
    not_null: bool = False
    is_filled: bool = False

    @property
    def selected(self) -> str:
        """How it stands in a SELECT: the text of a FLOAT alone would have six digits."""
        name = identifier(self.name)
        return f"{name} + 0e0" if self.kind is Kind.FLOAT else name

    @property
    def as_text(self) -> tuple[str, Kind, int]:
        """Its name, and what the text is that a SELECT answers."""
        return self.name, self.kind or Kind.TEXT, self.digits

    @property
    def labels(self) -> list[str]:
        """Of an ENUM or a SET, in order."""
        inner, labels, at = self.type_name[self.type_name.index("(") + 1 : -1], [], 0
        while at < len(inner):
            end = at + 1
            while inner[end] != "'" or inner[end : end + 2] == "''":
                end += 2 if inner[end] == "'" else 1
            labels.append(inner[at + 1 : end].replace("''", "'"))
            at = end + 2
        return labels

    @property
    def spark_type(self) -> str:
        if self.kind is Kind.INTEGER:
            return _INTEGERS[self.base_type]["unsigned" in self.type_name]
        return _SPARK.get(self.kind, "string") if self.kind else "string"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table as it is now; `key` is its primary key in the order of the index."""

    schema: str
    name: str
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]

    @property
    def full_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def quoted(self) -> str:
        return qualified(self.schema, self.name)

    @property
    def shape(self) -> str:
        """Differs where rows written before and after do not fit together."""
        said = [[each.name, each.type_name, each.charset] for each in self.columns]
        return f"{crc32(orjson.dumps([said, self.key])):08x}"

    def column(self, name: str) -> TableColumn | None:
        return next((each for each in self.columns if each.name == name), None)

    def rows(self) -> TextRows:
        """What reads rows of a query for all columns."""
        return TextRows(self.full_name, self.text_columns, self.key)

    @property
    def text_columns(self) -> list[tuple[str, Kind, int]]:
        return [each.as_text for each in self.columns]

    def schema_now(self) -> TableSchema:
        """The table for the schema topic."""
        columns = tuple(
            Column(
                name=each.name,
                type=each.type_name,
                spark_type=each.spark_type,
                optional=not each.not_null,
            )
            for each in self.columns
        )
        in_order = tuple(each.name for each in self.columns if each.name in self.key)
        return TableSchema(table=self.full_name, columns=columns, key=in_order)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cascade:
    """What changes of rows of one table do to rows of another, which InnoDB does not log."""

    child: str
    columns: tuple[str, ...]
    on_delete: bool
    on_update: bool


def read_tables(connection: Connection, schema: str, names: Sequence[str] = ()) -> dict[str, Table]:
    """Tables of a database by `schema.name`: these, as far as they exist; or all."""
    among = literal(schema)
    columns: dict[str, list[TableColumn]] = {}
    for row in connection.query(_COLUMNS.format(schema=among)):
        columns.setdefault(row[0] or "", []).append(_column(row))
    keys: dict[str, list[str]] = {}
    for name, column in connection.query(_KEYS.format(schema=among)):
        keys.setdefault(name or "", []).append(column or "")
    tables = [
        Table(
            schema=schema,
            name=name or "",
            columns=tuple(columns.get(name or "", ())),
            key=tuple(keys.get(name or "", ())),
        )
        for (name,) in connection.query(_TABLES.format(schema=among))
    ]
    wanted = set(names)
    return {each.full_name: each for each in tables if not wanted or each.full_name in wanted}


def _column(row: Sequence[str | None]) -> TableColumn:
    _, name, base, type_name, nullable, default, charset, digits, precision, extra = row
    kind = _KINDS.get(base or "")
    if kind is Kind.BITS and int(precision or 0) == _OF_ONE_BIT:
        kind = Kind.BIT
    if kind in (Kind.TEXT, Kind.ENUM, Kind.SET) and charset != BINARY and decoder(charset or "") is None:
        kind = None
    is_empty = nullable == "YES" and (default is None or default.upper() == "NULL")
    return TableColumn(
        name=name or "",
        kind=kind,
        type_name=type_name or "",
        base_type=base or "",
        digits=int(digits or 0),
        charset=charset or "",
        not_null=nullable != "YES",
        is_filled=not is_empty or "GENERATED" in (extra or "").upper(),
    )


def read_charsets(connection: Connection) -> dict[int, str]:
    """The character set of each collation, by its number."""
    rows = connection.query(
        "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATIONS WHERE ID IS NOT NULL"
    )
    if connection.is_mariadb:  # where some collations are of several character sets
        rows += connection.query(
            "SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY "
            "WHERE ID IS NOT NULL"
        ) if connection.greeting.release >= (10, 10) else []  # fmt: skip
    return {int(number or 0): charset or "" for number, charset in rows if charset}


def read_cascades(connection: Connection, schema: str) -> Mapping[str, list[Cascade]]:
    """By the table whose rows are deleted or changed, which rows of others that concerns."""
    if not connection.is_mariadb and connection.variable("innodb_native_foreign_keys") == "OFF":
        return {}  # the server itself does it, and logs it
    listed = "(" + ", ".join(f"'{each}'" for each in _ACTING) + ")"
    found: dict[tuple[str, str, bool, bool], list[str]] = {}
    for child, parent_schema, parent, column, deleting, updating in connection.query(
        _CASCADES.format(schema=literal(schema), acting=listed)
    ):
        rule = (f"{parent_schema}.{parent}", f"{schema}.{child}", deleting in _ACTING, updating in _ACTING)
        found.setdefault(rule, []).append(column or "")
    cascades: dict[str, list[Cascade]] = {}
    for (parent, child, on_delete, on_update), columns in found.items():
        made = Cascade(child=child, columns=tuple(columns), on_delete=on_delete, on_update=on_update)
        cascades.setdefault(parent or "", []).append(made)
    return cascades
