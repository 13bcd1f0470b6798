"""Where a PostgreSQL database is, and how to log in: read from a URL that holds no password.

    postgresql://USER@HOST:PORT/DATABASE?password=env:NAME&sslmode=verify-full&sslrootcert=PATH

A folder as `host=` is that of a Unix socket. The options mean what they mean to libpq, except
that `password` is a reference.
"""

from dataclasses import dataclass
from pathlib import Path

from headrace.capture.server import ServerAddress, read_url

__all__ = ["PostgresAddress"]

_PORT = 5432


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress(ServerAddress):
    """One database of one server; may be stored, logged and shown."""

    host: str = "127.0.0.1"
    port: int = _PORT
    user: str = "postgres"
    database: str = "postgres"

    @classmethod
    def parse(cls, url: str) -> "PostgresAddress":
        """Raises ConfigError, which never repeats the URL, for what does not fit."""
        found = read_url(
            url,
            product="PostgreSQL",
            schemes=("postgresql", "postgres"),
            port=_PORT,
            own=("host",),
            variable="PGPASSWORD",
        )
        user = found.user or "postgres"
        return cls(
            host=found.options.get("host") or found.host or "127.0.0.1",
            user=user,
            database=found.database or user,
            **found.common,
        )

    @property
    def socket_path(self) -> str:
        return str(Path(self.host) / f".s.PGSQL.{self.port}") if self.host.startswith("/") else ""

    def __str__(self) -> str:
        return f"PostgreSQL {self.host}:{self.port}/{self.database}"
