"""Where a PostgreSQL database is, and how to log in: read from a URL that holds no password.

    postgresql://USER@HOST:PORT/DATABASE?password=env:NAME&sslmode=verify-full&sslrootcert=PATH

`password` is a reference, `env:NAME` or `file:PATH`; a password in the URL itself is refused.
A folder as `host=` is that of a Unix socket. `sslmode` is `disable`, `prefer` (the default),
`require` or `verify-full`, with libpq's meaning.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.errors import ConfigError
from headrace.secret_references import is_reference, resolve

__all__ = ["PostgresAddress", "SslMode"]

_OPTIONS = ("connect_timeout", "host", "password", "sslmode", "sslrootcert")


class SslMode(StrEnum):
    """Whether a connection is encrypted, and whether the server's certificate is looked at."""

    DISABLE = "disable"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_FULL = "verify-full"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """One database of one server; may be stored, logged and shown."""

    host: str = "127.0.0.1"
    port: int = 5432
    user: str = "postgres"
    database: str = "postgres"
    password: str = ""
    sslmode: SslMode = SslMode.PREFER
    sslrootcert: str = ""
    connect_timeout_s: float = 10.0

    @classmethod
    def parse(cls, url: str) -> "PostgresAddress":
        """Raises ConfigError, which never repeats the URL, for what does not fit."""
        parts = urlsplit(url)
        if parts.scheme not in ("postgresql", "postgres"):
            raise ConfigError(
                "a PostgreSQL source begins with postgresql://, as in postgresql://user@host/database"
            )
        if parts.password is not None:
            raise ConfigError(
                "a password does not belong in a URL; say where it is: "
                "postgresql://user@host/database?password=env:PGPASSWORD"
            )
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        unknown = sorted(set(options) - set(_OPTIONS))
        if unknown:
            raise ConfigError(
                f"unknown in a PostgreSQL URL: {', '.join(unknown)}; known are {', '.join(_OPTIONS)}"
            )
        user = unquote(parts.username or "postgres")
        return cls(
            host=options.get("host") or parts.hostname or "127.0.0.1",
            port=_port(parts.netloc),
            user=user,
            database=unquote(parts.path.lstrip("/")) or user,
            password=_reference(options.get("password", "")),
            sslmode=_sslmode(options.get("sslmode", "prefer")),
            sslrootcert=options.get("sslrootcert", ""),
            connect_timeout_s=_seconds(options.get("connect_timeout", "10")),
        )

    def resolve_password(self) -> str:
        """The password that the reference leads to, or none; ConfigError if it leads nowhere."""
        return resolve(self.password, f"the password of {self}") if self.password else ""

    @property
    def is_local(self) -> bool:
        """Whether it is reached by a Unix socket."""
        return self.host.startswith("/")

    @property
    def socket_path(self) -> str:
        return str(Path(self.host) / f".s.PGSQL.{self.port}")

    def __str__(self) -> str:
        return f"PostgreSQL {self.host}:{self.port}/{self.database}"


def _port(netloc: str) -> int:
    try:
        return urlsplit(f"//{netloc}").port or 5432
    except ValueError:
        raise ConfigError("the port in a PostgreSQL URL is a number from 1 to 65535") from None


def _reference(text: str) -> str:
    if text and not is_reference(text):
        raise ConfigError(
            "password= says where the password is, env:NAME or file:PATH, and not the password itself"
        )
    return text


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
