"""The tables of a database in one MVCC snapshot, read through a connection of its own."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.capture.change import Change, Position, TableSchema
from headrace.capture.postgres.chunks import read_rows, rounded_end
from headrace.capture.postgres.decode import AnsweredRows
from headrace.capture.postgres.tables import CapturedTables
from headrace.capture.postgres.visibility import Visibility
from headrace.capture.postgres.wire import Connection, parse_lsn
from headrace.kernels import RowEncoder

__all__ = ["FrozenDatabase"]


class FrozenDatabase:
    """What the transaction sees that `queries` is in, which must be REPEATABLE READ."""

    def __init__(self, queries: Connection, tables: CapturedTables) -> None:
        self._queries, self._tables = queries, tables
        self._visibility = Visibility.parse(queries.value("SELECT pg_current_snapshot()"))
        self._end_lsn = rounded_end(parse_lsn(queries.value("SELECT pg_current_wal_insert_lsn()")))
        self._encoder = RowEncoder()

    def schemas(self) -> Mapping[str, TableSchema]:
        return self._tables.schemas()

    def rows(self, table: str, chunk_rows: int) -> Iterator[Change]:
        found, writer = self._tables.current(table)
        cursor: Sequence[Any] | None = None
        while True:
            data, cursor = read_rows(self._queries, found, cursor, chunk_rows)
            yield from AnsweredRows(data, writer, self._encoder).rows()
            if cursor is None:
                return

    def sees(self, said: Mapping[str, Any]) -> bool | None:
        xid = said.get("txId")
        return self._visibility.sees(xid) if isinstance(xid, int) else None

    def reached(self, position: Position) -> bool:
        return int(position["lsn"]) >= self._end_lsn
