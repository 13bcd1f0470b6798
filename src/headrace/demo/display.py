"""The output of the demo, for people or for programs; may be used from any thread."""

import json
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.demo.checks import OUTCOMES, ViewVerdict

__all__ = ["Display", "ViewSpeed"]

_COLUMNS = ("rows", "on time", "corrected", "dropped", "filtered", "dead letters")


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSpeed:
    """Events per second since the query started, and seconds from the log into the view."""

    events_per_s: float
    median_s: float | None
    worst_s: float | None


class Display:
    """Lines with the seconds since the start, and a table at the end; with `as_json`, one object per line."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._began = time.monotonic()
        self._as_json = as_json
        self._lock = threading.Lock()
        self._console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    def say(self, text: str, event: str = "message", **fields: Any) -> None:
        """One line; programs also get the event and its fields."""
        with self._lock:
            if self._as_json:
                self._write({"seconds": round(self.seconds, 2), "event": event, "text": text, **fields})
            else:
                self._console.print(f"{self.seconds:6.1f} s  {text}", markup=False, soft_wrap=True)

    def block(self, lines: Iterable[str], event: str) -> None:
        """Lines that belong together, with one time."""
        listed = list(lines)
        if not listed:
            return
        if self._as_json:
            self.say(listed[0], event, lines=listed)
            return
        self.say(listed[0])
        with self._lock:
            for line in listed[1:]:
                self._console.print(f"          {line}", markup=False, soft_wrap=True)

    def verdicts(self, verdicts: Sequence[ViewVerdict], speeds: Mapping[str, ViewSpeed]) -> None:
        """The table of results."""
        with self._lock:
            if self._as_json:
                self._write(
                    {"event": "table", "views": [_data(each, speeds[each.view]) for each in verdicts]}
                )
            else:
                self._console.print(_table(verdicts, speeds))

    def _write(self, data: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(data) + "\n")
        sys.stdout.flush()


def _data(verdict: ViewVerdict, speed: ViewSpeed) -> dict[str, Any]:
    return {
        "view": verdict.view,
        "rows": verdict.rows,
        **{name: verdict.counters.get(name, 0) for name in OUTCOMES},
        "events_per_s": round(speed.events_per_s, 1),
        "freshness_s": speed.median_s,
        "freshness_worst_s": speed.worst_s,
        "different": verdict.different,
        "failure": verdict.failure,
    }


def _table(verdicts: Sequence[ViewVerdict], speeds: Mapping[str, ViewSpeed]) -> Table:
    table = Table("view", box=None, pad_edge=False)
    for name in (*_COLUMNS, "events/s", "freshness", "worst", "verdict"):
        table.add_column(name, justify="right")
    for each in verdicts:
        speed = speeds[each.view]
        counts = [f"{each.counters.get(name, 0):,}" for name in OUTCOMES]
        times = [f"{speed.events_per_s:,.0f}", _seconds(speed.median_s), _seconds(speed.worst_s)]
        word = _word(each)
        table.add_row(each.view, f"{each.rows:,}", *counts, *times, word)
    return table


def _word(verdict: ViewVerdict) -> str:
    if verdict.failure is not None:
        return "failed"
    return f"{verdict.different:,} rows differ" if verdict.different else "equal"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"
