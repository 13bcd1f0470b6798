"""The tables of a database of MariaDB in one snapshot, of which the place in the log is known."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.capture.change import Change, Position, TableSchema
from headrace.capture.mysql.chunks import place_of, read_rows, snapshot_end
from headrace.capture.mysql.decode import AnsweredRows
from headrace.capture.mysql.tables import CapturedTables
from headrace.capture.mysql.wire import Connection
from headrace.kernels import RowEncoder

__all__ = ["FrozenDatabase"]


class FrozenDatabase:
    """What the consistent snapshot has that `queries` is in."""

    def __init__(self, queries: Connection, tables: CapturedTables) -> None:
        self._queries, self._tables = queries, tables
        self._end = place_of(*snapshot_end(queries))
        self._encoder = RowEncoder()

    def schemas(self) -> Mapping[str, TableSchema]:
        return self._tables.schemas()

    def rows(self, table: str, chunk_rows: int) -> Iterator[Change]:
        found = self._tables.current(table)
        cursor: Sequence[Any] | None = None
        while True:
            bodies, cursor = read_rows(self._queries, found, cursor, chunk_rows)
            yield from AnsweredRows(bodies, found.rows(), None, self._encoder, b"").rows()
            if cursor is None:
                return

    def sees(self, said: Mapping[str, Any]) -> bool | None:
        """A change is told by where its event begins, a row of a snapshot by where that ended."""
        file, position = said.get("file"), said.get("pos")
        if not isinstance(file, str) or not isinstance(position, int):
            return None
        place = place_of(file, position)
        return place <= self._end if said.get("snapshot") == "true" else place < self._end

    def reached(self, position: Position) -> bool:
        return place_of(position["file"], position["pos"]) >= self._end
