"""Captures and followers as the log declares them, and what they say of themselves.

Both kinds have a catalog: a compacted topic with the records `NAME/spec`, `NAME/switch` and `NAME/status`
(`capture.catalog`, `derived.catalog`). It is read from its start once, and then what is new.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from headrace.capture import CAPTURES_TOPIC
from headrace.client import EARLIEST, LATEST
from headrace.console.context import ConsoleContext
from headrace.console.push import Watch
from headrace.derived import FOLLOWERS_TOPIC
from headrace.errors import RequestError
from headrace.records import decode_columns

__all__ = ["CatalogEntry", "catalog_statuses", "declared_captures", "declared_followers", "fold_catalog"]

Said = Mapping[str, Any]


@dataclass(slots=True)
class CatalogEntry:
    """What the log says of one of them; `spec` is empty for what was never declared, or was removed."""

    spec: Said = field(default_factory=dict)
    switch: Said = field(default_factory=dict)
    status: Said | None = None


def fold_catalog(
    entries: dict[str, CatalogEntry], records: Iterable[tuple[bytes | None, bytes | None]]
) -> None:
    """Brings the entries up to date with these records; what is no JSON object counts as gone."""
    for key, value in records:
        name, _, part = (key or b"").decode(errors="replace").rpartition("/")
        said = _parsed(value)
        if part == "spec" and value is None:
            entries.pop(name, None)
        elif part in ("spec", "switch"):
            setattr(entries.setdefault(name, CatalogEntry()), part, said or {})
        elif part == "status":
            entries.setdefault(name, CatalogEntry()).status = said


def catalog_statuses(entries: Mapping[str, CatalogEntry]) -> dict[str, Said]:
    """What those that are declared, and have said something, said last."""
    return {name: each.status for name, each in entries.items() if each.spec and each.status is not None}


def declared_captures(context: ConsoleContext) -> dict[str, CatalogEntry]:
    """The captures of the log; none where it has no catalog of them. Blocks."""
    return _declared(context, CAPTURES_TOPIC)


def declared_followers(context: ConsoleContext) -> dict[str, CatalogEntry]:
    """The same of followers. Blocks."""
    return _declared(context, FOLLOWERS_TOPIC)


def _declared(context: ConsoleContext, topic: str) -> dict[str, CatalogEntry]:
    watch = context.watches.of(("catalog", topic), lambda: CatalogWatch(context, topic))
    assert isinstance(watch, CatalogWatch)
    return {name: each for name, each in watch.newest().items() if each.spec}


class CatalogWatch(Watch[dict[str, CatalogEntry]]):
    """The entries of a catalog; read on only where there is more."""

    def __init__(self, context: ConsoleContext, topic: str) -> None:
        self._context = context
        self._topic = topic
        self._next = 0
        self._entries: dict[str, CatalogEntry] = {}
        super().__init__(self._look, 1.0)

    async def _look(self) -> dict[str, CatalogEntry]:
        return await self._context.workers.run(self.newest)

    def newest(self) -> dict[str, CatalogEntry]:
        """Blocks; nothing where there is no such topic."""
        try:
            with self._context.clients.fetcher() as fetcher:
                end = fetcher.offsets(self._topic, LATEST)[0]
                if end < self._next:  # the topic was deleted, and created again
                    self._next, self._entries = 0, {}
                if end == self._next:
                    return self._entries
                start = max(self._next, fetcher.offsets(self._topic, EARLIEST)[0])
                read = dict(self._entries)
                for run in fetcher.fetch(self._topic, 0, start, end):
                    columns = decode_columns(run, columns=("key", "value"))
                    keys, values = columns["key"].to_pylist(), columns["value"].to_pylist()
                    fold_catalog(read, zip(keys, values, strict=True))
                self._next, self._entries = end, read
        except RequestError:
            return {}
        return self._entries


def _parsed(value: bytes | None) -> dict[str, Any] | None:
    try:
        said = orjson.loads(value or b"null")
    except orjson.JSONDecodeError:
        return None
    return said if isinstance(said, dict) else None
