"""A standby that follows a server of a test by its log, and copies of a server's files."""

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

from headrace.capture.postgres import PostgresAddress, PostgresConnection
from headrace.testing.postgres_process import PASSWORD, USER, PostgresProcess


class StandbyProcess(PostgresProcess):
    """A copy of `primary`, without its slots, which it follows until it is promoted."""

    def __init__(self, primary: PostgresProcess, **settings: str) -> None:
        super().__init__(primary.version, settings)
        self._primary = primary

    def _initialize(self) -> None:
        self._secret = self._folder / "password"
        self._secret.write_text(f"*:*:*:*:{PASSWORD.replace(':', chr(92) + ':')}\n")
        self._secret.chmod(0o600)
        self._hand_over(self._secret)
        where = (
            f"host=127.0.0.1 port={self._primary.port} user={USER} passfile={self._secret} dbname=postgres"
        )
        command = [
            str(self.programs / "pg_basebackup"),
            "-D",
            str(self.data),
            "-R",
            "-d",
            where,
            "-c",
            "fast",
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, cwd=self._folder, check=False, **self._as_user()
        )
        assert not done.returncode, done.stderr

    def promote(self) -> None:
        """Makes it the primary, on a timeline of its own."""
        with PostgresConnection(PostgresAddress.parse(self.url()), PASSWORD) as admin:
            assert admin.value("SELECT pg_promote(true, 60)") == "t"

    def wait_until_it_has(self, end: str) -> None:
        """Until it has replayed the log up to this position."""
        deadline = time.monotonic() + 60
        with PostgresConnection(PostgresAddress.parse(self.url()), PASSWORD) as admin:
            while admin.value(f"SELECT pg_last_wal_replay_lsn() >= '{end}'::pg_lsn") != "t":
                assert time.monotonic() < deadline, "the standby does not follow"
                time.sleep(0.02)


class Backup:
    """A copy of a server's files, made while it is stopped; use as a context manager."""

    def __init__(self, server: PostgresProcess) -> None:
        self._server = server

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-backup-"))
        subprocess.run(["cp", "-a", str(self._server.data), str(self._folder / "data")], check=True)
        return self

    def restore(self) -> None:
        shutil.rmtree(self._server.data)
        subprocess.run(["cp", "-a", str(self._folder / "data"), str(self._server.data)], check=True)

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)
