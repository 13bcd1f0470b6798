"""Rebuilds that were asked for, and rebuilt views that wait for a decision: files of the data folder.

The process that rebuilds a view to be compared writes what it finds, and the command line what was decided,
each to a file of its own. What they hold is about one rebuild, by the id of its query.
"""

import uuid
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import RequestError
from headrace.json_files import read_json, write_json
from headrace.views.rebuilt.comparison import Comparison

__all__ = ["HoldState", "RebuildRequest", "Rebuilds"]


@dataclass(frozen=True, slots=True)
class RebuildRequest:
    """A rebuild that somebody has asked for; `compare` says that it waits for a decision if it differs."""

    id: str
    compare: bool


@dataclass(frozen=True, slots=True)
class HoldState:
    """A rebuild that is to be compared: of which query, what was found once it is built, what was decided."""

    query_id: str
    comparison: Comparison | None = None
    is_approved: bool = False


class Rebuilds:
    """The rebuilds of an application's views: those asked for, and those compared before they are shown."""

    def __init__(self, data: Path) -> None:
        self._folder = data / "rebuilding"

    def request(self, view: str, *, compare: bool) -> None:
        """Asks for a rebuild of a view; it is done once, however often the process is restarted."""
        write_json(self._request(view), {"id": uuid.uuid4().hex[:12], "compare": compare})

    def requested(self, view: str) -> RebuildRequest | None:
        """The last rebuild of this view that was asked for, and is not shown yet."""
        found = read_json(self._request(view))
        return None if found is None else RebuildRequest(found["id"], found["compare"])

    def views(self) -> list[str]:
        """The views with a rebuild that is compared."""
        return sorted(path.name.removesuffix(".held.json") for path in self._folder.glob("*.held.json"))

    def read(self, view: str) -> HoldState | None:
        """The rebuild of this view that is compared; None if there is none."""
        found = read_json(self._path(view))
        if found is None:
            return None
        compared, decided = found["comparison"], read_json(self._decision(view)) or {}
        return HoldState(
            found["query_id"],
            None if compared is None else Comparison.from_json(compared),
            decided.get("approved") == found["query_id"],
        )

    def of_query(self, view: str, query_id: str) -> HoldState | None:
        """The same, of the rebuild by this query only."""
        found = self.read(view)
        return found if found is not None and found.query_id == query_id else None

    def hold(self, view: str, query_id: str) -> None:
        """Says that this rebuild is to be compared before it is shown; nothing happens if that is known."""
        if self.of_query(view, query_id) is None:
            self._write(view, query_id, None)

    def note(self, view: str, query_id: str, comparison: Comparison) -> None:
        """Keeps what was found."""
        self._write(view, query_id, comparison)

    def compared(self, view: str) -> Comparison:
        """What differs in the rebuilt view that waits; raises RequestError if none does."""
        return self._waiting(view)[1]

    def approve(self, view: str, query_id: str | None = None) -> None:
        """Decides to show the rebuilt view; raises RequestError if none waits for that, or not this one."""
        waiting, _ = self._waiting(view)
        if query_id not in (None, waiting):
            raise RequestError(f"another rebuild of view {view!r} waits than the one that was compared")
        write_json(self._decision(view), {"approved": waiting})

    def _waiting(self, view: str) -> tuple[str, Comparison]:
        found = self.read(view)
        if found is None or found.comparison is None:
            raise RequestError(_none_waits(view, is_building=found is not None))
        return found.query_id, found.comparison

    def release(self, view: str) -> None:
        """The rebuilt view is shown; harmless when repeated."""
        for path in (self._path(view), self._request(view), self._decision(view)):
            path.unlink(missing_ok=True)

    def _write(self, view: str, query_id: str, comparison: Comparison | None) -> None:
        compared = None if comparison is None else comparison.to_json()
        write_json(self._path(view), {"query_id": query_id, "comparison": compared})

    def _path(self, view: str) -> Path:
        return self._folder / f"{view}.held.json"

    def _decision(self, view: str) -> Path:
        return self._folder / f"{view}.decided.json"

    def _request(self, view: str) -> Path:
        return self._folder / f"{view}.requested.json"


def _none_waits(view: str, *, is_building: bool) -> str:
    if is_building:
        return f"view {view!r} is still being rebuilt; wait until its comparison is there"
    return (
        f"no rebuild of view {view!r} waits for a decision; `headrace run FILE --rebuild-view {view} "
        "--compare` begins one"
    )
