"""The source that a capture's URL names."""

from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headrace.capture.change import TableSchema
from headrace.capture.source import Source
from headrace.capture.spec import CaptureSpec
from headrace.errors import ConfigError

__all__ = ["absolute_url", "describe_table", "open_source", "sqlite_path"]


def open_source(spec: CaptureSpec) -> Source:
    """A source that is not connected yet; raises ConfigError if a reference to a password leads nowhere."""
    if spec.url.startswith("sqlite:"):
        from headrace.capture.sqlite import SqliteSource

        return SqliteSource(sqlite_path(spec.url), [*spec.tables, *spec.outbox], name=spec.name)
    if spec.url.startswith(("mysql:", "mariadb:")):
        from headrace.capture.mysql import MysqlSource

        return MysqlSource.from_url(spec.url, name=spec.name, tables=[*spec.tables, *spec.outbox])
    from headrace.capture.postgres import PostgresSource

    return PostgresSource.from_url(
        spec.url, name=spec.name, tables=[*spec.tables, *spec.outbox], load_workers=spec.load_workers
    )


def sqlite_path(url: str) -> Path:
    """The file of `sqlite:///shop.db` (in the working directory) or `sqlite:////var/shop.db`."""
    path = unquote(urlsplit(url).path).removeprefix("/")
    if not path:
        raise ConfigError(f"{url} names no file; write sqlite:///FILE, or sqlite:////FILE from the root")
    return Path(path)


def absolute_url(url: str) -> str:
    """The URL with the whole path of its file, for a capture may be run from another directory."""
    return f"sqlite:///{sqlite_path(url).absolute()}" if url.startswith("sqlite:") else url


def describe_table(spec: CaptureSpec, table: str) -> TableSchema:
    """A table as its database has it now; nothing is set up there. Raises ConfigError if there is none."""
    source = open_source(replace(spec, tables=(table,), outbox=()))
    lacks = [each.what for each in source.check() if not each.statements]
    if lacks:
        raise ConfigError(f"{source.url}: {'; '.join(lacks)}")
    try:
        found = source.describe()
    finally:
        source.close()
    return next(iter(found.values()))
