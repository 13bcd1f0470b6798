"""A database of a test: asked by our own client, captured by our own source."""

from typing import Any, Self

from tests.integration.capture.postgres.following import Folded
from tests.integration.capture.postgres.following import Follower as AnyFollower

from headrace.capture.mysql import MysqlAddress, MysqlSource
from headrace.capture.mysql.chunks import Place, log_end, place_of
from headrace.capture.mysql.wire.connection import Connection
from headrace.testing.mysql_process import PASSWORD, MysqlProcess


class Database:
    """One database of a server; use as a context manager."""

    def __init__(self, server: MysqlProcess, name: str) -> None:
        self.server, self.name = server, name
        self._connection: Connection | None = None

    @property
    def address(self) -> MysqlAddress:
        return MysqlAddress.parse(self.server.url(self.name))

    @property
    def is_mariadb(self) -> bool:
        return self.server.product == "mariadb"

    def __enter__(self) -> Self:
        with self.connect() as admin:
            admin.query(f"CREATE DATABASE {self.name}")
        return self

    def __exit__(self, *_: object) -> None:
        self.disconnect()
        with self.connect() as admin:
            admin.query(f"DROP DATABASE IF EXISTS {self.name}")

    def connect(self) -> Connection:
        return Connection(self.address, PASSWORD)

    def disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def run(self, *statements: str) -> list[tuple[str | None, ...]]:
        """Runs statements one by one, in this database; the rows of the last."""
        if self._connection is None:
            self._connection = self.connect()
            self._connection.query(f"USE {self.name}")
        rows = []
        for each in statements:
            rows = self._connection.query(each)
        return rows

    def end(self) -> Place:
        """Where its log ends now."""
        self.run("SELECT 1")
        assert self._connection is not None
        return place_of(*log_end(self._connection))

    def source(self, name: str = "test", **options: Any) -> MysqlSource:
        return MysqlSource(self.address, PASSWORD, name=name, **options)


class Follower(AnyFollower):
    """One run over a source of MySQL."""

    def settle(self, end: Place, timeout_s: float = 60) -> None:
        """Follows until snapshots are done and everything before `end` was read."""
        import time

        until = time.monotonic() + timeout_s
        session = self.source._open()
        while self.folded.state.next_snapshot() or session._place() < end:
            session._awaited = max(session._awaited, end)
            self.round(0.05)
            assert time.monotonic() < until, "the source did not come to an end"


def followed(database: Database, folded: Folded, chunk_rows: int = 100, **options: Any) -> None:
    """Follows to the end of what there is, and lets go."""
    source = database.source(**options)
    try:
        Follower(source, folded, chunk_rows=chunk_rows).settle(database.end())
    finally:
        source.close()
