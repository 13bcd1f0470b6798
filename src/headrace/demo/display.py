"""What the demonstration shows while it runs: a live table on a terminal, plain lines elsewhere."""

import sys
import threading
import time
from collections.abc import Mapping
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.demo.orders import Totals

__all__ = ["Display", "money"]

_SHOWN_MINUTES = 12


class Display:
    """Says what happens, with the seconds since the start; may be called from any thread."""

    def __init__(self, *, live: bool | None = None) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._produced = 0
        self._minutes: Mapping[str, Totals] = {}
        self._console = Console(highlight=False)
        use_live = sys.stdout.isatty() if live is None else live
        self._live = Live(console=self._console, refresh_per_second=8) if use_live else None

    def say(self, text: str) -> None:
        """One line, which stays."""
        with self._lock:
            line = f"{time.monotonic() - self._began:6.1f} s  {text}"
            self._console.print(line, markup=False, soft_wrap=True)

    def produced(self, count: int) -> None:
        """How many orders the log has acknowledged so far."""
        self._produced = count
        if self._live is None and not self._minutes:  # from then on, the batches tell
            self.say(f"produced {count:,} orders")
        self._refresh()

    def counted(self, batch_id: int, minutes: Mapping[str, Totals]) -> None:
        """What the table holds after a micro-batch."""
        self._minutes = minutes
        if self._live is None:
            orders, cents = total(minutes)
            self.say(
                f"batch {batch_id}: {orders:,} of {self._produced:,} orders are in SQLite, "
                f"{money(cents)} in {len(minutes)} minutes"
            )
        self._refresh()

    def result(self, minutes: Mapping[str, Totals]) -> None:
        """The whole table, at the end."""
        self._stop_live()
        self._console.print(_table(minutes))

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_live()

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.update(Text(""))
            self._live.stop()

    def _refresh(self) -> None:
        if self._live is not None:
            newest = dict(sorted(self._minutes.items())[-_SHOWN_MINUTES:])
            orders, _ = total(self._minutes)
            text = Text(f"produced {self._produced:,} orders, counted {orders:,}")
            self._live.update(Group(_table(newest), text))


def total(minutes: Mapping[str, Totals]) -> Totals:
    """The sum over all minutes."""
    return Totals(sum(each.orders for each in minutes.values()), sum(each.cents for each in minutes.values()))


def money(cents: int) -> str:
    return f"{cents // 100:,}.{cents % 100:02d}"


def _table(minutes: Mapping[str, Totals]) -> Table:
    table = Table("minute", box=None, pad_edge=False)
    table.add_column("orders", justify="right")
    table.add_column("revenue", justify="right")
    for minute, (orders, cents) in sorted(minutes.items()):
        table.add_row(minute, f"{orders:,}", money(cents))
    return table
