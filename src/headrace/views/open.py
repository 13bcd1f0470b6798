"""A store from its URL."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.client.connect import Connection
from headrace.errors import ConfigError
from headrace.views.store import ViewStore

__all__ = ["open_store", "require_store_url", "topic_of_view", "written_epoch"]

FORMS = (
    "sqlite:///path/to/file.db, postgresql://user@host/database, parquet:///path/to/folder, "
    "parquet+s3://bucket/folder, topic://name, memory://name"
)


def open_store(
    url: str,
    *,
    bootstrap: str | None = None,
    connection: Connection | None = None,
    dead_letters: str | None = None,
    epoch: int = 0,
) -> ViewStore:
    """The store that a URL names; raises ConfigError if there is no such kind or it cannot be opened.

    `sqlite:///relative.db` and `sqlite:////absolute.db` are files, and `parquet:///folder`
    is a folder, `parquet+s3://bucket/folder` (or `+gs`, `+abfs`, `+hdfs`, `+file`) one in an object store,
    where `epoch` tells the run that writes from those before it. `postgresql://…` is what libpq takes, or
    has `password=env:NAME` or `file:PATH`, which is read by each process that connects.
    `topic://name` is a topic, `topic://prefix*` one for each view, on the log that
    `bootstrap` or `connection` names, unless the URL does (`?bootstrap=host:port`, without
    login; also `partitions=3`, `compacted=true`). `memory://name` is shared by everything in
    this process that opens that name. `dead_letters` is the topic for rows that a topic does
    not take.
    """
    return _opener(url, bootstrap, connection, dead_letters, epoch)()


def require_store_url(url: str) -> None:
    """Raises ConfigError if this is not the URL of a store; opens nothing."""
    _opener(url, None, None, None)


def written_epoch(url: str) -> int:
    """The highest epoch under which anything was written to this store; 0 if it knows of none."""
    if not url.startswith("parquet+"):
        return 0
    from headrace.views.parquet.store import ParquetUrl

    return ParquetUrl(url.removeprefix("parquet+")).highest_epoch()


def topic_of_view(url: str, view: str) -> tuple[str | None, str] | None:
    """The topic that a URL keeps a view on, with the log that the URL names, if any; None: it is no topic."""
    scheme, _, rest = url.partition("://")
    if scheme != "topic":
        return None
    name, _, query = rest.partition("?")
    name = unquote(name)
    topic = name[:-1] + view if name.endswith("*") else name
    return dict(parse_qsl(query)).get("bootstrap"), topic


def _opener(
    url: str,
    bootstrap: str | None,
    connection: Connection | None,
    dead_letters: str | None,
    epoch: int = 0,
) -> Callable[[], ViewStore]:
    scheme, _, rest = url.partition("://")
    match scheme:
        case "sqlite":
            from headrace.views.sql.sqlite import SqliteStore

            return partial(SqliteStore, _path(url, rest))
        case "postgresql" | "postgres":
            return partial(_postgres(), url)
        case "parquet":
            from headrace.views.parquet.store import ParquetFolder, ParquetStore

            folder = Path(_path(url, rest))
            return lambda: ParquetStore(ParquetFolder(folder))
        case _ if scheme.startswith("parquet+"):
            from headrace.views.parquet.store import ParquetStore, ParquetUrl

            at_url = ParquetUrl(url.removeprefix("parquet+"), epoch)
            return partial(ParquetStore, at_url)
        case "topic":
            return _topic(url, bootstrap, connection, dead_letters)
        case "memory":
            from headrace.views.memory import MemoryStore

            return partial(MemoryStore, rest)
    raise ConfigError(f"{_masked(url)!r} is not the URL of a view store; use one of {FORMS}")


def _postgres() -> Callable[[str], ViewStore]:
    try:
        from headrace.views.sql.postgres import PostgresStore
    except ImportError as error:
        raise ConfigError(
            f"views in PostgreSQL need psycopg: pip install 'headrace[postgres]' ({error})"
        ) from error
    return PostgresStore


def _topic(
    url: str, bootstrap: str | None, connection: Connection | None, dead_letters: str | None
) -> Callable[[], ViewStore]:
    from headrace.views.topic.store import TopicStore

    name, _, query = url.partition("://")[2].partition("?")
    given = dict(parse_qsl(query))
    if unknown := given.keys() - {"bootstrap", "partitions", "compacted"}:
        raise ConfigError(
            f"{url!r}: unknown {', '.join(sorted(unknown))}; known are bootstrap, partitions, compacted"
        )
    partitions, compacted = given.get("partitions", "1"), given.get("compacted", "false")
    if not partitions.isdecimal() or not int(partitions) or compacted not in ("true", "false"):
        raise ConfigError(f"{url!r}: partitions must be 1 or more, compacted true or false")
    if not name:
        raise ConfigError(f"{url!r} names no topic; write topic://name, or topic://prefix* for one per view")
    if servers := given.get("bootstrap") or bootstrap:
        connection = Connection(bootstrap_servers=servers)
    return partial(
        TopicStore,
        connection or Connection(),
        unquote(name),
        partitions=int(partitions),
        compacted=compacted == "true",
        dead_letters=dead_letters,
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
