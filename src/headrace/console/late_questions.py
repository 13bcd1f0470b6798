"""What was late: the books of the views, and the windows, read on from where the last look ended. Blocks."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from headrace.app.books import READ, SKIPPED
from headrace.app.description import AppDescription, ViewDescription
from headrace.console.late_book import LateBook
from headrace.console.reading import Limits, bounds, read_page
from headrace.console.surroundings import Surroundings
from headrace.console.views import moving
from headrace.errors import HeadraceError, RequestError

__all__ = ["LateLook"]

_LAST_RECORDS = 10_000
_LAST_CHANGES = 5_000
_BYTES = 64 << 20
_WINDOWED = ("tumbling", "hopping", "sliding", "session")


@dataclass(slots=True)
class LateLook:
    """Remembers how far it has read; one look at a time."""

    here: Surroundings
    _app: str | None = None
    _book: LateBook = field(default_factory=LateBook)
    _positions: dict[int, int] | None = None
    _sequences: dict[str, int] = field(default_factory=dict)

    def look(self) -> dict[str, Any]:
        """Books and windows as they are now."""
        app = self.here.application()
        if app is None:
            return {"topic": None, "views": [], "windows": []}
        if app.app != self._app:
            self._app, self._book, self._positions, self._sequences = app.app, LateBook(), None, {}
        self._read_topic(app.late_topic)
        moves = {each["name"]: each for each in moving(self.here)}
        for view in _windowed(app):
            self._read_changes(view)
        return {
            "topic": app.late_topic,
            "views": [
                {"view": view.name, "books": _books(moves[view.name]["books"])}
                for view in _windowed(app)
                if view.name in moves
            ],
            "windows": self._book.to_json(),
        }

    def _read_topic(self, topic: str) -> None:
        """What was dropped since; at first the last ten thousand of each partition."""
        try:
            with self.here.fetcher() as fetcher:
                held = bounds(fetcher, topic)
                if self._positions is None:
                    self._positions = {
                        each: max(start, end - _LAST_RECORDS) for each, (start, end) in held.items()
                    }
                ends = {each: end for each, (_, end) in held.items()}
                starts = {each: self._positions.get(each, start) for each, (start, _) in held.items()}
                limits = Limits(records=_LAST_RECORDS * len(held), bytes=_BYTES, scan_bytes=_BYTES)
                page = read_page(fetcher, topic, starts, ends, limits)
        except RequestError:
            return  # nothing was ever late: there is no such topic
        for found in page.records:
            self._book.dropped(found.record.headers)
        self._positions = page.positions

    def _read_changes(self, view: ViewDescription) -> None:
        """Corrections since; the last few thousand changes at first, and after a rebuild."""
        try:
            with self.here.store_of(view) as store:
                newest = store.last_sequence(view.name)
                since = self._sequences.get(view.name, max(0, newest - _LAST_CHANGES))
                try:
                    changes = store.changes(view.name, since, _LAST_CHANGES) if newest > since else []
                except RequestError:
                    self._book.forget_changes(view.name)
                    changes = []
        except HeadraceError:
            return  # the view's own figures say what is wrong
        self._book.changed(view.name, changes)
        self._sequences[view.name] = changes[-1].sequence if changes else newest


def _windowed(app: AppDescription) -> Iterator[ViewDescription]:
    return (each for each in app.views if each.kind in _WINDOWED and each.store is not None)


def _books(books: dict[str, int] | None) -> dict[str, int]:
    return {name: (books or {}).get(name, 0) for name in (*READ, SKIPPED)}
