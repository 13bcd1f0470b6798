"""A real PostgreSQL on a loopback port, which a test may stop hard, start again and replace.

Unlike `headrace.testing.postgres`, it asks for passwords, writes a log that can be decoded
(`wal_level=logical`), and comes in every version that this machine has.
"""

import os
from collections.abc import Mapping

from headrace.errors import ConfigError
from headrace.local_postgres import USER, LocalPostgres, find_versions
from headrace.testing.kafka import PeerUnavailable

__all__ = ["PASSWORD", "USER", "PostgresProcess", "find_versions"]

PASSWORD = "not a secret: %s"  # noqa: S105


class PostgresProcess(LocalPostgres):
    """A server, its data in a temporary folder; raises PeerUnavailable where there is no program for it."""

    def __init__(
        self,
        version: int | None = None,
        settings: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        try:
            super().__init__(PASSWORD, version=version, settings=settings, files=files)
        except ConfigError as error:
            raise PeerUnavailable(str(error)) from error

    def url(self, database: str = "postgres", **options: str) -> str:
        """Where to connect; the password is in the environment variable HEADRACE_TEST_PGPASSWORD."""
        os.environ["HEADRACE_TEST_PGPASSWORD"] = PASSWORD
        chosen = {"password": "env:HEADRACE_TEST_PGPASSWORD", **options}
        query = "&".join(f"{name}={value}" for name, value in chosen.items())
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}?{query}"
