"""Tables of databases in an application: what `app.capture` returns and `app.table` takes."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from headrace.capture import (
    CaptureSpec,
    TableSchema,
    absolute_url,
    describe_table,
    schema_topic,
    table_topic,
    transaction_topic,
)
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.streams import CapturedColumns

__all__ = ["CapturedTable", "capture_name", "with_table"]


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """A table of a database, captured under the name `capture`; `schema` is as it was at `read_ms`."""

    capture: str
    schema: TableSchema
    read_ms: int
    has_cuts: bool = True

    @property
    def topic(self) -> str:
        """The topic with its changes."""
        return table_topic(self.capture, self.schema.table)

    @property
    def transactions(self) -> str | None:
        """The topic that says where transactions of its database end; None if nobody writes that."""
        return transaction_topic(self.capture) if self.has_cuts else None

    @property
    def columns(self) -> "CapturedColumns":
        """What a query has to know of its columns, and where it learns that they have changed."""
        from headrace.streams import CapturedColumns

        return CapturedColumns(
            topic=schema_topic(self.capture),
            table=self.schema.table,
            columns=tuple((each.name, each.type) for each in self.schema.columns),
            key=self.schema.key,
            read_ms=self.read_ms,
        )

    def require_key(self) -> tuple[str, ...]:
        """The primary key; raises ConfigError if the table has none."""
        if not self.schema.key:
            raise ConfigError(
                f"table {self.schema.table} has no primary key, so nothing tells its rows apart; "
                f"add one, or read its changes as a stream: app.stream({self.topic!r}, …)"
            )
        return self.schema.key


def capture_name(url: str) -> str:
    """The name of a capture unless it is given one: that of its database, or of its file."""
    stem = PurePosixPath(urlsplit(url).path).stem
    return re.sub(r"[^A-Za-z0-9_-]", "_", stem) or "database"


def with_table(
    captures: Mapping[str, CaptureSpec],
    url: str,
    table: str,
    name: str | None,
    settings: Mapping[str, str] | None = None,
) -> tuple[CaptureSpec, CapturedTable]:
    """The capture with one more table, and that table as the database has it now."""
    made = CaptureSpec(name=name or capture_name(url), url=absolute_url(url), settings=dict(settings or {}))
    known = captures.get(made.name, made)
    spec = replace(known, settings={**known.settings, **made.settings})
    if spec.url != made.url:
        raise ConfigError(f"captures of {spec.url} and {made.url} have the same name; give one of them name=")
    read_ms = time.time_ns() // 1_000_000
    schema = describe_table(spec, table)
    tables = dict.fromkeys([*spec.tables, schema.table])
    captured = CapturedTable(made.name, schema, read_ms, has_cuts=not spec.is_debezium)
    return replace(spec, tables=tuple(tables)), captured
