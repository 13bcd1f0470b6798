"""What the demonstration says while it runs; may be called from any thread."""

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from headrace.app.sink import BatchReport
from headrace.app.verifying import Verdict
from headrace.views import Change

__all__ = ["Display"]

_EVERY_LINE = 5
_COUNTS = ("on_time", "corrected", "dropped", "filtered", "dead")


class Display:
    """Lines with the seconds since the start, and a table at the end."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
        self._lines = 0
        self.first_result_s: float | None = None

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        """One line."""
        with self._lock:
            self._console.print(f"{self.seconds:6.1f} s  {text}", markup=False, soft_wrap=True)

    def sent(self, progress: Mapping[str, Any]) -> None:
        """What the traffic says of itself."""
        self._lines += 1
        if self.first_result_s is None and self._lines % _EVERY_LINE == 1:
            self.say(f"traffic: {sum(progress['acknowledged'].values()):,} events acknowledged")

    def batch(self, report: BatchReport) -> None:
        """One micro-batch that had records or changed something."""
        changed = [f"{name} {count:,}" for name, count in report.changed.items() if count]
        if not report.records and not changed:
            return
        if changed and self.first_result_s is None:
            self.first_result_s = self.seconds
        self.say(
            f"{report.query}: {report.records:,} records; changed: {', '.join(changed) or 'nothing yet'}"
        )

    def correction(self, change: Change) -> None:
        """A published result that was taken back and put right."""
        assert change.before is not None and change.after is not None
        where = f"{change.key['region']} {change.key['window_start'][11:16]}"
        was, now = change.before["revenue"], change.after["revenue"]
        self.say(f"  corrected: revenue of {where} was {was:,.2f} and is {now:,.2f}")

    def verdicts(self, verdicts: Sequence[Verdict], freshness: Mapping[str, str]) -> None:
        """The table of results."""
        table = Table("view", box=None, pad_edge=False)
        for name in ("rows", *(each.replace("_", " ") for each in _COUNTS), "reflects", "verdict"):
            table.add_column(name, justify="right")
        for each in verdicts:
            counts = [f"{each.reflected.books.get(name, 0):,}" for name in _COUNTS]
            word = "equal" if each.is_equal else f"{len(each.differences):,} rows differ"
            table.add_row(each.view, f"{each.rows:,}", *counts, freshness[each.view], word)
        with self._lock:
            self._console.print(table)
