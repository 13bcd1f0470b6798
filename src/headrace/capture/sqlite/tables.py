"""What a table of SQLite is: columns with their types, its key, and what else is unique in it."""

import re
import sqlite3
from dataclasses import dataclass

from headrace.capture.change import Column, TableSchema

__all__ = ["SqliteTable", "Unique", "affinity", "quoted", "read_table", "spark_type", "table_names"]

_OWN_PREFIX = "_headrace_"
_ROWID_NAMES = ("rowid", "_rowid_", "oid")
_NO_REAL_TABLE = re.compile(r"\s*create\s+virtual\s", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Unique:
    """Terms that are unique together, each an expression of the table's columns, and its collation."""

    terms: tuple[str, ...]
    collations: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteTable:
    """A table; `uniques` are its unique indexes besides the key.

    `rowid` is the name by which its rowid can be read, None for a table without one.
    """

    name: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    key_may_be_null: bool
    rowid: str | None
    uniques: tuple[Unique, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(each.name for each in self.columns)

    @property
    def schema(self) -> TableSchema:
        return TableSchema(table=f"main.{self.name}", columns=self.columns, key=self.key)


def quoted(name: str) -> str:
    """The name as an identifier in a statement."""
    return '"' + name.replace('"', '""') + '"'


def table_names(database: sqlite3.Connection) -> list[str]:
    """Every ordinary table of the user's."""
    found = database.execute("SELECT name, sql FROM main.sqlite_master WHERE type = 'table' ORDER BY name")
    return [
        name
        for name, sql in found
        if not name.startswith(("sqlite_", _OWN_PREFIX)) and not _NO_REAL_TABLE.match(sql or "")
    ]


def read_table(database: sqlite3.Connection, name: str) -> SqliteTable | None:
    """The table as it is now; None if there is no ordinary table of that name."""
    listed = database.execute(
        "SELECT name, sql FROM main.sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", (name,)
    ).fetchone()
    if listed is None or _NO_REAL_TABLE.match(listed[1] or ""):
        return None
    exact = listed[0]
    info = database.execute(f"PRAGMA main.table_xinfo({quoted(exact)})").fetchall()
    shown = [each for each in info if each[6] != 1]
    key_rows = sorted((each for each in shown if each[5]), key=lambda each: each[5])
    has_rowid = _has_rowid(database, exact)
    is_alias = has_rowid and len(key_rows) == 1 and _is_rowid_alias(database, exact, key_rows[0][2])
    columns = tuple(
        Column(
            name=each[1],
            type=each[2],
            spark_type=spark_type(each[2]),
            optional=not (each[3] or (each[5] and (is_alias or not has_rowid))),
        )
        for each in shown
    )
    # In column order, as in the envelope: the order of the index does not matter to readers.
    key = tuple(each[1] for each in shown if each[5])
    return SqliteTable(
        name=exact,
        columns=columns,
        key=key,
        key_may_be_null=any(each.optional for each in columns if each.name in key),
        rowid=_rowid_name(shown, has_rowid),
        uniques=tuple(_uniques(database, exact)),
    )


def _has_rowid(database: sqlite3.Connection, name: str) -> bool:
    try:
        database.execute(f"SELECT _rowid_ FROM main.{quoted(name)} LIMIT 0")
    except sqlite3.OperationalError:
        return False
    return True


def _is_rowid_alias(database: sqlite3.Connection, name: str, declared: str) -> bool:
    """Whether the only key column is the rowid itself, which has no index of its own."""
    indexes = database.execute(f"PRAGMA main.index_list({quoted(name)})").fetchall()
    return declared.upper() == "INTEGER" and not any(each[3] == "pk" for each in indexes)


def _rowid_name(columns: list[tuple[object, ...]], has_rowid: bool) -> str | None:
    taken = {str(each[1]).lower() for each in columns}
    return next((each for each in _ROWID_NAMES if each not in taken), None) if has_rowid else None


def _uniques(database: sqlite3.Connection, table: str) -> list[Unique]:
    found = []
    for _, index, is_unique, origin, *_ in database.execute(f"PRAGMA main.index_list({quoted(table)})"):
        parts = [each for each in database.execute(f"PRAGMA main.index_xinfo({quoted(index)})") if each[5]]
        is_plain_key = origin == "pk" and all(each[4].upper() == "BINARY" for each in parts)
        if not is_unique or is_plain_key:
            continue
        terms = [quoted(each[2]) if each[2] is not None else None for each in parts]
        if None in terms:
            (sql,) = database.execute(
                "SELECT sql FROM main.sqlite_master WHERE type = 'index' AND name = ?", (index,)
            ).fetchone()
            terms = list(_index_terms(sql))
        found.append(Unique(tuple(str(each) for each in terms), tuple(each[4] for each in parts)))
    return found


def _index_terms(sql: str) -> list[str]:
    """The expressions of an index, from its statement: what stands between commas inside its parentheses."""
    begin = sql.index("(", re.search(r"\bon\b", sql, re.IGNORECASE).end())  # type: ignore[union-attr]
    terms, depth, last, quote = [], 0, begin + 1, ""
    for at in range(begin, len(sql)):
        letter = sql[at]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"`":
            quote = letter
        elif letter == "(":
            depth += 1
        elif letter == ")":
            depth -= 1
        if not quote and ((letter == "," and depth == 1) or depth == 0):
            terms.append(re.sub(r"\s+(asc|desc)\s*$", "", sql[last:at].strip(), flags=re.IGNORECASE))
            last = at + 1
        if depth == 0:
            break
    return terms


def affinity(declared: str) -> str:
    """SQLite's rule for what a declared type does to values."""
    upper = declared.upper()
    if "INT" in upper:
        return "INTEGER"
    if any(each in upper for each in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if not upper or "BLOB" in upper:
        return "BLOB"
    if any(each in upper for each in ("REAL", "FLOA", "DOUB")):
        return "REAL"
    return "NUMERIC"


def spark_type(declared: str) -> str:
    """As what a column's values are best read; a value of another type is captured nevertheless."""
    upper = declared.upper()
    if upper.startswith("BOOL"):
        return "boolean"
    if upper.startswith(("DATE", "TIME", "JSON", "UUID")) or not upper:
        return "string"
    return {
        "INTEGER": "bigint",
        "TEXT": "string",
        "BLOB": "string",  # base64
        "REAL": "double",
        "NUMERIC": "double",
    }[affinity(declared)]
