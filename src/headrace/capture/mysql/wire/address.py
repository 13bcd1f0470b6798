"""Where a MySQL or MariaDB database is, and how to log in: read from a URL that holds no password.

    mysql://USER@HOST:PORT/DATABASE?password=env:NAME&sslmode=verify-full&sslrootcert=PATH

`mariadb://` means the same: the server says which of the two it is. `socket=PATH` is a Unix
socket.
"""

from dataclasses import dataclass

from headrace.capture.server import ServerAddress, read_url
from headrace.errors import ConfigError

__all__ = ["MysqlAddress"]

_PORT = 3306
_MOST_SERVER_ID = 2**32 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlAddress(ServerAddress):
    """One database of one server; may be stored, logged and shown.

    `server_id` is what the server knows the reader by; 0 for one drawn for each connection.
    """

    host: str = "127.0.0.1"
    port: int = _PORT
    user: str = "root"
    database: str = ""
    socket: str = ""
    server_id: int = 0
    scheme: str = "mysql"

    @classmethod
    def parse(cls, url: str) -> "MysqlAddress":
        """Raises ConfigError, which never repeats the URL, for what does not fit."""
        found = read_url(
            url,
            product="MySQL",
            schemes=("mysql", "mariadb"),
            port=_PORT,
            own=("server_id", "socket"),
            variable="MYSQL_PWD",
        )
        if not found.database:
            raise ConfigError("a MySQL URL names a database, as in mysql://user@host/database")
        return cls(
            host=found.host or "127.0.0.1",
            user=found.user or "root",
            database=found.database,
            socket=found.options.get("socket", ""),
            server_id=_server_id(found.options.get("server_id", "0")),
            scheme=found.scheme,
            **found.common,
        )

    @property
    def socket_path(self) -> str:
        return self.socket

    @property
    def url(self) -> str:
        """Without the password, nor where it is."""
        return f"{self.scheme}://{self.user}@{self.host}:{self.port}/{self.database}"

    def __str__(self) -> str:
        product = "MariaDB" if self.scheme == "mariadb" else "MySQL"
        return f"{product} {self.socket or f'{self.host}:{self.port}'}/{self.database}"


def _server_id(text: str) -> int:
    if not text.isdecimal() or int(text) > _MOST_SERVER_ID:
        raise ConfigError(f"server_id is a number from 1 to {_MOST_SERVER_ID}, not {text!r}")
    return int(text)
