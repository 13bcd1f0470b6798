"""A database of a test: asked by our own client, captured by our own source."""

import time
from typing import Any, Self

import orjson

from headrace.capture.postgres import PostgresAddress, PostgresSource
from headrace.capture.postgres.chunks import rounded_end
from headrace.capture.postgres.wire.connection import Connection, parse_lsn
from headrace.testing.postgres_process import PASSWORD, PostgresProcess


class Database:
    """One database of a server; use as a context manager."""

    def __init__(self, server: PostgresProcess, name: str) -> None:
        self.server, self.name = server, name
        self._connection: Connection | None = None

    @property
    def address(self) -> PostgresAddress:
        return PostgresAddress.parse(self.server.url(self.name))

    def __enter__(self) -> Self:
        with Connection(PostgresAddress.parse(self.server.url()), PASSWORD) as admin:
            admin.query(f"CREATE DATABASE {self.name}")
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()
        with Connection(PostgresAddress.parse(self.server.url()), PASSWORD) as admin:
            of_it = f"FROM pg_replication_slots WHERE database = '{self.name}'"
            # A reader whose test failed may still have the slot, and be asked to leave it more than once.
            deadline = time.monotonic() + 30
            while admin.query(f"SELECT pg_terminate_backend(active_pid) {of_it} AND active"):
                if time.monotonic() > deadline:
                    return  # it goes with its server
                time.sleep(0.05)
            admin.query(f"SELECT pg_drop_replication_slot(slot_name) {of_it}")
            admin.query(f"DROP DATABASE IF EXISTS {self.name} WITH (FORCE)")

    def connect(self) -> Connection:
        return Connection(self.address, PASSWORD)

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, *statements: str) -> list[tuple[str | None, ...]]:
        """Runs statements one by one; the rows of the last."""
        if self._connection is None:
            self._connection = self.connect()
        rows = []
        for each in statements:
            rows = self._connection.query(each)
        return rows

    def end(self) -> int:
        """Where its log ends now."""
        return rounded_end(parse_lsn(self.run("SELECT pg_current_wal_insert_lsn()")[0][0] or ""))

    def idle_slot(self) -> str:
        """The slot of the capture "test", once nobody reads from it."""
        while self.run("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'headrace_test' AND active"):
            time.sleep(0.01)
        return "headrace_test"

    def source(self, name: str = "test", **options: Any) -> PostgresSource:
        return PostgresSource(self.address, PASSWORD, name=name, **options)

    def rows(self, table: str, key: str) -> dict[str, dict[str, Any]]:
        """The rows of a table by one column, as PostgreSQL writes them in JSON."""
        found = self.run(f"SELECT {key}, to_json(t) FROM {table} t")
        return {str(each[0]): orjson.loads(each[1] or "") for each in found}
