"""Where a MySQL or MariaDB database is, and how to log in: read from a URL that holds no password.

    mysql://USER@HOST:PORT/DATABASE?password=env:NAME&sslmode=verify-full&sslrootcert=PATH

`mariadb://` means the same: the server says which of the two it is. `password` is a reference,
`env:NAME` or `file:PATH`; a password in the URL itself is refused. `socket=PATH` is a Unix
socket. `sslmode` is `disable`, `prefer` (the default), `require` or `verify-full`.
"""

from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.errors import ConfigError
from headrace.secret_references import is_reference, resolve

__all__ = ["MysqlAddress", "SslMode"]

_OPTIONS = ("connect_timeout", "password", "server_id", "socket", "sslmode", "sslrootcert")
_MOST_SERVER_ID = 2**32 - 1


class SslMode(StrEnum):
    """Whether a connection is encrypted, and whether the server's certificate is looked at."""

    DISABLE = "disable"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_FULL = "verify-full"


@dataclass(frozen=True, slots=True, kw_only=True)
class MysqlAddress:
    """One database of one server; may be stored, logged and shown.

    `server_id` is what the server knows the reader by; 0 for one drawn for each connection.
    """

    host: str = "127.0.0.1"
    port: int = 3306
    user: str = "root"
    database: str = ""
    password: str = ""
    socket: str = ""
    server_id: int = 0
    sslmode: SslMode = SslMode.PREFER
    sslrootcert: str = ""
    connect_timeout_s: float = 10.0
    scheme: str = "mysql"

    @classmethod
    def parse(cls, url: str) -> "MysqlAddress":
        """Raises ConfigError, which never repeats the URL, for what does not fit."""
        parts = urlsplit(url)
        if parts.scheme not in ("mysql", "mariadb"):
            raise ConfigError(
                "a MySQL source begins with mysql:// or mariadb://, as in mysql://user@host/database"
            )
        if parts.password is not None:
            raise ConfigError(
                "a password does not belong in a URL; say where it is: "
                "mysql://user@host/database?password=env:MYSQL_PWD"
            )
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise ConfigError(
                f"unknown in a MySQL URL: {', '.join(unknown)}; known are {', '.join(_OPTIONS)}"
            )
        database = unquote(parts.path.lstrip("/"))
        if not database:
            raise ConfigError("a MySQL URL names a database, as in mysql://user@host/database")
        return cls(
            host=parts.hostname or "127.0.0.1",
            port=_port(parts.netloc),
            user=unquote(parts.username or "root"),
            database=database,
            password=_reference(options.get("password", "")),
            socket=options.get("socket", ""),
            server_id=_server_id(options.get("server_id", "0")),
            sslmode=_sslmode(options.get("sslmode", "prefer")),
            sslrootcert=options.get("sslrootcert", ""),
            connect_timeout_s=_seconds(options.get("connect_timeout", "10")),
            scheme=parts.scheme,
        )

    def resolve_password(self) -> str:
        """The password that the reference leads to, or none; ConfigError if it leads nowhere."""
        return resolve(self.password, f"the password of {self}") if self.password else ""

    @property
    def url(self) -> str:
        """Without the password, nor where it is."""
        return f"{self.scheme}://{self.user}@{self.host}:{self.port}/{self.database}"

    def __str__(self) -> str:
        product = "MariaDB" if self.scheme == "mariadb" else "MySQL"
        return f"{product} {self.socket or f'{self.host}:{self.port}'}/{self.database}"


def _port(netloc: str) -> int:
    try:
        return urlsplit(f"//{netloc}").port or 3306
    except ValueError:
        raise ConfigError("the port in a MySQL URL is a number from 1 to 65535") from None


def _reference(text: str) -> str:
    if text and not is_reference(text):
        raise ConfigError(
            "password= says where the password is, env:NAME or file:PATH, and not the password itself"
        )
    return text


def _server_id(text: str) -> int:
    if not text.isdecimal() or int(text) > _MOST_SERVER_ID:
        raise ConfigError(f"server_id is a number from 1 to {_MOST_SERVER_ID}, not {text!r}")
    return int(text)


def _sslmode(text: str) -> SslMode:
    try:
        return SslMode(text)
    except ValueError:
        raise ConfigError(f"sslmode is one of {', '.join(SslMode)}, not {text!r}") from None


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise ConfigError(f"connect_timeout is a number of seconds, up to 3600, not {text!r}")
    return seconds
