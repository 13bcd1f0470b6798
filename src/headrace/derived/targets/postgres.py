"""A table of a PostgreSQL database.

Position and rows are written in one transaction. A row has a column for each of its fields, and `_key`,
the key of its record. Columns are added as rows bring new fields, with the type of the first value:
boolean, bigint, double precision, text, or jsonb for arrays and objects. A column whose
values turn out to be of several types becomes numeric, or jsonb; one of text stays so. Columns
that somebody else made keep their type: values are written as text, and PostgreSQL converts them.
"""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import orjson

from headrace.capture.postgres import PostgresAddress, PostgresConnection, ServerError, identifier, literal
from headrace.crash_points import reached
from headrace.derived.changes import Row
from headrace.derived.pace import EAGER
from headrace.derived.state import FollowState, parse_state
from headrace.derived.target import Refuse, StateLost
from headrace.derived.targets.statements import by_fields, parts
from headrace.errors import ConfigError, FencedError, RetriableError

__all__ = ["PostgresTableTarget", "column_type", "widened"]

KEY = "_key"
_STATES = "_headrace_followers"
_NUMBERS = ("bigint", "double precision", "numeric")
_COMMENT = "made by headrace"
_LOCK_TIMEOUT = "55P03"
_MOST_BIGINT = 1 << 63


def column_type(value: Any) -> str:
    """The type of a column that holds this value."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -_MOST_BIGINT <= value < _MOST_BIGINT else "numeric"
    if isinstance(value, float):
        return "double precision"
    return "text" if isinstance(value, str) else "jsonb"


def widened(now: str, value: Any) -> str:
    """The type of a column of this type that holds this value as well; the same if it does already.

    Text holds everything, as text; JSON holds everything as it is.
    """
    wanted = column_type(value)
    if now == wanted or now in ("text", "jsonb"):
        return now
    return "numeric" if now in _NUMBERS and wanted in _NUMBERS else "jsonb"


class PostgresTableTarget:
    """A table of this name, which may be `SCHEMA.TABLE`; it is created if it is missing, as columns are."""

    has_snapshots = True
    pace = EAGER

    def __init__(self, url: str, name: str, *, table: str) -> None:
        self._address = PostgresAddress.parse(url)
        self._name = name
        self._plain_table = table
        self._table = ".".join(map(identifier, table.split(".")))
        self._columns: dict[str, str] = {}
        self._own: set[str] = set()
        self._opened: PostgresConnection | None = None

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
        with self._transaction():
            self._require_owner(state)
            for part in parts([_bytea(key) for key in deletes]):
                self._query(f"DELETE FROM {self._table} WHERE {KEY} IN ({', '.join(part)})")  # noqa: S608
            for fields, rows in by_fields(upserts).items():
                self._put(fields, rows, refuse)
            reached("rows written")
            self._write_state(state)
            reached("ledger written")

    def delete_identities(self, identities: Collection[bytes], state: FollowState) -> None:
        self.apply({}, identities, state, lambda *_: None)

    # --- rows ---------------------------------------------------------------------------------

    def get(self, keys: Collection[bytes]) -> dict[bytes, Row]:
        with self._errors():
            listed = ", ".join(map(_bytea, keys))
            where = f"WHERE {KEY} IN ({listed})" if keys else "WHERE false"
            return dict(self._read(where))

    def identity(self, key: bytes) -> bytes:
        return key

    def stored(self, row: Row) -> Row:
        """Columns of text show other values as text; those of numbers show text as numbers."""
        with self._errors():
            types = self._types()
        return {name: _shown(each, types.get(name, "")) for name, each in row.items()}

    def rows(self) -> Iterator[tuple[bytes, Row]]:
        with self._errors():
            yield from self._read("")

    @contextlib.contextmanager
    def reading(self) -> Iterator[FollowState | None]:
        with self._errors():
            self._query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
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
        asked = f"SELECT encode({KEY}, 'hex'), to_jsonb(t) - '{KEY}' FROM {self._table} t {where}"  # noqa: S608
        for key, row in self._database().stream_rows(asked):
            assert key is not None and row is not None
            said: Row = orjson.loads(row)
            yield bytes.fromhex(key.decode()), {name: each for name, each in said.items() if each is not None}

    def _put(self, fields: tuple[str, ...], rows: Mapping[bytes, Row], refuse: Refuse) -> None:
        """Rows with the same fields, in statements of about a megabyte; those that are refused one by one."""
        try:
            for row in rows.values():
                self._fit_columns(row)
        except ServerError as error:
            for key in rows:
                refuse(key, str(error))
            return
        values = {key: self._values(key, fields, row) for key, row in rows.items()}
        for part in parts(list(values.values())):
            if not self._try(self._upsert(fields, part)):
                self._put_singly(fields, {key: each for key, each in values.items() if each in part}, refuse)

    def _put_singly(self, fields: tuple[str, ...], values: Mapping[bytes, str], refuse: Refuse) -> None:
        for key, each in values.items():
            try:
                self._saved(self._upsert(fields, [each]))
            except ServerError as error:
                refuse(key, str(error))

    def _try(self, statement: str) -> bool:
        try:
            self._saved(statement)
        except ServerError:
            return False
        return True

    def _saved(self, statement: str) -> None:
        """A statement after whose failure the transaction goes on."""
        self._query("SAVEPOINT one")
        try:
            self._query(statement)
        except ServerError:
            self._query("ROLLBACK TO SAVEPOINT one")
            raise
        self._query("RELEASE SAVEPOINT one")

    def _upsert(self, fields: Sequence[str], values: Sequence[str]) -> str:
        others = [each for each in self._types() if each not in fields]
        names = ", ".join(map(identifier, [KEY, *fields]))
        changes = [f"{identifier(each)} = EXCLUDED.{identifier(each)}" for each in fields]
        changes += [f"{identifier(each)} = NULL" for each in others]
        do = f"DO UPDATE SET {', '.join(changes)}" if changes else "DO NOTHING"
        into = f"INSERT INTO {self._table} ({names}) VALUES {', '.join(values)}"  # noqa: S608 - quoted
        return f"{into} ON CONFLICT ({identifier(KEY)}) {do}"

    def _values(self, key: bytes, fields: Sequence[str], row: Row) -> str:
        types = self._types()
        return f"({', '.join([_bytea(key), *(_literal(row[each], types[each]) for each in fields)])})"

    # --- columns ------------------------------------------------------------------------------

    def _types(self) -> dict[str, str]:
        if not self._columns:
            found = self._query(
                "SELECT attname, format_type(atttypid, NULL), col_description(attrelid, attnum) "  # noqa: S608
                "FROM pg_attribute "
                f"WHERE attrelid = {literal(self._table)}::regclass AND attnum > 0 AND NOT attisdropped "
                "ORDER BY attnum"
            )
            self._columns = {str(name): str(kind) for name, kind, _ in found if name != KEY}
            self._own = {str(name) for name, _, said in found if said == _COMMENT}
        return self._columns

    def _fit_columns(self, row: Row) -> None:
        """Adds the columns that a row needs, and gives those another type that do not hold its values."""
        types = self._types()
        for name, value in row.items():
            if value is None:
                continue
            now = types.get(name)
            if now is not None and name not in self._own:
                continue
            kind = column_type(value) if now is None else widened(now, value)
            column = identifier(name)
            if now is None:
                self._saved(
                    f"ALTER TABLE {self._table} ADD COLUMN {column} {kind}; "
                    f"COMMENT ON COLUMN {self._table}.{column} IS {literal(_COMMENT)}"
                )
                self._own.add(name)
            elif kind != now:
                using = f"to_jsonb({column})" if kind == "jsonb" else f"{column}::{kind}"
                self._saved(f"ALTER TABLE {self._table} ALTER COLUMN {column} TYPE {kind} USING {using}")
            types[name] = kind

    # --- the server ---------------------------------------------------------------------------

    def _database(self) -> PostgresConnection:
        if self._opened is None:
            database = PostgresConnection(self._address, self._address.resolve_password())
            try:
                database.query("SET lock_timeout = '20s'; SET client_min_messages = warning")
                # One at a time: CREATE TABLE IF NOT EXISTS may fail while another session does the same.
                database.query(f"BEGIN; SELECT pg_advisory_xact_lock(hashtext({literal(_STATES)}))")
                database.query(
                    f"CREATE TABLE IF NOT EXISTS {_STATES} (name text PRIMARY KEY, state text NOT NULL);"
                    f"CREATE TABLE IF NOT EXISTS {self._table} ({identifier(KEY)} bytea PRIMARY KEY); COMMIT"
                )
            except BaseException:
                database.close()
                raise
            self._opened, self._columns = database, {}
        return self._opened

    def _query(self, sql: str) -> list[tuple[str | None, ...]]:
        return self._database().query(sql)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._query("BEGIN")
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
        except ServerError as error:
            self.close()
            if error.sqlstate == _LOCK_TIMEOUT:
                raise RetriableError(str(error)) from error
            raise ConfigError(f"{self._address}, table {self._plain_table}: {error}") from error
        except RetriableError:
            self.close()
            raise

    def _read_state(self) -> FollowState | None:
        asked = f"SELECT state FROM {_STATES} WHERE name = {literal(self._name)}"  # noqa: S608
        found = self._query(asked)
        return parse_state(str(found[0][0])) if found else None

    def _write_state(self, state: FollowState) -> None:
        values = f"{literal(self._name)}, {literal(state.to_json().decode())}"
        self._query(
            f"INSERT INTO {_STATES} VALUES ({values}) "  # noqa: S608
            "ON CONFLICT (name) DO UPDATE SET state = EXCLUDED.state"
        )

    def _require_owner(self, state: FollowState) -> None:
        asked = f"SELECT state FROM {_STATES} WHERE name = {literal(self._name)} FOR UPDATE"  # noqa: S608
        found = self._query(asked)
        if not found:
            raise StateLost(f"{self._address} no longer has the position of {self._name}")
        if parse_state(str(found[0][0])).owner != state.owner:
            raise FencedError(f"another process follows into {self._address} as {self._name}")


def _bytea(key: bytes) -> str:
    return f"decode('{key.hex()}', 'hex')"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _shown(value: Any, kind: str) -> Any:
    """A value as a column of this type shows it in JSON."""
    if kind == "text" and value is not None:
        return _as_text(value)
    if isinstance(value, str) and kind in (*_NUMBERS, "integer", "smallint", "real"):
        with contextlib.suppress(ValueError):
            return orjson.loads(value)
    return value


def _literal(value: Any, kind: str) -> str:
    text = orjson.dumps(value).decode() if kind == "jsonb" else _as_text(value)
    if "\0" in text:
        return "convert_from('\\x00'::bytea, 'UTF8')"  # which PostgreSQL refuses, with its reason
    return literal(text)
