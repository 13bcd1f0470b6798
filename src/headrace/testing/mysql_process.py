"""A real MariaDB or MySQL on a loopback port, which a test may stop hard, start again and replace.

It asks for passwords and writes a binary log that can be captured. MariaDB is Debian's; MySQL is
whatever `mysqld` is on the PATH, or the program that HEADRACE_TEST_MYSQLD names.
"""

import os
import pwd
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

__all__ = ["PASSWORD", "USER", "MysqlProcess", "find_servers", "free_port", "unprivileged_user"]

USER, PASSWORD = "headrace", "not a secret: %s"
_UNPRIVILEGED = ("mysql", "nobody")
_SETTINGS = {
    "log-bin": "binlog",
    "server-id": "1",
    "binlog-format": "ROW",
    "binlog-row-image": "FULL",
    "binlog-row-metadata": "FULL",
    "sync-binlog": "0",
    "innodb-flush-log-at-trx-commit": "0",
    "innodb-buffer-pool-size": "32M",
    "bind-address": "127.0.0.1",
    "skip-name-resolve": "1",
}
_OF_PRODUCT = {
    "mariadb": {"innodb-log-file-size": "32M"},
    "mysql": {
        "gtid-mode": "ON",
        "enforce-gtid-consistency": "ON",
        "innodb-redo-log-capacity": "64M",
        "mysqlx": "OFF",
        "performance-schema": "OFF",
    },
}


def find_servers() -> dict[str, Path]:
    """The products on this machine, "mariadb" and "mysql", and the program of each."""
    found = {}
    folders = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    if (mariadb := shutil.which("mariadbd", path=folders)) and shutil.which("mariadb-install-db"):
        found["mariadb"] = Path(mariadb)
    mysql = os.environ.get("HEADRACE_TEST_MYSQLD") or shutil.which("mysqld", path=folders)
    if mysql and "MariaDB" not in _version(mysql):
        found["mysql"] = Path(mysql)
    return found


def _version(program: str) -> str:
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return "MariaDB"
    return said.stdout


class MysqlProcess:
    """One server, its data in a temporary folder, its user unprivileged.

    Use as a context manager. `stop` is orderly or, with `hard`, as in a crash; `start` starts
    it on the same port again; `replace` puts another server's data in its place.
    """

    def __init__(self, product: str = "mariadb", settings: Mapping[str, str] | None = None) -> None:
        servers = find_servers()
        if product not in servers:
            hint = "apt-get install mariadb-server" if product == "mariadb" else "set HEADRACE_TEST_MYSQLD"
            raise PeerUnavailable(f"no server program of {product} here; {hint}")
        self.product = product
        self._program = servers[product]
        self._settings = {**_SETTINGS, **_OF_PRODUCT[product], **(settings or {})}
        self._user = unprivileged_user()
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()

    @property
    def data(self) -> Path:
        return self._folder / "data"

    @property
    def socket(self) -> Path:
        return self._folder / "s.sock"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def url(self, database: str, user: str = USER, **options: str) -> str:
        """Where to connect; the password is in the environment variable HEADRACE_TEST_MYSQL_PASSWORD."""
        os.environ["HEADRACE_TEST_MYSQL_PASSWORD"] = PASSWORD
        chosen = {"password": "env:HEADRACE_TEST_MYSQL_PASSWORD", **options}
        query = "&".join(f"{name}={value}" for name, value in chosen.items())
        return f"{self.product}://{user}@127.0.0.1:{self.port}/{database}?{query}"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="headrace-my-"))
        self._folder.chmod(0o755)
        self._hand_over(self._folder)
        self._initialize()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(hard=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def start(self) -> None:
        """Starts it and waits until it lets somebody in."""
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        command = [*self._command(), f"--port={self.port}", f"--socket={self.socket}", *options]
        with (self._folder / "log").open("ab") as log:
            started: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own command line
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self._folder, **self._as_user()
            )
        self._process = started
        deadline = time.monotonic() + 120
        while not self._is_ready():
            if started.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {(self._folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self, *, hard: bool = False) -> None:
        """Ends it: in order, or hard, leaving recovery to the next start."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGKILL if hard else signal.SIGTERM)
        self._process.wait(60)

    def replace(self) -> None:
        """Puts other data in its place, as a restore from elsewhere does; stopped before and after."""
        shutil.rmtree(self.data)
        self._initialize()

    def _command(self) -> list[str]:
        return [str(self._program), "--no-defaults", f"--datadir={self.data}", f"--tmpdir={self._folder}"]

    def _initialize(self) -> None:
        setup = ["FLUSH PRIVILEGES"] if self.product == "mariadb" else []
        setup += [
            f"CREATE USER '{USER}'@'%' IDENTIFIED BY '{PASSWORD}'",
            f"GRANT ALL PRIVILEGES ON *.* TO '{USER}'@'%' WITH GRANT OPTION",
        ]
        script = self._folder / "setup.sql"
        script.write_text("".join(f"{each};\n" for each in setup))
        script.chmod(0o644)
        if self.product == "mariadb":
            self._run("mariadb-install-db", "--no-defaults", f"--datadir={self.data}", "--skip-test-db",
                      "--auth-root-authentication-method=normal", f"--extra-file={script}")  # fmt: skip
        else:
            self._run(*self._command(), "--initialize-insecure", f"--init-file={script}")

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True, cwd=self._folder, **self._as_user())  # noqa: S603

    def _hand_over(self, path: Path) -> None:
        """Makes a file or a folder the server's own."""
        if self._user:
            known = pwd.getpwnam(self._user)
            os.chown(path, known.pw_uid, known.pw_gid)

    def _is_ready(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                probe.settimeout(5)
                return bool(probe.recv(1))
        except OSError:
            return False

    def _as_user(self) -> dict[str, Any]:
        if not self._user:
            return {}
        known = pwd.getpwnam(self._user)
        return {"user": known.pw_uid, "group": known.pw_gid, "extra_groups": []}


def unprivileged_user() -> str | None:
    """Whom the server runs as: itself refuses to run as root."""
    if os.geteuid():
        return None
    for name in _UNPRIVILEGED:
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise PeerUnavailable("the server does not run as root, and there is no other user")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
