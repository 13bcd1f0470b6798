"""The customers of the shop, in a database of their own: a SQLite file, or a PostgreSQL.

The demo changes them there, as any application changes its database; the log learns of it by
capture. What the database holds at the end is what everything that follows it must show.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from headrace.capture import sqlite_path
from headrace.capture.postgres import PostgresAddress, PostgresConnection, literal
from headrace.demo.traffic import CustomerChange, first_customers

__all__ = ["Customer", "CustomerDatabase", "create_customers", "customers_at", "write_change"]

Customer = Mapping[str, str | int]

_COLUMNS = ("customer_id", "name", "tier", "city", "changed_at")
_CREATE = (
    "CREATE TABLE IF NOT EXISTS customers (customer_id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, "
    "tier TEXT NOT NULL, city TEXT NOT NULL, changed_at BIGINT NOT NULL)"
)
_UPSERT = (
    "INSERT INTO customers VALUES ({}, {}, {}, {}, {}) ON CONFLICT (customer_id) DO UPDATE "
    "SET tier = excluded.tier, city = excluded.city, changed_at = excluded.changed_at"
)
_DELETE = "DELETE FROM customers WHERE customer_id = {}"
_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM customers"  # noqa: S608 - our own names
_BUSY_S = 30


class CustomerDatabase(Protocol):
    """One connection to it; belongs to one thread."""

    def execute(self, statements: Iterable[tuple[str, Sequence[str | int]]]) -> None:
        """Executes statements in one transaction; `{}` in them stand for the values."""

    def rows(self) -> list[Customer]:
        """The customers as they are now."""

    def close(self) -> None: ...


@contextlib.contextmanager
def customers_at(url: str) -> Iterator[CustomerDatabase]:
    """The database at a URL, as `app.capture` takes it."""
    database = _Sqlite(url) if url.startswith("sqlite:") else _Postgres(url)
    with contextlib.closing(database):
        yield database


def create_customers(url: str, since: datetime) -> bool:
    """Creates the table with the shop's first customers, unless there are some; whether it has done so."""
    since_ms = int(since.timestamp() * 1000)
    with customers_at(url) as database:
        database.execute([(_CREATE, ())])
        if database.rows():
            return False
        database.execute(_statement(each) for each in first_customers(since_ms))
        return True


def write_change(database: CustomerDatabase, change: CustomerChange) -> None:
    """One change, in a transaction of its own."""
    database.execute([_statement(change)])


def _statement(change: CustomerChange) -> tuple[str, Sequence[str | int]]:
    if change.row is None:
        return _DELETE, [change.customer_id]
    row = change.row
    return _UPSERT, [change.customer_id, row["name"], row["tier"], row["city"], change.at_ms]


def _customer(row: Sequence[Any]) -> Customer:
    """PostgreSQL sends numbers as texts."""
    return {**dict(zip(_COLUMNS, row, strict=True)), "changed_at": int(row[-1])}


class _Sqlite:
    def __init__(self, url: str) -> None:
        self._database = sqlite3.connect(sqlite_path(url), timeout=_BUSY_S)
        self._database.execute("PRAGMA journal_mode = WAL")

    def execute(self, statements: Iterable[tuple[str, Sequence[str | int]]]) -> None:
        with self._database:
            for sql, values in statements:
                self._database.execute(sql.replace("{}", "?"), values)

    def rows(self) -> list[Customer]:
        return [_customer(row) for row in self._database.execute(_SELECT)]

    def close(self) -> None:
        self._database.close()


class _Postgres:
    def __init__(self, url: str) -> None:
        address = PostgresAddress.parse(url)
        self._database = PostgresConnection(address, address.resolve_password())

    def execute(self, statements: Iterable[tuple[str, Sequence[str | int]]]) -> None:
        """PostgreSQL takes statements that are sent together as one transaction."""
        self._database.query(
            "; ".join(sql.format(*(literal(str(each)) for each in values)) for sql, values in statements)
        )

    def rows(self) -> list[Customer]:
        return [_customer(row) for row in self._database.query(_SELECT)]

    def close(self) -> None:
        self._database.close()
