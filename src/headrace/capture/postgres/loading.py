"""The first load: every row of whole tables, on several connections, in the state in which the slot begins.

Creating a slot exports a snapshot: it contains exactly the transactions that do not come out of the stream.
A *holder* takes it over and hands it on, for as long as its transaction is open, and the tables' locks keep
them from being rewritten, which old snapshots do not survive. Each reader takes pieces, ranges of pages, and
what it reads goes through one short queue, so that memory stays flat whatever a piece has in it: a large row
is received once the one before it was written. The snapshot ends with its connection: what was not read whole
by then has to be read in another way.

Rows are asked for with SELECT: COPY takes the server a fifth more processor time for the same rows.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.capture.postgres.catalog import Table
from headrace.capture.postgres.decode import AnsweredRows, RowWriter
from headrace.capture.postgres.wire import Connection, ServerError, identifier, literal, qualified
from headrace.capture.source import LoadedRows
from headrace.errors import RetriableError
from headrace.kernels import RowEncoder

__all__ = ["Holder", "ParallelLoad"]

_PAGES = 1024  # of a piece: 8 MiB
_BLOCK_BYTES = 2 << 20
_QUEUED_BLOCKS = 4
_LOOK_S = 0.2
_RANGES_VERSION = 14  # older servers find a range of pages by reading all of them
_LOCK_WAIT = "10s"
_UNBOUNDED = ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout")
# What a change of the table just before it was locked makes of a query that was written for it as it was.
_CHANGED_STATES = ("42703", "42P01", "42804")


class Holder:
    """Keeps a snapshot for others, and tables as they are in it, until it is closed."""

    def __init__(self, connection: Connection, snapshot: str, tables: Sequence[Table]) -> None:
        self._connection = connection
        _begin_in(connection, snapshot)
        self.snapshot = connection.value("SELECT pg_export_snapshot()")
        if tables:
            connection.query(f"SET LOCAL lock_timeout = '{_LOCK_WAIT}'")
            with _changed_is_temporary():
                connection.query(f"LOCK TABLE {', '.join(each.own_rows for each in tables)} "
                                 "IN ACCESS SHARE MODE")  # fmt: skip
        self.server_version = connection.server_version

    def pieces(self, table: Table) -> list[str]:
        """What stands behind the columns of a SELECT, for each piece."""
        if self.server_version < _RANGES_VERSION:
            return [f" FROM {table.own_rows}"]
        if not table.is_partitioned:
            return list(_ranges(table.own_rows, self._pages(table.oid)))
        rows = self._connection.query(
            "SELECT c.oid, n.nspname, c.relname, has_schema_privilege(n.oid, 'USAGE') AND "
            f"has_table_privilege(c.oid, 'SELECT') FROM pg_partition_tree({table.oid}) p "
            "JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.isleaf"
        )
        if any(may_read != "t" for *_, may_read in rows):
            return [f" FROM {table.own_rows}"]
        return [
            piece
            for oid, schema, name, _ in rows
            for piece in _ranges(qualified(schema or "", name or ""), self._pages(int(oid or 0)))
        ]

    def _pages(self, oid: int) -> int:
        size = f"SELECT pg_relation_size({oid}) / current_setting('block_size')::bigint"
        return int(self._connection.value(size))

    def close(self) -> None:
        self._connection.close()


def _ranges(rows: str, pages: int) -> Iterator[str]:
    """All pages there are, the last range also those that came later."""
    begins = range(0, max(pages, 1), _PAGES)
    for begin in begins:
        before = f" AND ctid < '({begin + _PAGES},0)'" if begin != begins[-1] else ""
        yield f" FROM {rows} WHERE ctid >= '({begin},0)'{before}"


def _begin_in(connection: Connection, snapshot: str) -> None:
    """A transaction that sees what the snapshot does, and may take as long as it likes."""
    names = ", ".join(literal(each) for each in _UNBOUNDED)
    connection.query(f"SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ({names})")
    connection.query("SET jit = off")
    connection.query("SET max_parallel_workers_per_gather = 0")
    connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    connection.query(f"SET TRANSACTION SNAPSHOT {literal(snapshot)}")


@contextlib.contextmanager
def _changed_is_temporary() -> Iterator[None]:
    """A table that was changed since the catalog was read is read again in the next attempt."""
    try:
        yield
    except ServerError as error:
        if error.sqlstate not in _CHANGED_STATES:
            raise
        raise RetriableError(f"a table was changed when its first load began: {error}") from error


@dataclass(frozen=True, slots=True)
class _Piece:
    """A statement; and that its rows are those of the table with this number."""

    table: int
    sql: str


@dataclass(frozen=True, slots=True)
class _Block:
    """Rows of the table with this number; none at the end of a piece."""

    table: int
    data: bytes
    is_large: bool


class ParallelLoad:
    """The rows of these tables, piece by piece, in the holder's snapshot; one thread asks for them."""

    def __init__(
        self,
        holder: Holder,
        connect: Callable[[], Connection],
        tables: Mapping[str, tuple[Table, RowWriter]],
        workers: int,
    ) -> None:
        self._holder, self._connect = holder, connect
        self._names, self._writers = list(tables), [writer for _, writer in tables.values()]
        self._encoder = RowEncoder()
        statements = [_statements(holder, table) for table, _ in tables.values()]
        self._left = [len(each) for each in statements]
        self._pieces = iter([_Piece(number, sql) for number, each in enumerate(statements) for sql in each])
        self._taking = threading.Lock()
        self._read: queue.Queue[_Block | Exception] = queue.Queue(_QUEUED_BLOCKS)
        self._large = threading.Semaphore()  # who has it may have a row in memory that is larger than a block
        self._has_large = False  # what was handed over last
        self._closing = threading.Event()
        self._opened: list[Connection] = []
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(workers)]
        self.read_us = time.time_ns() // 1000
        for each in self._threads:
            each.start()

    @property
    def is_done(self) -> bool:
        return not any(self._left)

    def next(self, wait_s: float) -> LoadedRows | None:
        """What was read next; None if nothing was within `wait_s`."""
        if self._has_large:
            self._has_large = False
            self._large.release()
        try:
            read = self._read.get(timeout=wait_s)
        except queue.Empty:
            return None
        if isinstance(read, Exception):
            raise read
        number, self._has_large = read.table, read.is_large
        if not read.data:
            self._left[number] -= 1
        rows = AnsweredRows(read.data, self._writers[number], self._encoder)
        return LoadedRows(table=self._names[number], rows=rows, is_whole=not self._left[number])

    def close(self) -> None:
        """Ends readers and the snapshot; harmless when repeated."""
        self._closing.set()
        for each in list(self._opened):
            each.interrupt()
        for thread in self._threads:
            thread.join()
        self._holder.close()

    # --- in the threads of readers --------------------------------------------------------------

    def _work(self) -> None:
        try:
            with self._connect() as connection:
                self._opened.append(connection)
                _begin_in(connection, self._holder.snapshot)
                while (piece := self._take()) is not None:
                    with _changed_is_temporary():
                        self._read_piece(connection, piece)
                    self._put(_Block(piece.table, b"", is_large=False))
        except _Closed:
            pass
        except Exception as error:
            with contextlib.suppress(_Closed):
                self._put(error)

    def _read_piece(self, connection: Connection, piece: _Piece) -> None:
        is_large = False

        def before_more(row_bytes: int) -> None:
            nonlocal is_large
            while row_bytes > _BLOCK_BYTES and not is_large:
                is_large = self._large.acquire(timeout=_LOOK_S)
                if self._closing.is_set():
                    raise _Closed

        blocks = connection.answer_blocks(piece.sql, _BLOCK_BYTES, before_more)
        while (data := next(blocks, None)) is not None:
            made = [_Block(piece.table, data, is_large=is_large)]
            del data
            is_large = False  # it goes on with the block
            self._put(made.pop())

    def _take(self) -> _Piece | None:
        with self._taking:
            return None if self._closing.is_set() else next(self._pieces, None)

    def _put(self, read: _Block | Exception) -> None:
        while not self._closing.is_set():
            with contextlib.suppress(queue.Full):
                self._read.put(read, timeout=_LOOK_S)
                return
        raise _Closed


class _Closed(Exception):  # noqa: N818 - what has happened
    """Nobody wants the rows any longer."""


def _statements(holder: Holder, table: Table) -> list[str]:
    columns = ", ".join(identifier(each.name) for each in table.columns)
    return [f"SELECT {columns}{piece}" for piece in holder.pieces(table)]
