"""Connections to PostgreSQL, 15 or newer, and its errors as ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import psycopg
from psycopg import errors

from headrace.errors import ConfigError, DiskError, HeadraceError, RequestError, RetriableError
from headrace.secret_references import is_reference, resolve

__all__ = ["WRITER", "Connection", "connect", "explained", "without_password"]

WRITER = "headrace-views writer"  # as the server knows the connection that a run writes views by

_OLDEST_VERSION = 150_000  # has UNIQUE NULLS NOT DISTINCT
_SETTINGS = (
    "SET TIME ZONE 'UTC'; SET client_encoding = 'UTF8'; SET extra_float_digits = 1; "
    "SET synchronous_commit = on; SET datestyle = 'ISO, YMD'; SET bytea_output = 'hex'; "
    # The server drops a client whose machine is gone after a minute; by default, after two hours.
    "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3"
)
# And the client drops a server.
_KEEPALIVES = {
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(url: str, name: str = "headrace-views") -> Connection:
    """A connection on which values look as we write them, known to the server by that name.

    One that leads nowhere is given up after a minute, unless the URL has keepalives of its own.
    `password=env:NAME` or `file:PATH` in the URL is resolved here, by the process that connects.
    Raises ConfigError if it leads nowhere, or the server is too old.
    """
    options = dict(parse_qsl(urlsplit(url).query))
    keepalives: dict[str, Any] = {key: value for key, value in _KEEPALIVES.items() if key not in options}
    connection = psycopg.connect(
        url, password=_password(url), autocommit=False, application_name=name, **keepalives
    )
    if connection.info.server_version < _OLDEST_VERSION:
        connection.close()
        raise ConfigError(f"{without_password(url)} is older than PostgreSQL 15; views need 15 or newer")
    connection.execute(_SETTINGS)
    connection.commit()
    return connection


def _password(url: str) -> str | None:
    """What a reference in the URL leads to; None leaves the password to libpq."""
    asked = dict(parse_qsl(urlsplit(url).query)).get("password", "")
    return resolve(asked, f"the password of {without_password(url)}") if is_reference(asked) else None


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
def explained(name: str) -> Iterator[None]:
    """The driver's errors as ours; none of them contains the password."""
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
        return RequestError(f"{cause}; PostgreSQL cannot keep this value: clean it before the view")
    return RequestError(cause)


def without_password(url: str) -> str:
    """What messages call the database: where it is, without user and options."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2] or dict(parse_qsl(parts.query)).get("host") or "local"
    return f"postgresql://{place}{parts.path}"
