"""Late records by window, from what the late topic and the changes of views tell. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.records import LATE_PREFIX, read_headers
from headrace.views import ChangeKind, ViewChange

__all__ = ["LateCounts", "LateWindows"]

_MOST_WINDOWS = 500
_MOST_SEEN = 200_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

WindowKey = tuple[str, str | None, str | None]  # view, start, end


@dataclass(slots=True)
class LateCounts:
    """What was late for one window of one view."""

    dropped: int = 0
    corrections: int = 0
    late_by_us: int = 0


@dataclass(slots=True)
class LateWindows:
    """The windows that records were late for, the newest few hundred of them.

    `dropped` counts records, each in every window that it missed; `corrections` counts
    results that were published again, each of which may hold several late records. A
    record that a rebuild drops once more counts once.
    """

    _windows: dict[WindowKey, LateCounts] = field(default_factory=dict)
    _seen: dict[tuple[str, ...], None] = field(default_factory=dict)

    def dropped(self, headers: Iterable[tuple[str, bytes | None]]) -> None:
        """A record of the late topic; one that says nothing of a view is passed over."""
        said = read_headers(headers, LATE_PREFIX)
        view = said.get("view")
        if view is None or self._is_known(said):
            return
        for start, end in _missed(said):
            window = self._window((view, start, end))
            window.dropped += _number(said.get("rows")) or 1
            window.late_by_us = max(window.late_by_us, _number(said.get("late_by_us")) or 0)

    def changed(self, view: str, changes: Iterable[ViewChange]) -> None:
        """Changes of a view; only corrections matter."""
        for change in changes:
            if change.kind == ChangeKind.CORRECTION:
                row = {**(change.before or {}), **(change.after or {}), **change.key}
                start, end = (_moment(row.get(name)) for name in ("window_start", "window_end"))
                self._window((view, start, end)).corrections += 1

    def forget_changes(self, view: str) -> None:
        """The view was rebuilt: its corrections are published again."""
        for (name, _, _), window in self._windows.items():
            if name == view:
                window.corrections = 0

    def to_json(self) -> list[dict[str, Any]]:
        """By window, newest first."""
        ordered = sorted(self._windows.items(), key=lambda each: (each[0][1] or "", each[0][0]), reverse=True)
        return [
            {
                "view": view,
                "window_start": start,
                "window_end": end,
                "dropped": window.dropped,
                "corrected": window.corrections,
                "late_by_s": window.late_by_us / 1_000_000 if window.dropped else None,
            }
            for (view, start, end), window in ordered
        ]

    def _is_known(self, said: Mapping[str, str]) -> bool:
        """Whether this very record was counted before."""
        names = ("view", "topic", "partition", "offset", "window_start_us")
        if "offset" not in said:
            return False
        place = tuple(said.get(name, "") for name in names)
        if place in self._seen:
            return True
        self._seen[place] = None
        if len(self._seen) > _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        return False

    def _window(self, place: WindowKey) -> LateCounts:
        found = self._windows.get(place)
        if found is None:
            found = self._windows[place] = LateCounts()
            if len(self._windows) > _MOST_WINDOWS:
                del self._windows[min(self._windows, key=lambda each: each[1] or "")]
        return found


def _missed(said: Mapping[str, str]) -> Iterator[tuple[str | None, str | None]]:
    """Start and end of the windows that a record missed, the latest of them if there are very many."""
    start, end = (_number(said.get(name)) for name in ("window_start_us", "window_end_us"))
    if start is None or end is None:
        yield None, None
        return
    many, every_us = _number(said.get("missed_windows")) or 1, _number(said.get("every_us")) or 0
    for place in range(max(many - _MOST_WINDOWS, 0), many):
        yield _time(start + place * every_us), _time(end + place * every_us)


def _number(text: str | None) -> int | None:
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def _time(us: int) -> str | None:
    """Microseconds since the epoch as views write times; milliseconds will do."""
    try:
        return _moment((_EPOCH + timedelta(microseconds=us)).isoformat())
    except OverflowError:
        return None


def _moment(value: Any) -> str | None:
    """A time of a view's row, in UTC and with milliseconds however it was written."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
