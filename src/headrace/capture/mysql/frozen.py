"""The tables of a database in one snapshot, of which the place in the log is known.

MariaDB tells the place of a snapshot. MySQL does not: there the snapshot begins while the tables are locked
for reading. Whoever has changed them is through with committing then, in the log and in the table, and
whoever wants to waits; so where the log ends at that moment is the place, as far as these tables go.
"""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.capture.change import Change, Position, TableSchema
from headrace.capture.mysql.chunks import log_end, place_of, read_rows, snapshot_end
from headrace.capture.mysql.decode import AnsweredRows
from headrace.capture.mysql.tables import CapturedTables
from headrace.capture.mysql.wire import Connection, ServerBusy, ServerError, identifier
from headrace.errors import RequestError, RetriableError
from headrace.kernels import RowEncoder

__all__ = ["FrozenDatabase", "locked"]

_DENIED, _TIMED_OUT = (1044, 1142), 1205
_WAIT_S, _PAUSE_S, _PATIENCE_S = 1, 1.0, 30.0


class FrozenDatabase:
    """What the consistent snapshot has that `queries` is in."""

    def __init__(self, queries: Connection, tables: CapturedTables) -> None:
        self._queries, self._tables = queries, tables
        self._end = place_of(*(snapshot_end if queries.is_mariadb else log_end)(queries))
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


@contextlib.contextmanager
def locked(other: Connection, tables: CapturedTables) -> Iterator[None]:
    """Nobody changes the tables for as long as the context lasts, by a lock of another connection.

    It is waited for at most a second at a time, during which writers wait as well. Raises RetriableError if
    transactions keep the tables busy for half a minute.
    """
    named = (".".join(map(identifier, each.split(".", 1))) for each in tables.tables)
    statement = "LOCK TABLES " + ", ".join(f"{each} READ" for each in named)
    other.query(f"SET SESSION lock_wait_timeout = {_WAIT_S}")
    until = time.monotonic() + _PATIENCE_S
    while not _is_granted(other, statement):
        if time.monotonic() > until:
            raise RetriableError(
                f"a transaction has been writing to the tables for {_PATIENCE_S:.0f} s: MySQL tells what a "
                "snapshot contains only between two transactions; try again once it has ended"
            )
        time.sleep(_PAUSE_S)
    try:
        yield
    finally:
        other.query("UNLOCK TABLES")


def _is_granted(other: Connection, statement: str) -> bool:
    try:
        other.query(statement)
    except ServerBusy as error:
        if error.number != _TIMED_OUT:
            raise
        return False
    except ServerError as error:
        if error.number not in _DENIED:
            raise
        raise RequestError(
            "comparing tables of MySQL takes the right to lock them for a moment: GRANT LOCK TABLES ON "
            f"the database TO the user ({error})"
        ) from error
    return True
