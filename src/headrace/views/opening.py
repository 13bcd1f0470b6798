"""A store from its URL."""

from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.client.connection import Connection
from headrace.errors import ConfigError
from headrace.views.store import ViewStore

__all__ = ["open_store"]

FORMS = (
    "sqlite:///path/to/file.db, postgresql://user@host/database, parquet:///path/to/folder, topic://name, "
    "memory://name"
)


def open_store(url: str, *, bootstrap: str | None = None, connection: Connection | None = None) -> ViewStore:
    """The store that a URL names; raises ConfigError if there is no such kind or it cannot be opened.

    `sqlite:///relative.db` and `sqlite:////absolute.db` are files, and so
    `parquet:///folder` is a folder. `postgresql://user:password@host:port/database` is
    what libpq takes. `topic://name` is a topic, `topic://prefix*` one for each view, on the
    log that `bootstrap` names, or `connection` reaches, unless the URL names one
    (`?bootstrap=host:port`, where nobody logs in; also `partitions=3`,
    `compacted=true`). `memory://name` is shared by everything in this process that
    opens that name.
    """
    scheme, _, rest = url.partition("://")
    match scheme:
        case "sqlite":
            from headrace.views.sqlite import SqliteStore

            return SqliteStore(_path(url, rest))
        case "postgresql" | "postgres":
            return _postgres(url)
        case "parquet":
            from headrace.views.parquet import ParquetStore

            return ParquetStore(_path(url, rest))
        case "topic":
            return _topic(url, bootstrap, connection)
        case "memory":
            from headrace.views.memory import MemoryStore

            return MemoryStore(rest)
    raise ConfigError(f"{_masked(url)!r} is no store of views; write one of {FORMS}")


def _postgres(url: str) -> ViewStore:
    try:
        from headrace.views.postgres import PostgresStore
    except ImportError as error:
        raise ConfigError(
            f"views in PostgreSQL need psycopg: pip install 'headrace[postgres]' ({error})"
        ) from error
    return PostgresStore(url)


def _topic(url: str, bootstrap: str | None, connection: Connection | None) -> ViewStore:
    from headrace.views.topic import TopicStore

    name, _, query = url.partition("://")[2].partition("?")
    given = dict(parse_qsl(query))
    if unknown := given.keys() - {"bootstrap", "partitions", "compacted"}:
        raise ConfigError(
            f"{url!r}: unknown {', '.join(sorted(unknown))}; there is bootstrap, partitions, compacted"
        )
    partitions, compacted = given.get("partitions", "1"), given.get("compacted", "false")
    if not partitions.isdecimal() or compacted not in ("true", "false"):
        raise ConfigError(f"{url!r}: partitions is a number, compacted is true or false")
    if servers := given.get("bootstrap") or bootstrap:
        connection = Connection(bootstrap_servers=servers)
    return TopicStore(
        connection or Connection(), unquote(name), partitions=int(partitions), compacted=compacted == "true"
    )


def _path(url: str, rest: str) -> str:
    if not rest.startswith("/") or len(rest) < 2 or "?" in rest or "#" in rest:
        scheme = url.partition("://")[0]
        raise ConfigError(
            f"{url!r} names no path; write {scheme}:///relative/path or {scheme}:////absolute/path"
        )
    return unquote(rest[1:])


def _masked(url: str) -> str:
    """The URL without a password, for messages."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return url.partition("://")[0] + "://…"
    return url.replace(f":{password}@", ":…@") if password else url
