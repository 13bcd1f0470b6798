"""Where a database server is, and how to log in: read from a URL that holds no password.

    SCHEME://USER@HOST:PORT/DATABASE?password=env:NAME&sslmode=verify-full&sslrootcert=PATH

`password` is a reference, `env:NAME` or `file:PATH`; a password in the URL itself is refused.
`sslmode` is `disable`, `prefer` (the default), `require` or `verify-full`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.errors import ConfigError
from headrace.secret_references import is_reference, resolve

__all__ = ["ServerAddress", "ServerUrl", "SslMode", "read_url"]

_OPTIONS = ("connect_timeout", "password", "sslmode", "sslrootcert")


class SslMode(StrEnum):
    """Whether a connection is encrypted, and whether the server's certificate is looked at."""

    DISABLE = "disable"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_FULL = "verify-full"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """One database of one server; may be stored, logged and shown."""

    host: str
    port: int
    user: str
    database: str
    password: str = ""
    sslmode: SslMode = SslMode.PREFER
    sslrootcert: str = ""
    connect_timeout_s: float = 10.0

    def resolve_password(self) -> str:
        """The password that the reference leads to, or none; ConfigError if it leads nowhere."""
        return resolve(self.password, f"the password of {self}") if self.password else ""

    @property
    def socket_path(self) -> str:
        """The Unix socket by which it is reached; empty for one that is reached by host and port."""
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerUrl:
    """A URL taken apart: `common` are fields of every ServerAddress, `options` those of one database."""

    scheme: str
    host: str
    user: str
    database: str
    common: Mapping[str, Any]
    options: Mapping[str, str]


def read_url(
    url: str, *, product: str, schemes: tuple[str, ...], port: int, own: tuple[str, ...], variable: str
) -> ServerUrl:
    """Raises ConfigError, which never repeats the URL, for what does not fit.

    `port` is the product's own, `own` are its options beside those of every server, and
    `variable` is where its users keep passwords.
    """
    parts = urlsplit(url)
    example = f"{schemes[0]}://user@host/database"
    if parts.scheme not in schemes:
        begins = " or ".join(f"{each}://" for each in schemes)
        raise ConfigError(f"a {product} source begins with {begins}, as in {example}")
    if parts.password is not None:
        raise ConfigError(
            f"a password does not belong in a URL; say where it is: {example}?password=env:{variable}"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    known = sorted((*_OPTIONS, *own))
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise ConfigError(f"unknown in a {product} URL: {', '.join(unknown)}; known are {', '.join(known)}")
    return ServerUrl(
        scheme=parts.scheme,
        host=parts.hostname or "",
        user=unquote(parts.username or ""),
        database=unquote(parts.path.lstrip("/")),
        common={
            "port": _port(parts.netloc, product) or port,
            "password": _reference(options.get("password", "")),
            "sslmode": _sslmode(options.get("sslmode", "prefer")),
            "sslrootcert": options.get("sslrootcert", ""),
            "connect_timeout_s": _seconds(options.get("connect_timeout", "10")),
        },
        options={name: options[name] for name in own if name in options},
    )


def _port(netloc: str, product: str) -> int | None:
    try:
        return urlsplit(f"//{netloc}").port
    except ValueError:
        raise ConfigError(f"the port in a {product} URL is a number from 1 to 65535") from None


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
