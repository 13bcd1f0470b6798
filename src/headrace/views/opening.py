"""A store from its URL."""

from urllib.parse import unquote, urlsplit

from headrace.errors import ConfigError
from headrace.views.store import ViewStore

__all__ = ["open_store"]

FORMS = "sqlite:///path/to/file.db, postgresql://user@host/database, memory://name"


def open_store(url: str) -> ViewStore:
    """The store that a URL names; raises ConfigError if there is no such kind or it cannot be opened.

    `sqlite:///relative.db` and `sqlite:////absolute.db` are files;
    `postgresql://user:password@host:port/database` is what libpq takes; `memory://name` is
    shared by everything in this process that opens that name.
    """
    scheme, _, rest = url.partition("://")
    match scheme:
        case "sqlite":
            from headrace.views.sqlite import SqliteStore

            return SqliteStore(_path(url, rest))
        case "postgresql" | "postgres":
            return _postgres(url)
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


def _path(url: str, rest: str) -> str:
    if not rest.startswith("/") or len(rest) < 2 or "?" in rest or "#" in rest:
        raise ConfigError(f"{url!r} names no file; write sqlite:///views.db, or sqlite:////var/views.db")
    return unquote(rest[1:])


def _masked(url: str) -> str:
    """The URL without a password, for messages."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return url.partition("://")[0] + "://…"
    return url.replace(f":{password}@", ":…@") if password else url
