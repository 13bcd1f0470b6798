"""A table of a MySQL or MariaDB database.

Position and rows are written in one transaction. A row has a column for each of its fields, and `_key`,
the key of its record. Columns are added as rows bring new fields, with the type of the first value:
tinyint(1), bigint, double, longtext, or, for arrays and objects, longtext with JSON. A column whose
values turn out to be of several types becomes longtext. Columns that somebody else made keep their
type: values are written as text, and the server converts them, strictly.

Columns are added in statements of their own before the transaction, for MySQL ends a transaction at
each of them; a column too many does no harm.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from headrace.capture.mysql import MysqlAddress, MysqlConnection, MysqlServerError, identifier, literal
from headrace.crash_points import reached
from headrace.derived.changes import Row
from headrace.derived.pace import EAGER
from headrace.derived.state import FollowState, parse_state
from headrace.derived.target import Refuse, StateLost
from headrace.derived.targets.statements import by_fields, parts
from headrace.errors import ConfigError, FencedError, RetriableError

__all__ = ["MysqlTableTarget", "column_type", "widened"]

KEY = "_key"
_WIDER = "_headrace_wider"
_PAGE = 5_000
_STATEMENT_HEAD = 256 << 10  # the names of columns, twice
_STATES = "_headrace_followers"
_KEY_BYTES = 2_000  # an index of InnoDB takes 3,072
_COMMENT = "made by headrace"
_MOST_BIGINT = 1 << 63
_EXACT_DOUBLE = 1 << 53
_LOCK_S = 20
_KINDS = {"tinyint": "boolean", "bigint": "bigint", "double": "double", "longtext": "longtext"}
_TYPES = {
    "boolean": "tinyint(1)",
    "bigint": "bigint",
    "double": "double",
    "longtext": "longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
}
_STATEMENTS = (
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,NO_BACKSLASH_ESCAPES'",
    f"SET SESSION innodb_lock_wait_timeout = {_LOCK_S}, SESSION lock_wait_timeout = {_LOCK_S}",
)


def column_type(value: Any) -> str:
    """The kind of column that holds this value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -_MOST_BIGINT <= value < _MOST_BIGINT else "longtext"
    return "double" if isinstance(value, float) else "longtext"


def widened(now: str, value: Any) -> str:
    """The kind of column that holds what this one has, and this value; the same if it does already."""
    if now == column_type(value) or now == "longtext":
        return now
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    return now if now == "double" and is_whole and abs(value) <= _EXACT_DOUBLE else "longtext"


class MysqlTableTarget:
    """A table of this name; it is created if it is missing, as columns are."""

    has_snapshots = True
    pace = EAGER

    def __init__(self, url: str, name: str, *, table: str) -> None:
        self._address = MysqlAddress.parse(url)
        self._name = name
        self._plain_table = table
        self._table = identifier(table)
        self._columns: dict[str, str] = {}
        self._most_bytes = 0
        self._opened: MysqlConnection | None = None

    # --- state --------------------------------------------------------------------------------

    def state(self) -> FollowState | None:
        with self._errors():
            return self._read_state()

    def is_empty(self) -> bool:
        with self._errors():
            return not self._query(f"SELECT 1 FROM {self._table} LIMIT 1")  # noqa: S608 - quoted

    def claim(self, state: FollowState) -> None:
        with self._transaction():
            self._write_state(state)

    def apply(
        self, upserts: Mapping[bytes, Row], deletes: Collection[bytes], state: FollowState, refuse: Refuse
    ) -> None:
        with self._errors():
            self._require_owner(state)
            rows = self._fitting(upserts, refuse)
        with self._transaction():
            self._require_owner(state)
            for part in parts([_bytes(key) for key in deletes]):
                self._query(f"DELETE FROM {self._table} WHERE {KEY} IN ({', '.join(part)})")  # noqa: S608
            for fields, same in by_fields(rows).items():
                self._put(fields, same, refuse)
            reached("rows written")
            self._write_state(state)
            reached("ledger written")

    def delete_identities(self, identities: Collection[bytes], state: FollowState) -> None:
        self.apply({}, identities, state, lambda *_: None)

    # --- rows ---------------------------------------------------------------------------------

    def get(self, keys: Collection[bytes]) -> dict[bytes, Row]:
        with self._errors():
            listed = ", ".join(map(_bytes, keys))
            return dict(self._read(f"WHERE {KEY} IN ({listed})")) if keys else {}

    def identity(self, key: bytes) -> bytes:
        return key

    def stored(self, row: Row) -> Row:
        with self._errors():
            kinds = self._kinds()
        return {name: _stored(each, kinds.get(name, "")) for name, each in row.items()}

    def rows(self) -> Iterator[tuple[bytes, Row]]:
        with self._errors():
            yield from self._read("")

    @contextlib.contextmanager
    def reading(self) -> Iterator[FollowState | None]:
        with self._errors():
            self._query("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
            try:
                yield self._read_state()
            finally:
                self._query("COMMIT")

    def read_together(self, identities: Collection[bytes]) -> tuple[FollowState | None, dict[bytes, Row]]:
        with self.reading() as state:
            return state, self.get(identities)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        self._columns = {}

    def _read(self, where: str) -> Iterator[tuple[bytes, Row]]:
        kinds = self._kinds()
        listed = ", ".join(map(identifier, [KEY, *kinds]))
        asked = f"SELECT {listed} FROM {self._table} {where}"  # noqa: S608 - quoted
        for key, *values in self._database().stream_rows(asked):
            found = zip(kinds.items(), values, strict=True)
            yield key or b"", {name: _shown(each, kind) for (name, kind), each in found if each is not None}

    def _put(self, fields: tuple[str, ...], rows: Mapping[bytes, Row], refuse: Refuse) -> None:
        """Rows with the same fields, in statements of about a megabyte; those that are refused one by one."""
        kinds = self._kinds()
        values = {
            key: f"({', '.join([_bytes(key), *(_literal(row[each], kinds[each]) for each in fields)])})"
            for key, row in rows.items()
        }
        for part in parts(list(values.values())):
            if not self._try(fields, part):
                of_part = set(part)
                self._put_singly(fields, {k: each for k, each in values.items() if each in of_part}, refuse)

    def _try(self, fields: tuple[str, ...], values: Sequence[str]) -> bool:
        if sum(map(len, values)) > self._most_bytes:
            return False
        try:
            self._saved(self._upsert(fields, values))
        except MysqlServerError:
            return False
        return True

    def _put_singly(self, fields: tuple[str, ...], values: Mapping[bytes, str], refuse: Refuse) -> None:
        for key, each in values.items():
            if len(each) > self._most_bytes:
                refuse(key, f"the row has more than max_allowed_packet takes ({self._most_bytes:,} bytes)")
                continue
            try:
                self._saved(self._upsert(fields, [each]))
            except MysqlServerError as error:
                refuse(key, str(error))

    def _saved(self, statement: str) -> None:
        """A statement after whose failure the transaction goes on."""
        self._query("SAVEPOINT one")
        try:
            self._query(statement)
        except MysqlServerError:
            self._query("ROLLBACK TO SAVEPOINT one")
            raise

    def _upsert(self, fields: Sequence[str], values: Sequence[str]) -> str:
        names = ", ".join(map(identifier, [KEY, *fields]))
        changes = [f"{identifier(each)} = VALUES({identifier(each)})" for each in fields]
        changes += [f"{identifier(each)} = NULL" for each in self._kinds() if each not in fields]
        changes = changes or [f"{KEY} = {KEY}"]
        into = f"INSERT INTO {self._table} ({names}) VALUES {', '.join(values)}"  # noqa: S608 - quoted
        return f"{into} ON DUPLICATE KEY UPDATE {', '.join(changes)}"

    # --- columns ------------------------------------------------------------------------------

    def _kinds(self) -> dict[str, str]:
        """The columns without the key's: what kind those are that we made, nothing for others."""
        if not self._columns:
            found = self._query(self._asked_columns("column_name, data_type, column_comment"))
            self._columns = {
                str(name): _KINDS.get(str(kind), "") if said == _COMMENT else ""
                for name, kind, said in found
                if name not in (KEY, _WIDER)
            }
        return self._columns

    def _asked_columns(self, what: str) -> str:
        of_table = f"table_schema = database() AND table_name = {literal(self._plain_table)}"
        return f"SELECT {what} FROM information_schema.columns WHERE {of_table} ORDER BY ordinal_position"  # noqa: S608

    def _fitting(self, upserts: Mapping[bytes, Row], refuse: Refuse) -> dict[bytes, Row]:
        """The rows that the table has columns for, which are added or changed for them."""
        fitting = {}
        for key, row in upserts.items():
            try:
                self._fit_columns(row)
                fitting[key] = row
            except MysqlServerError as error:
                self._columns = {}
                refuse(key, str(error))
        return fitting

    def _fit_columns(self, row: Row) -> None:
        kinds = self._kinds()
        for name, value in row.items():
            now = kinds.get(name)
            if value is None or (now is not None and now not in _TYPES):
                continue
            kind = column_type(value) if now is None else widened(now, value)
            if kind == now:
                continue
            if now is None:
                self._add_column(name, kind)
            else:
                self._make_text(name, now)
            kinds[name] = kind

    def _add_column(self, name: str, kind: str) -> None:
        made = f"{identifier(name)} {_TYPES[kind]} COMMENT '{_COMMENT}'"
        self._query(f"ALTER TABLE {self._table} ADD COLUMN {made}")

    def _make_text(self, name: str, now: str) -> None:
        """A column with the texts of its values, written beside it, in its place at once."""
        if _WIDER in {str(each) for (each,) in self._query(self._asked_columns("column_name"))}:
            self._query(f"ALTER TABLE {self._table} DROP COLUMN {_WIDER}")
        self._add_column(_WIDER, "longtext")
        column, last = identifier(name), ""
        while True:
            asked = f"SELECT {KEY}, {column} FROM {self._table} WHERE {column} IS NOT NULL {last}"  # noqa: S608
            found = self._database().raw_rows(f"{asked} ORDER BY {KEY} LIMIT {_PAGE}")
            if not found:
                break
            texts = [(_bytes(key or b""), literal(_as_text(_shown(each or b"", now)))) for key, each in found]
            last = f"AND {KEY} > {texts[-1][0]}"
            for part in parts([f"({key}, {text})" for key, text in texts]):
                self._query(
                    f"INSERT INTO {self._table} ({KEY}, {_WIDER}) VALUES {', '.join(part)} "  # noqa: S608
                    f"ON DUPLICATE KEY UPDATE {_WIDER} = VALUES({_WIDER})"
                )
        made = f"{column} {_TYPES['longtext']} COMMENT '{_COMMENT}'"
        self._query(f"ALTER TABLE {self._table} DROP COLUMN {column}, CHANGE COLUMN {_WIDER} {made}")

    # --- the server ---------------------------------------------------------------------------

    def _database(self) -> MysqlConnection:
        if self._opened is None:
            database = MysqlConnection(self._address, self._address.resolve_password())
            try:
                for statement in (*_STATEMENTS, f"USE {identifier(self._address.database)}"):
                    database.query(statement)
                database.query(
                    f"CREATE TABLE IF NOT EXISTS {_STATES} (name varchar(255) CHARACTER SET utf8mb4 "
                    "COLLATE utf8mb4_bin PRIMARY KEY, state longtext NOT NULL) ENGINE=InnoDB"
                )
                database.query(
                    f"CREATE TABLE IF NOT EXISTS {self._table} "
                    f"({KEY} varbinary({_KEY_BYTES}) PRIMARY KEY) ENGINE=InnoDB"
                )
            except BaseException:
                database.close()
                raise
            self._most_bytes = int(database.value("SELECT @@max_allowed_packet")) - _STATEMENT_HEAD
            self._opened, self._columns = database, {}
        return self._opened

    def _query(self, sql: str) -> list[tuple[str | None, ...]]:
        return self._database().query(sql)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._query("START TRANSACTION")
            try:
                yield
                self._query("COMMIT")
            except BaseException:
                self.close()  # which rolls back, also where the server no longer answers
                raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except MysqlServerError as error:
            self.close()
            raise ConfigError(f"{self._address}, table {self._plain_table}: {error}") from error
        except RetriableError:
            self.close()
            raise

    def _read_state(self, lock: str = "") -> FollowState | None:
        asked = f"SELECT state FROM {_STATES} WHERE name = {literal(self._name)} {lock}"  # noqa: S608
        found = self._query(asked)
        return parse_state(str(found[0][0])) if found else None

    def _write_state(self, state: FollowState) -> None:
        values = f"{literal(self._name)}, {literal(state.to_json().decode())}"
        self._query(
            f"INSERT INTO {_STATES} VALUES ({values}) "  # noqa: S608
            "ON DUPLICATE KEY UPDATE state = VALUES(state)"
        )

    def _require_owner(self, state: FollowState) -> None:
        found = self._read_state("FOR UPDATE")
        if found is None:
            raise StateLost(f"{self._address} no longer has the position of {self._name}")
        if found.owner != state.owner:
            raise FencedError(f"another process follows into {self._address} as {self._name}")


def _bytes(key: bytes) -> str:
    return f"x'{key.hex()}'"


def _as_text(value: Any) -> str:
    """The same text for numbers that are equal, whether they came as 7 or as 7.0."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= _EXACT_DOUBLE:
        return str(int(value))
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _literal(value: Any, kind: str) -> str:
    """A value as it stands in a statement: numbers as such, all else as text."""
    if kind in ("boolean", "bigint", "double") and isinstance(value, bool | int | float):
        return orjson.dumps(value).decode()
    return literal(_as_text(value))


def _stored(value: Any, kind: str) -> Any:
    """A value as a column of this kind gives it back."""
    if value is None or kind in ("boolean", "bigint", "double"):
        return value
    return _as_text(value)


def _shown(value: bytes, kind: str) -> Any:
    """A value of a row, from its text."""
    if kind == "boolean":
        return value != b"0"
    if kind == "bigint":
        return int(value)
    return float(value) if kind == "double" else value.decode(errors="backslashreplace")
