"""The source that a capture's URL names."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from headrace.capture.change import TableSchema
from headrace.capture.source import Lack, Source
from headrace.capture.spec import CaptureSpec
from headrace.capture.writer import schema_topic, state_topic, transaction_topic
from headrace.errors import ConfigError, RequestError

__all__ = [
    "absolute_url",
    "check_database",
    "describe_table",
    "open_source",
    "own_topics",
    "release_database",
    "sqlite_path",
]


def open_source(spec: CaptureSpec) -> Source:
    """A source that is not connected yet; raises ConfigError if a reference to a password leads nowhere.

    Raises RequestError for a database that Debezium reads: `capture.connect` does that as a whole.
    """
    if spec.is_debezium:
        raise RequestError(f"capture {spec.name} is read by Debezium's connector, which has no such command")
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


def check_database(spec: CaptureSpec) -> Sequence[Lack]:
    """What the database lacks before it can be captured; changes nothing there."""
    if spec.is_debezium:
        from headrace.capture import connect

        return connect.check(spec)
    return open_source(spec).check()


def release_database(spec: CaptureSpec) -> None:
    """Removes from the database what the capture has set up there."""
    if not spec.is_debezium:
        open_source(spec).remove()
        return
    from headrace.capture import connect

    address = connect.DebeziumAddress.parse(spec.url)
    if address.kind == "postgresql" and (ours := connect.own_source(spec, address)) is not None:
        ours.remove()  # Debezium's slot and publication are named as ours would be


def own_topics(spec: CaptureSpec) -> list[str]:
    """The topics of a capture other than those of its tables."""
    ours = [schema_topic(spec.name), transaction_topic(spec.name), state_topic(spec.name)]
    if not spec.is_debezium:
        return ours
    from headrace.capture import connect

    return [*ours, *connect.connect_topics(spec.name)]


def describe_table(spec: CaptureSpec, table: str) -> TableSchema:
    """A table as its database has it now; nothing is set up there. Raises ConfigError if there is none."""
    if spec.is_debezium:
        return _described_by_debezium(replace(spec, tables=(table,)))
    source = open_source(replace(spec, tables=(table,), outbox=()))
    lacks = [each.what for each in source.check() if not each.statements]
    if lacks:
        raise ConfigError(f"{source.url}: {'; '.join(lacks)}")
    try:
        found = source.describe()
    finally:
        source.close()
    return next(iter(found.values()))


def _described_by_debezium(spec: CaptureSpec) -> TableSchema:
    from headrace.capture import connect

    found = connect.describe(spec)
    if not found:
        raise ConfigError(
            f"{spec.tables[0]}: documents have no columns that could be known; read the topic of their "
            "capture as a stream, with a schema of your own"
        )
    return next(iter(found.values()))
