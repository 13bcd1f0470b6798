"""The alerts that are active now, from the application's status and the broker's events. Blocks."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import orjson

from headrace.app.status import is_running, read_status
from headrace.client import EVENTS_TOPIC
from headrace.console.ask.alerts.catalog_rules import capture_alerts, follower_alerts
from headrace.console.ask.alerts.rules import driver_alerts, event_alerts
from headrace.console.ask.catalogs import catalog_statuses, declared_captures, declared_followers
from headrace.console.ask.records import PageLimits, PartitionRecord, bounds, read_last
from headrace.console.context import ConsoleContext
from headrace.console.push import Watch
from headrace.errors import HeadraceError, RequestError

__all__ = ["active_alerts"]

_LAST_EVENTS = 1_000


def active_alerts(context: ConsoleContext) -> list[dict[str, Any]]:
    """All that are active, worst and oldest first; those of the log are left out while it is away. Blocks."""
    found: list[dict[str, Any]] = []
    app = context.application.description()
    if app is not None and context.application.path is not None:
        status = read_status(context.application.path)
        found += driver_alerts(app, status, running=is_running(context.application.path))
    events = context.watches.of(("events",), lambda: EventsWatch(context))
    assert isinstance(events, EventsWatch)
    now = context.clock.now_ms() / 1000
    with suppress(HeadraceError):
        found += event_alerts(events.newest(), now)
        found += capture_alerts(catalog_statuses(declared_captures(context)), now)
        found += follower_alerts(catalog_statuses(declared_followers(context)), now)
    return sorted(found, key=lambda each: (each["severity"] != "critical", each["since"]))


class EventsWatch(Watch[list[dict[str, Any]]]):
    """The newest events of the broker, oldest first; read again only when there are more."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._read: tuple[dict[int, tuple[int, int]], list[dict[str, Any]]] = ({}, [])
        super().__init__(self._look, 1.0)

    async def _look(self) -> list[dict[str, Any]]:
        return await self._context.workers.run(self.newest)

    def newest(self) -> list[dict[str, Any]]:
        """Blocks; nothing where there are none, as with a Kafka."""
        limits = PageLimits(records=_LAST_EVENTS, bytes=1 << 24, scan_bytes=1 << 24)
        try:
            with self._context.clients.fetcher() as fetcher:
                held = bounds(fetcher, EVENTS_TOPIC)
                if held != self._read[0]:
                    page = read_last(fetcher, EVENTS_TOPIC, held, _LAST_EVENTS, limits)
                    self._read = held, list(_parsed(page.records))
        except RequestError:
            return []
        return self._read[1]


def _parsed(records: Iterable[PartitionRecord]) -> Iterator[dict[str, Any]]:
    for found in records:
        try:
            event = orjson.loads(found.record.value or b"")
        except orjson.JSONDecodeError:
            continue
        if isinstance(event, dict):
            yield event
