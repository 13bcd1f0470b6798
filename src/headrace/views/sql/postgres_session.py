"""What happens inside one PostgreSQL transaction."""

from collections.abc import Iterable, Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
from psycopg.types.json import Json

from headrace.errors import RequestError, RetriableError
from headrace.views.batch import NetChanges, StagedChanges
from headrace.views.changes import ViewChange
from headrace.views.formats import dumps
from headrace.views.ledger import Ledger
from headrace.views.schema import ViewSchema
from headrace.views.selection import Selection
from headrace.views.sql.postgres_staging import StagedPart, staged_tables
from headrace.views.sql.postgres_values import declared_type, decode, to_csv
from headrace.views.sql.selection_sql import quoted, selection_sql

__all__ = ["TABLES", "PostgresSession"]

TABLES = """
SELECT pg_advisory_xact_lock(7236828793);
CREATE TABLE IF NOT EXISTS headrace_ledger (
  view text PRIMARY KEY, query_id text, batch_id bigint, watermark timestamptz, ledger text NOT NULL
);
CREATE TABLE IF NOT EXISTS headrace_changes (
  view text NOT NULL, sequence bigint NOT NULL, batch_id bigint NOT NULL, kind smallint NOT NULL,
  "key" json NOT NULL, "before" json, "after" json, PRIMARY KEY (view, sequence)
);
"""

_LEDGER = "SELECT ledger FROM headrace_ledger WHERE view = %s"
_LOCKED_LEDGER = "SELECT ledger FROM headrace_ledger WHERE view = %s FOR UPDATE"
_LISTED = (
    'INSERT INTO headrace_changes SELECT %s, number, %s, kind, "key"::json, "before"::json, "after"::json '
    "FROM PARTS"
)
_CHANGE = 'kind, "key", "before", "after"'
_TABLE_NAMES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_BROUGHT = quoted("headrace_brought")


class PostgresSession:
    """An `SqlSession`; every name that stands in its statements is quoted."""

    def __init__(self, connection: "psycopg.Connection[tuple[Any, ...]]") -> None:
        self._connection = connection

    def ledger(self, view: str, *, lock: bool = False) -> Ledger | None:
        row = self._connection.execute(_LOCKED_LEDGER if lock else _LEDGER, (view,)).fetchone()
        return None if row is None else Ledger.loads(row[0])

    def views(self) -> list[str]:
        found = self._connection.execute('SELECT view FROM headrace_ledger ORDER BY view COLLATE "C"')
        return [name for (name,) in found]

    def write_ledger(self, ledger: Ledger) -> None:
        reflected = ledger.reflected
        watermark = pa.scalar(reflected.watermark_us, pa.timestamp("us", "UTC")).as_py()
        self._connection.execute(
            "INSERT INTO headrace_ledger VALUES (%s, %s, %s, %s, %s) ON CONFLICT (view) DO UPDATE SET "
            "query_id = excluded.query_id, batch_id = excluded.batch_id, watermark = excluded.watermark, "
            "ledger = excluded.ledger",
            (ledger.schema.name, reflected.query_id, reflected.batch_id, watermark, ledger.dumps()),
        )

    def create(self, schema: ViewSchema) -> None:
        columns = [f"{quoted(each.name)} {declared_type(each.type)}" for each in schema.columns]
        key = ", ".join(quoted(name) for name in schema.key)
        try:
            self._execute(
                f"CREATE TABLE {quoted(schema.name)} "
                f"({', '.join(columns)}, UNIQUE NULLS NOT DISTINCT ({key}))"
            )
        except psycopg.errors.DuplicateTable as error:
            raise RequestError(
                f"the database already has a table {schema.name!r} that is not a view of Headrace; give the "
                "view another name, or keep it in another schema"
            ) from error

    def clear(self, old: ViewSchema, new: ViewSchema) -> None:
        """Deletes where it can: readers of an older moment go on seeing that one."""
        self._connection.execute("DELETE FROM headrace_changes WHERE view = %s", (old.name,))
        if old.same_rows(new):
            self._execute(f"DELETE FROM {quoted(old.name)}")  # noqa: S608 - quoted
        else:
            self._execute(f"DROP TABLE {quoted(old.name)}")
            self.create(new)

    def forget(self, schema: ViewSchema) -> None:
        self._execute(f"DROP TABLE {quoted(schema.name)}")
        self._connection.execute("DELETE FROM headrace_changes WHERE view = %s", (schema.name,))
        self._connection.execute("DELETE FROM headrace_ledger WHERE view = %s", (schema.name,))

    def write_rows(self, schema: ViewSchema, net: NetChanges) -> None:
        if net.removed.num_rows:
            self._delete(schema, net.removed)
        if net.rows.num_rows:
            self._bring(schema, net.rows)
            self._execute(_merge(schema, _BROUGHT))
            self._execute(f"DROP TABLE {_BROUGHT}")

    def write_changes(self, view: str, changes: list[ViewChange], drop_up_to: int) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO headrace_changes VALUES (%s, %s, %s, %s, %s, %s, %s)",
                [(view, each.sequence, each.batch_id, each.kind, *_jsons(each)) for each in changes],
            )
            cursor.execute(
                "DELETE FROM headrace_changes WHERE view = %s AND sequence <= %s", (view, drop_up_to)
            )

    def select(self, schema: ViewSchema, selection: Selection) -> pa.Table:
        sql = selection_sql(schema, selection, _Dialect(), quoted(schema.name))
        text = sql.text.replace("%", "%%").replace(_Dialect.placeholder, "%s")
        found = self._connection.execute(text.encode(), sql.parameters).fetchall()
        if not found:
            return schema.columns.empty_table()
        columns = zip(zip(*found, strict=True), schema.columns, strict=True)
        arrays = [decode(list(values), each.type) for values, each in columns]
        return pa.table(arrays, schema=schema.columns)

    def oldest_change(self, view: str) -> int | None:
        row = self._connection.execute(
            "SELECT min(sequence) FROM headrace_changes WHERE view = %s", (view,)
        ).fetchone()
        return None if row is None else row[0]

    def changes(self, view: str, since: int, limit: int) -> list[ViewChange]:
        found = self._connection.execute(
            'SELECT sequence, batch_id, kind, "key", "before", "after" FROM headrace_changes '
            "WHERE view = %s AND sequence > %s ORDER BY sequence LIMIT %s",
            (view, since, limit),
        )
        return [ViewChange(*each) for each in found]

    # --- rows by way of a temporary table -----------------------------------------------------

    def _bring(self, schema: ViewSchema, rows: pa.Table) -> None:
        """Copies rows, or only their keys, into a temporary table."""
        names = ", ".join(quoted(name) for name in rows.column_names)
        self._execute(
            f"CREATE TEMPORARY TABLE {_BROUGHT} ON COMMIT DROP AS "  # noqa: S608 - quoted
            f"SELECT {names} FROM {quoted(schema.name)} WITH NO DATA"
        )
        with (
            self._connection.cursor() as cursor,
            cursor.copy(f"COPY {_BROUGHT} FROM STDIN (FORMAT csv)") as copy,
        ):
            copy.write(to_csv(rows))

    def _delete(self, schema: ViewSchema, keys: pa.Table) -> None:
        """Keys with a null are looked for apart: only equality can use an index."""
        nulls = pa.chunked_array([pa.array([False] * keys.num_rows)])
        for name in schema.key:
            nulls = pc.or_(nulls, pc.is_null(keys[name]))
        for part, equal in (
            (keys.filter(pc.invert(nulls)), "="),
            (keys.filter(nulls), "IS NOT DISTINCT FROM"),
        ):
            if part.num_rows:
                self._bring(schema, part)
                self._execute(_removal(schema, _BROUGHT, equal))
                self._execute(f"DROP TABLE {_BROUGHT}")

    # --- parts that tasks have brought --------------------------------------------------------

    def take_up(
        self, schema: ViewSchema, batch_id: int, staged: Sequence[StagedChanges], sequence: int
    ) -> None:
        parts = [StagedPart(**each.place) for each in staged]
        self._require_whole(parts)
        removing = [part for part in parts if part.removed]
        if removing:
            keys = _union(part.table("removed") for part in removing)
            self._execute(_removal(schema, keys, "="))
            if any(part.null_keys for part in removing):
                self._execute(_removal(schema, keys, "IS NOT DISTINCT FROM"))
        bringing = [part.table("rows") for part in parts if part.rows]
        if bringing:
            self._execute(_merge(schema, f"{_union(bringing)} parts"))
        listed = []
        for part, each in zip(parts, staged, strict=True):
            if part.changes:
                table = quoted(part.table("changes"))
                listed.append(f"SELECT {sequence} + number AS number, {_CHANGE} FROM {table}")  # noqa: S608
            sequence += each.changed
        if listed:
            statement = _LISTED.replace("PARTS", f"({' UNION ALL '.join(listed)}) parts")
            self._connection.execute(statement.encode(), (schema.name, batch_id))
        self.drop_tables(staged_tables(self.table_names(), schema.name, up_to=batch_id))

    def _require_whole(self, parts: Sequence[StagedPart]) -> None:
        """Raises RetriableError unless every table of the parts is there, with all its rows."""
        wanted = {name: count for part in parts for name, count in part.tables().items()}
        found: dict[str, int] = {}
        if known := [name for name in self.table_names() if name in wanted]:
            counts = ", ".join(f"(SELECT count(*) FROM {quoted(name)})" for name in known)  # noqa: S608
            row = self._connection.execute(f"SELECT {counts}".encode()).fetchone()
            found = dict(zip(known, row or (), strict=True))
        for name, count in wanted.items():
            if found.get(name) != count:
                raise RetriableError(
                    f"{name} has lost rows that a task had staged, as after a crash of the server; try again"
                )

    def table_names(self) -> list[str]:
        """The tables of the connection's schema."""
        return [name for (name,) in self._connection.execute(_TABLE_NAMES)]

    def drop_tables(self, names: Sequence[str]) -> None:
        if names:
            self._execute(f"DROP TABLE {', '.join(map(quoted, names))}")

    def _execute(self, statement: str) -> None:
        """A statement without parameters: nothing in it stands for one, whatever names it holds."""
        self._connection.execute(statement.encode())


class _Dialect:
    placeholder = "\0"  # in no name; becomes %s once every % of a name is escaped

    def operand(self, name: str, kind: pa.DataType) -> str:
        del kind
        return quoted(name)

    def parameter(self, value: Any, kind: pa.DataType) -> Any:
        del kind
        return value

    def order(self, operand: str, descending: bool) -> str:
        return f"{operand} DESC NULLS LAST" if descending else f"{operand} NULLS FIRST"


def _merge(schema: ViewSchema, brought: str) -> str:
    names = ", ".join(quoted(name) for name in schema.columns.names)
    key = ", ".join(quoted(name) for name in schema.key)
    updates = ", ".join(f"{quoted(name)} = excluded.{quoted(name)}" for name in schema.value_names())
    return (
        f"INSERT INTO {quoted(schema.name)} ({names}) SELECT {names} FROM {brought} "  # noqa: S608 - quoted
        f"ON CONFLICT ({key}) DO {'UPDATE SET ' + updates if updates else 'NOTHING'}"
    )


def _union(tables: Iterable[str]) -> str:
    return f"({' UNION ALL '.join(f'SELECT * FROM {quoted(each)}' for each in tables)})"  # noqa: S608


def _removal(schema: ViewSchema, brought: str, equal: str) -> str:
    terms = [f"t.{quoted(name)} {equal} b.{quoted(name)}" for name in schema.key]
    return f"DELETE FROM {quoted(schema.name)} t USING {brought} b WHERE {' AND '.join(terms)}"  # noqa: S608


def _jsons(change: ViewChange) -> list[Json | None]:
    return [None if row is None else Json(row, dumps) for row in (change.key, change.before, change.after)]
