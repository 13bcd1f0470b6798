"""Views in PostgreSQL, 15 or newer.

A view is a table of its name in the connection's schema, beside `headrace_ledger` and
`headrace_changes`. A batch is one transaction: its rows are copied into a temporary
table and merged from there, all at once.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress

import psycopg
import pyarrow as pa
from psycopg import errors

from headrace.views.ledger import Reflected
from headrace.views.misfits import LimitedStore
from headrace.views.schema import ViewSchema
from headrace.views.sql.postgres_connection import (
    WRITER,
    Connection,
    connect,
    explained,
    without_password,
)
from headrace.views.sql.postgres_session import TABLES, PostgresSession
from headrace.views.sql.postgres_staging import PostgresStager, staged_tables
from headrace.views.sql.postgres_values import misfits
from headrace.views.sql.selection_sql import quoted
from headrace.views.sql.store import SqlStore
from headrace.views.store import StagingStore

__all__ = ["PostgresStore"]

_PATIENCE_S = 2.0
_END_WHO_BLOCKS = """
SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid = ANY(pg_blocking_pids(%s)) AND application_name = %s
"""


class PostgresStore(StagingStore, LimitedStore, SqlStore):
    """A ViewStore in a PostgreSQL database, named by a libpq URL.

    Writing and reading have a connection each, opened when they are needed and
    reopened when they are lost. A commit that was cut off is a RetriableError: the batch,
    repeated, finds out whether it is in.

    A run begins its views after it has taken over the application. What the run before it has open
    then, suspended or cut off as it may be, is ended: nobody else would let go of its locks.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = without_password(url)
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        with self._write_lock, explained(self.name):
            self._writer = connect(self._url, WRITER)
            self._writer.execute(TABLES)
            self._writer.commit()

    def stager(self, schema: ViewSchema) -> PostgresStager:
        return PostgresStager(url=self._url, schema=schema)

    def misfits(self, rows: pa.Table, key: Sequence[str]) -> pa.Array | None:
        return misfits(rows, key)

    def prepare(self, schema: ViewSchema) -> None:
        with self._taking_over():
            super().prepare(schema)

    def begin(
        self, view: str, query_id: str, *, schema: ViewSchema | None = None, first_batch: int = 0
    ) -> Reflected:
        with self._taking_over():
            found = super().begin(view, query_id, schema=schema, first_batch=first_batch)
            with self._transaction() as session:
                session.drop_tables(staged_tables(session.table_names(), view))
        return found

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            for each in (self._writer, self._reader):
                if each is not None:
                    each.close()
            self._writer = self._reader = None

    @contextmanager
    def _taking_over(self) -> Iterator[None]:
        """Within, writers that keep this one waiting are ended after a moment."""
        done = threading.Event()
        watch = threading.Thread(target=self._end_who_blocks, args=(done,), name="blockers", daemon=True)
        watch.start()
        try:
            yield
        finally:
            done.set()
            watch.join()

    def _end_who_blocks(self, done: threading.Event) -> None:
        while not done.wait(_PATIENCE_S):
            writer = self._writer
            if writer is None or writer.closed:
                continue
            with suppress(psycopg.Error), closing(connect(self._url)) as connection:
                connection.execute(_END_WHO_BLOCKS, (writer.info.backend_pid, WRITER))

    @contextmanager
    def _transaction(self) -> Iterator[PostgresSession]:
        with self._write_lock, explained(self.name):
            if self._writer is None or self._writer.closed:
                self._writer = connect(self._url, WRITER)
            with self._writer.transaction():
                yield PostgresSession(self._writer)

    @contextmanager
    def _reading(self, view: str | None = None) -> Iterator[PostgresSession]:
        with self._read_lock, explained(self.name):
            if self._reader is None or self._reader.closed:
                self._reader = connect(self._url)
                self._reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with self._reader.transaction():
                if view is not None:
                    _hold(self._reader, view)
                yield PostgresSession(self._reader)


def _hold(connection: Connection, view: str) -> None:
    """Locks the view's table against being replaced, before the snapshot is taken.

    The first query takes it, and LOCK does not count as one; a table that is replaced in
    between would look empty. A missing view is left for the caller to find.
    """
    connection.execute("SAVEPOINT held")
    try:
        connection.execute(f"LOCK TABLE {quoted(view)} IN ACCESS SHARE MODE".encode())
    except errors.UndefinedTable:
        connection.execute("ROLLBACK TO held")
