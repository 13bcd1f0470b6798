"""The URL of a database that Debezium reads: `debezium+KIND://USER@HOST/DATABASE?password=env:NAME`. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.capture.connect.databases import DATABASES, Database
from headrace.errors import ConfigError
from headrace.secret_references import is_reference, resolve

__all__ = ["PREFIX", "DebeziumAddress"]

PREFIX = "debezium+"
_SRV = "+srv"
# Further parts of MongoDB's connection string; of other databases, the connector's settings say such things.
_MONGODB_OPTIONS = ("replicaSet", "authSource", "tls", "directConnection", "readPreference")
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class DebeziumAddress:
    """A database, who reads it, and where the password is; the password itself is nowhere in it.

    `hosts` are `host:port`; several only of MongoDB.
    """

    kind: str
    user: str
    hosts: tuple[str, ...]
    name: str
    password: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    is_srv: bool = False

    @classmethod
    def parse(cls, url: str) -> Self:
        """The address that a URL says; raises ConfigError, which repeats no password."""
        try:
            parts = urlsplit(url)
        except ValueError as error:
            raise ConfigError(f"not the URL of a database: {error}") from None
        scheme = parts.scheme.removeprefix(PREFIX)
        kind = scheme.removesuffix(_SRV) if scheme == f"mongodb{_SRV}" else scheme
        if not parts.scheme.startswith(PREFIX) or kind not in DATABASES:
            known = ", ".join(f"{PREFIX}{each}" for each in DATABASES)
            raise ConfigError(f"{parts.scheme}:// is no database that Debezium reads; these are: {known}")
        form = f"{parts.scheme}://USER@HOST:PORT/DATABASE?password=env:NAME"
        user, _, places = parts.netloc.rpartition("@")
        if ":" in user:
            raise ConfigError(f"a password does not belong in a URL; say where it is: {form}")
        hosts = tuple(places.split(","))
        if not all(_HOST.fullmatch(each) for each in hosts) or (len(hosts) > 1 and kind != "mongodb"):
            raise ConfigError(f"the URL of a {DATABASES[kind].title} names its host: {form}")
        name = unquote(parts.path.removeprefix("/"))
        if not name:
            raise ConfigError(f"the URL names no database; write {form}")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        password = options.pop("password", "")
        _check_options(kind, options, form)
        if password and not is_reference(password):
            raise ConfigError(
                f"password= says where the password is, env:NAME or file:PATH, not what it is: {form}"
            )
        if bool(password) != bool(user) and kind != "mongodb":
            raise ConfigError(
                f"the URL of a {DATABASES[kind].title} has a user and says where the password is: {form}"
            )
        return cls(
            kind=kind,
            user=unquote(user),
            hosts=tuple(_with_port(each, DATABASES[kind].port) for each in hosts),
            name=name,
            password=password,
            options=options,
            is_srv=scheme.endswith(_SRV),
        )

    @property
    def database(self) -> Database:
        """What is to be known of databases of its kind."""
        return DATABASES[self.kind]

    @property
    def host(self) -> str:
        """The first host, without its port."""
        return self.hosts[0].rpartition(":")[0].strip("[]")

    @property
    def port(self) -> str:
        return self.hosts[0].rpartition(":")[2]

    @property
    def shown(self) -> str:
        """The address as messages and the status have it."""
        at = f"{self.user}@" if self.user else ""
        return f"{PREFIX}{self.kind}://{at}{','.join(self.hosts)}/{self.name}"

    @property
    def connection_string(self) -> str:
        """MongoDB's own, without user and password."""
        scheme = "mongodb+srv" if self.is_srv else "mongodb"
        hosts = [each.rpartition(":")[0] for each in self.hosts] if self.is_srv else self.hosts
        options = "&".join(f"{name}={value}" for name, value in self.options.items())
        return f"{scheme}://{','.join(hosts)}/" + (f"?{options}" if options else "")

    def resolve_password(self) -> str:
        """The password; raises ConfigError if the reference leads nowhere."""
        return resolve(self.password, f"the password of {self.shown}") if self.password else ""

    def qualified(self, table: str) -> str:
        """The table as the connector names it: `schema.table`."""
        if "." in table:
            return table
        schema = self.database.schema
        return f"{schema.format(database=self.name, user=self.user.upper())}.{table}"


def _with_port(host: str, port: int) -> str:
    return host if re.search(r":[0-9]+$", host.rpartition("]")[2]) else f"{host}:{port}"


def _check_options(kind: str, options: Mapping[str, str], form: str) -> None:
    allowed = _MONGODB_OPTIONS if kind == "mongodb" else ()
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)}: no part of such a URL ({form}); settings of the connector are given "
            "by settings= of app.capture, or --set of `headrace capture add`"
        )
    unsafe = [each for each, value in options.items() if not re.fullmatch(r"[A-Za-z0-9._-]+", value)]
    if unsafe:
        raise ConfigError(f"{', '.join(unsafe)}: letters, digits, `.`, `_` and `-` only")
