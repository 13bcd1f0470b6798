"""What a derived system is: the topic that it follows, and where its rows are kept. Pure."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from headrace.errors import ConfigError
from headrace.objects import is_url, require_supported

__all__ = [
    "Follow",
    "Format",
    "TargetSpec",
    "delta",
    "opensearch",
    "parse_follow",
    "redis",
    "search",
    "table",
]

# upserts: a value is a row, or null; debezium: a change in its envelope; changelog: a view's topic
Format = Literal["upserts", "debezium", "changelog"]
_TABLES = {
    "sqlite": "sqlite",
    "postgresql": "postgres",
    "postgres": "postgres",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_FORMATS = ("upserts", "debezium", "changelog")


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetSpec:
    """Where rows are kept; may be stored, logged and shown, for it holds no password."""

    kind: str
    url: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if urlsplit(self.url).password is not None:
            raise ConfigError(
                "a password does not belong in a URL; say where it is: …?password=env:NAME, or file:PATH"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """A follower as it is declared: `into` reflects `topic`, whose records have that format.

    With `transactions`, the topic on which the source notes where its transactions end, whole
    transactions become visible at once.
    """

    name: str
    topic: str
    into: TargetSpec
    format: Format = "upserts"
    transactions: str = ""

    def __post_init__(self) -> None:
        if not self.name or not all(each.isalnum() or each in "._-" for each in self.name):
            raise ConfigError(
                f"follower name {self.name!r} must be made of letters, digits, `.`, `_` and `-`"
            )
        if self.format not in _FORMATS:
            raise ConfigError(f"format={self.format!r} is none of {', '.join(_FORMATS)}")

    @property
    def dead(self) -> str:
        """The topic with what could not be applied."""
        return f"{self.name}.dead"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def parse_follow(said: Mapping[str, Any]) -> Follow:
    """The follower that `to_json` described."""
    return Follow(**{**said, "into": TargetSpec(**said["into"])})


def table(url: str, name: str) -> TargetSpec:
    """A table of a database: `sqlite:///FILE` or `postgresql://USER@HOST/DATABASE?password=env:NAME`.

    `mysql://` and `mariadb://` are written as `postgresql://` is. The table is created if it is missing,
    and gets a column for each field that rows have. `name` may be `SCHEMA.TABLE` in PostgreSQL.
    """
    scheme = urlsplit(url).scheme
    kind = _TABLES.get(scheme)
    if kind is None:
        raise ConfigError(
            f"a table is in one of {', '.join(f'{each}://' for each in _TABLES)}, not in {scheme}://"
        )
    if not name:
        raise ConfigError("a table has a name: table(url, name)")
    return TargetSpec(kind=kind, url=_absolute(url), options={"table": name})


def search(url: str, index: str, *, fields: "list[str] | tuple[str, ...]") -> TargetSpec:
    """A full-text index of these fields in a SQLite file (FTS5), under the name `index`."""
    if urlsplit(url).scheme != "sqlite":
        raise ConfigError("a full-text index of SQLite is at sqlite:///FILE")
    if not index or not fields:
        raise ConfigError("a full-text index has a name and fields: search(url, index, fields=[…])")
    return TargetSpec(kind="search", url=_absolute(url), options={"index": index, "fields": list(fields)})


def redis(url: str, *, prefix: str, values: Literal["json", "hash"] = "json") -> TargetSpec:
    """A cache that speaks Redis's protocol: `redis://HOST:PORT/DB?password=env:NAME`; `rediss://` with TLS.

    The row with the key 7 is at `prefix` and `7`: as JSON, or as a hash with its fields.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("redis", "rediss"):
        raise ConfigError(f"a cache is at redis://HOST:PORT or rediss://HOST:PORT, not at {parts.scheme}://")
    if not prefix:
        raise ConfigError(
            "a cache needs a prefix that distinguishes its keys from others: prefix='customer:'"
        )
    if values not in ("json", "hash"):
        raise ConfigError(f"values={values!r} is neither 'json' nor 'hash'")
    return TargetSpec(kind="redis", url=url, options={"prefix": prefix, "values": values})


def delta(url: str, *, every_s: float = 60.0, keep_hours: int = 24) -> TargetSpec:
    """A Delta table: a folder, `/srv/lake/customers`, or `s3://BUCKET/PATH`; needs `headrace[delta]`.

    At most one commit every `every_s` seconds. Versions, and the files that only they have, stay for
    `keep_hours`.
    """
    if is_url(url):
        require_supported("a Delta table at", url)
    if every_s < 0 or keep_hours < 1:
        raise ConfigError("a Delta table has every_s of 0 or more, and keep_hours of 1 or more")
    place = url if is_url(url) else Path(url).absolute().as_uri()
    return TargetSpec(kind="delta", url=place, options={"every_s": every_s, "keep_hours": keep_hours})


def opensearch(url: str, index: str) -> TargetSpec:
    """An index of OpenSearch, or a server with its bulk API: `https://USER@HOST:9200?password=env:NAME`.

    `sslrootcert=PATH` names the authority that signed the server's certificate. The index is created if
    it is missing, and belongs to this follower.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ConfigError(f"OpenSearch is at http://HOST:PORT or https://HOST:PORT, not at {parts.scheme}://")
    if not index or index != index.lower() or not all(each.isalnum() or each in "._-" for each in index):
        raise ConfigError("an index has a name in small letters, digits, `.`, `_` and `-`")
    return TargetSpec(kind="opensearch", url=url, options={"index": index})


def _absolute(url: str) -> str:
    """The URL with the whole path of its file, for a follower may be run from another directory."""
    from headrace.capture import absolute_url

    return absolute_url(url)
