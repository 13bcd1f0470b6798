"""Late records by window, from what the late topic and the changes of views tell. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.console.parameters import format_time
from headrace.views import Change, Kind

__all__ = ["LateBook", "LateWindow"]

_PREFIX = "headrace.late."
_MOST_WINDOWS = 500
_MOST_SEEN = 200_000

Window = tuple[str, str | None, str | None]  # view, start, end


@dataclass(slots=True)
class LateWindow:
    """What was late for one window of one view."""

    dropped: int = 0
    corrections: int = 0
    late_by_us: int = 0


@dataclass(slots=True)
class LateBook:
    """The windows that records were late for, the newest few hundred of them.

    `dropped` counts records; `corrections` counts results that were published anew,
    each of which may hold several late records. A record that a rebuild drops once
    more counts once.
    """

    _windows: dict[Window, LateWindow] = field(default_factory=dict)
    _seen: dict[tuple[str, ...], None] = field(default_factory=dict)

    def dropped(self, headers: Iterable[tuple[str, bytes | None]]) -> None:
        """A record of the late topic; one that says nothing of a view is passed over."""
        said = {
            name.removeprefix(_PREFIX): value.decode(errors="replace")
            for name, value in headers
            if name.startswith(_PREFIX) and value is not None
        }
        view = said.get("view")
        if view is None or self._is_known(said):
            return
        window = self._window((view, _time(said.get("window_start_us")), _time(said.get("window_end_us"))))
        window.dropped += _number(said.get("rows")) or 1
        window.late_by_us = max(window.late_by_us, _number(said.get("late_by_us")) or 0)

    def changed(self, view: str, changes: Iterable[Change]) -> None:
        """Changes of a view; only corrections matter."""
        for change in changes:
            if change.kind == Kind.CORRECTION:
                start, end = (_moment(change.key.get(name)) for name in ("window_start", "window_end"))
                self._window((view, start, end)).corrections += 1

    def forget_changes(self, view: str) -> None:
        """The view was built anew: its corrections are told again."""
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

    def _window(self, place: Window) -> LateWindow:
        found = self._windows.get(place)
        if found is None:
            found = self._windows[place] = LateWindow()
            if len(self._windows) > _MOST_WINDOWS:
                del self._windows[min(self._windows, key=lambda each: each[1] or "")]
        return found


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 19 else None


def _time(text: str | None) -> str | None:
    us = _number(text)
    return None if us is None else format_time(us // 1000)


def _moment(value: Any) -> str | None:
    """A timestamp of a view's row, as the others are written: milliseconds will do."""
    return None if not isinstance(value, str) else f"{value[:23]}Z" if len(value) > 23 else value
