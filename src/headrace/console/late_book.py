"""Late records by window, from what the late topic and the changes of views tell. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from headrace.views import Change, Kind

__all__ = ["LateBook", "LateWindow"]

_PREFIX = "headrace.late."
_MOST_WINDOWS = 500
_MOST_SEEN = 200_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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
                row = {**(change.before or {}), **(change.after or {}), **change.key}
                start, end = (_moment(row.get(name)) for name in ("window_start", "window_end"))
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
    digits = (text or "").removeprefix("-")
    return int(text or "") if digits.isascii() and digits.isdigit() and len(digits) < 19 else None


def _time(text: str | None) -> str | None:
    """Microseconds since the epoch as views write times; milliseconds will do."""
    us = _number(text)
    try:
        return None if us is None else _moment((_EPOCH + timedelta(microseconds=us)).isoformat())
    except OverflowError:
        return None


def _moment(value: Any) -> str | None:
    """A time of a view's row, in UTC and with milliseconds however it was written."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return moment.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
