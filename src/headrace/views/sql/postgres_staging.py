"""Parts of a batch that tasks bring to PostgreSQL, in tables that the batch's transaction takes up.

A part is up to three unlogged tables: rows to upsert, keys to remove, and the latest changes as
followers read them. Their names have the view, the batch and a random token, so that attempts of a
task do not meet. The transaction that takes a part up drops its tables, and those of the same or
earlier batches that nobody has taken up. A server that crashes empties unlogged tables: the number
of rows in each is therefore told to whoever takes them up, and compared.
"""

import hashlib
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.crash_points import reached
from headrace.views.batch import StagedChanges, ViewBatch, net_changes
from headrace.views.changes import kept_changes
from headrace.views.formats import dumps
from headrace.views.misfits import LimitedStore
from headrace.views.schema import ViewSchema
from headrace.views.sql.postgres_connection import Connection, connect, explained, without_password
from headrace.views.sql.postgres_values import declared_type, misfits, to_csv
from headrace.views.sql.selection_sql import quoted

__all__ = ["PostgresStager", "StagedPart", "staged_tables"]

_PREFIX = "headrace_staged"
_CHANGES = pa.schema(
    [
        ("number", pa.int64()),
        ("kind", pa.int16()),
        *((name, pa.string()) for name in ("key", "before", "after")),
    ]
)

_connections: dict[str, Connection] = {}  # of this process, which is one of Spark's and has one thread


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedPart:
    """The tables of a part: what their names begin with, and how many rows each has.

    `null_keys` says whether a key to remove has a null in it.
    """

    name: str
    rows: int
    removed: int
    changes: int
    null_keys: bool

    def tables(self) -> dict[str, int]:
        """The number of rows by table, of those that there are."""
        found = {"rows": self.rows, "removed": self.removed, "changes": self.changes}
        return {self.table(kind): count for kind, count in found.items() if count}

    def table(self, kind: str) -> str:
        return f"{self.name}_{kind}"


def _view_prefix(view: str) -> str:
    digest = hashlib.sha256(view.encode()).hexdigest()[:16]  # a table's name has 63 bytes at most
    return f"{_PREFIX}_{digest}_"


def staged_tables(names: Iterable[str], view: str, up_to: int | None = None) -> list[str]:
    """Those of the tables that are parts of the view's batches up to this one."""
    prefix = _view_prefix(view)
    own = [each for each in names if each.startswith(prefix)]
    return [each for each in own if up_to is None or int(each.removeprefix(prefix).split("_")[0]) <= up_to]


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresStager(LimitedStore):
    """Copies parts of a view to the server, from a connection that this process keeps."""

    url: str
    schema: ViewSchema

    def misfits(self, rows: pa.Table, key: Sequence[str]) -> pa.Array | None:
        return misfits(rows, key)

    def stage(self, changes: pa.Table, *, batch_id: int, distinct: bool) -> StagedChanges:
        net = net_changes(self.schema, changes, distinct=distinct)
        kept, _ = kept_changes(self.schema, ViewBatch("", batch_id, changes), 0)
        part = StagedPart(
            name=f"{_view_prefix(self.schema.name)}{batch_id}_{secrets.token_hex(6)}",
            rows=net.rows.num_rows,
            removed=net.removed.num_rows,
            changes=len(kept),
            null_keys=any(pc.any(pc.is_null(column)).as_py() for column in net.removed.columns),
        )
        listed = [
            (each.sequence, each.kind, *(_json(row) for row in (each.key, each.before, each.after)))
            for each in kept
        ]
        columns = list(zip(*listed, strict=True)) or [()] * len(_CHANGES)
        arrays = [pa.array(column, each.type) for column, each in zip(columns, _CHANGES, strict=True)]
        with explained(without_password(self.url)):
            connection = self._connection()
            with connection.transaction():
                # Should the server lose them all the same, it is noticed when they are taken up.
                connection.execute("SET LOCAL synchronous_commit = off")
                for kind, table in (
                    ("rows", net.rows),
                    ("removed", net.removed),
                    ("changes", pa.table(arrays, schema=_CHANGES)),
                ):
                    if table.num_rows:
                        _copy(connection, part.table(kind), table)
        reached("part staged")
        return StagedChanges(changed=changes.num_rows, place=_fields(part))

    def _connection(self) -> Connection:
        found = _connections.get(self.url)
        if found is None or found.closed:
            _connections[self.url] = found = connect(self.url)
        return found


def _fields(part: StagedPart) -> Mapping[str, Any]:
    return {name: getattr(part, name) for name in ("name", "rows", "removed", "changes", "null_keys")}


def _json(row: dict[str, Any] | None) -> str | None:
    return None if row is None else dumps(row)


def _copy(connection: Connection, name: str, table: pa.Table) -> None:
    columns = ", ".join(f"{quoted(each.name)} {declared_type(each.type)}" for each in table.schema)
    connection.execute(f"CREATE UNLOGGED TABLE {quoted(name)} ({columns})".encode())
    with (
        connection.cursor() as cursor,
        cursor.copy(f"COPY {quoted(name)} FROM STDIN (FORMAT csv)".encode()) as copy,
    ):
        copy.write(to_csv(table))
