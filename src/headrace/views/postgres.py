"""Views in PostgreSQL, 15 or newer.

A view is a table of its name in the connection's schema, beside `headrace_ledger` and
`headrace_changes`. A batch is one transaction: its rows are copied into a temporary
table and merged from there, all at once.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg import errors

from headrace.errors import ConfigError, DiskError, HeadraceError, RequestError, RetriableError
from headrace.views.postgres_session import TABLES, PostgresSession
from headrace.views.selecting_sql import quoted
from headrace.views.sql_store import SqlStore

__all__ = ["PostgresStore"]

_OLDEST_VERSION = 150_000  # has UNIQUE NULLS NOT DISTINCT
_SETTINGS = (
    "SET TIME ZONE 'UTC'; SET client_encoding = 'UTF8'; SET extra_float_digits = 1; "
    "SET synchronous_commit = on; SET datestyle = 'ISO, YMD'; SET bytea_output = 'hex'"
)

Connection = psycopg.Connection[tuple[Any, ...]]


class PostgresStore(SqlStore):
    """A ViewStore in a PostgreSQL database, named by a libpq URL.

    Writing and reading have a connection each, made when they are needed and made
    again when they were lost. A commit that was cut off is a RetriableError: the batch,
    repeated, finds out whether it is in.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = _without_password(url)
        self._write_lock, self._read_lock = threading.Lock(), threading.Lock()
        self._writer: Connection | None = None
        self._reader: Connection | None = None
        with self._write_lock, _explained(self.name):
            self._writer = self._connect()
            self._writer.execute(TABLES)
            self._writer.commit()

    def close(self) -> None:
        with self._write_lock, self._read_lock:
            for each in (self._writer, self._reader):
                if each is not None:
                    each.close()
            self._writer = self._reader = None

    @contextmanager
    def _transaction(self) -> Iterator[PostgresSession]:
        with self._write_lock, _explained(self.name):
            if self._writer is None or self._writer.closed:
                self._writer = self._connect()
            with self._writer.transaction():
                yield PostgresSession(self._writer)

    @contextmanager
    def _reading(self, view: str | None = None) -> Iterator[PostgresSession]:
        with self._read_lock, _explained(self.name):
            if self._reader is None or self._reader.closed:
                self._reader = self._connect()
                self._reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with self._reader.transaction():
                if view is not None:
                    _hold(self._reader, view)
                yield PostgresSession(self._reader)

    def _connect(self) -> Connection:
        connection = psycopg.connect(self._url, autocommit=False, application_name="headrace-views")
        if connection.info.server_version < _OLDEST_VERSION:
            connection.close()
            raise ConfigError(f"{self.name} is older than PostgreSQL 15; views need 15 or newer")
        connection.execute(_SETTINGS)
        connection.commit()
        return connection


def _hold(connection: Connection, view: str) -> None:
    """Keeps the view's table from being replaced, before the moment that is read is fixed.

    The first query fixes it and LOCK is none; a table replaced in between would look
    empty. A view that is not there is for the caller to find.
    """
    connection.execute("SAVEPOINT held")
    try:
        connection.execute(f"LOCK TABLE {quoted(view)} IN ACCESS SHARE MODE".encode())
    except errors.UndefinedTable:
        connection.execute("ROLLBACK TO held")


_RETRIABLE = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.LockNotAvailable,
    errors.QueryCanceled,
    errors.AdminShutdown,
)


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """The driver's errors as ours; none of them carries the password."""
    try:
        yield
    except psycopg.Error as error:
        raise _ours(error, name) from error


def _ours(error: psycopg.Error, name: str) -> HeadraceError:
    cause = f"{name}: {str(error).strip()}"
    if isinstance(error, errors.DiskFull):
        return DiskError(f"{cause}; make room", full=True)
    if isinstance(error, errors.InvalidPassword | errors.InvalidAuthorizationSpecification):
        return ConfigError(f"{cause}; correct the URL")
    if isinstance(error, errors.InsufficientPrivilege):
        return ConfigError(f"{cause}; the user needs CREATE on the schema, and to own the tables of views")
    if isinstance(error, errors.ReadOnlySqlTransaction):
        return ConfigError(f"{cause}; write to the primary server")
    if isinstance(error, _RETRIABLE):
        return RetriableError(f"{cause}; try again")
    if isinstance(error, psycopg.DataError):
        return RequestError(
            f"{cause}; PostgreSQL cannot keep this value (text may not hold the character NUL, for example): "
            "clean it before the view"
        )
    return RequestError(cause)


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.hostname or parts.query or "local"
    return f"postgresql://{host}{f':{parts.port}' if parts.port else ''}{parts.path}"
