"""Late records: counts by view, and windows, read on from where the last look ended. Blocks."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.app.query import READ, SKIPPED
from headrace.app.status import AppDescription, ViewDescription
from headrace.console.ask.late_windows import LateWindows
from headrace.console.ask.records import PageLimits, bounds, read_page
from headrace.console.ask.view_state import view_statuses
from headrace.console.context import ConsoleContext
from headrace.console.push import Watch
from headrace.errors import HeadraceError, RequestError

__all__ = ["late_watch"]

_LAST_RECORDS = 10_000
_LAST_CHANGES = 5_000
_BYTES = 64 << 20
_WINDOWED = ("tumbling", "hopping", "sliding", "session")


@dataclass(slots=True)
class LateRecords:
    """Remembers how far it has read; one look at a time."""

    context: ConsoleContext
    _app: str | None = None
    _windows: LateWindows = field(default_factory=LateWindows)
    _positions: dict[int, int] | None = None
    _sequences: dict[str, int] = field(default_factory=dict)

    def look(self) -> dict[str, Any]:
        """Counts and windows as they are now."""
        app = self.context.application.description()
        if app is None:
            return {"topic": None, "views": [], "windows": []}
        if app.app != self._app:
            self._app, self._windows, self._positions, self._sequences = app.app, LateWindows(), None, {}
        self._read_topic(app.late_topic)
        views = {each["name"]: each for each in view_statuses(self.context)}
        for view in _windowed(app):
            self._read_changes(view)
        return {
            "topic": app.late_topic,
            "views": [
                {"view": view.name, "counters": _counts(views[view.name]["counters"])}
                for view in _windowed(app)
                if view.name in views
            ],
            "windows": self._windows.to_json(),
        }

    def _read_topic(self, topic: str) -> None:
        """What was dropped since; at first the last ten thousand of each partition."""
        try:
            with self.context.clients.fetcher() as fetcher:
                held = bounds(fetcher, topic)
                if self._positions is None:
                    self._positions = {
                        each: max(start, end - _LAST_RECORDS) for each, (start, end) in held.items()
                    }
                ends = {each: end for each, (_, end) in held.items()}
                starts = {each: self._positions.get(each, start) for each, (start, _) in held.items()}
                limits = PageLimits(records=_LAST_RECORDS * len(held), bytes=_BYTES, scan_bytes=_BYTES)
                page = read_page(fetcher, topic, starts, ends, limits)
        except RequestError:
            return  # nothing was ever late: there is no such topic
        for found in page.records:
            self._windows.dropped(found.record.headers)
        self._positions = page.positions

    def _read_changes(self, view: ViewDescription) -> None:
        """Corrections since; the last few thousand changes at first, and after a rebuild."""
        try:
            with self.context.application.store_of(view) as store:
                newest = store.last_sequence(view.name)
                since = self._sequences.get(view.name, max(0, newest - _LAST_CHANGES))
                try:
                    changes = store.changes(view.name, since, _LAST_CHANGES) if newest > since else []
                except RequestError:
                    self._windows.forget_changes(view.name)
                    changes = []
        except HeadraceError:
            return  # the view's own figures say what is wrong
        self._windows.changed(view.name, changes)
        self._sequences[view.name] = changes[-1].sequence if changes else newest


def _windowed(app: AppDescription) -> Iterator[ViewDescription]:
    return (each for each in app.views if each.kind in _WINDOWED and each.store is not None)


def _counts(counts: dict[str, int] | None) -> dict[str, int]:
    return {name: (counts or {}).get(name, 0) for name in (*READ, SKIPPED)}


class LateWatch(Watch[dict[str, Any]]):
    """What was late; a look goes on where the one before ended."""

    def __init__(self, context: ConsoleContext) -> None:
        self._context = context
        self._late = LateRecords(context)
        self._one_at_a_time = asyncio.Lock()
        super().__init__(self.look, 1.0)

    async def look(self) -> dict[str, Any]:
        async with self._one_at_a_time:
            return await self._context.workers.run(self._late.look)


def late_watch(context: ConsoleContext) -> LateWatch:
    """The one of this console."""
    found = context.watches.of(("late",), lambda: LateWatch(context))
    assert isinstance(found, LateWatch)
    return found
