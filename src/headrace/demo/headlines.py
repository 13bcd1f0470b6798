"""What is in the shop's views right now, as lines for a terminal."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import takewhile
from typing import Any

from headrace.views import Change, Condition, Order, ViewStore

__all__ = ["correction", "headlines"]

Rows = list[dict[str, Any]]
_SHOWN = 4
_ENOUGH = 100


def headlines(store: ViewStore, now: datetime) -> Iterator[str]:
    """A line for each view that has something to show."""
    lines: tuple[Callable[[ViewStore, datetime], str], ...] = (
        _revenue,
        _best_sellers,
        _searches,
        _failed_payments,
        _visits,
    )
    return filter(None, (line(store, now) for line in lines))


def correction(change: Change) -> str:
    """A published result that was taken back and put right."""
    was = "nothing" if change.before is None else f"{change.before['revenue']:,.2f}"
    now = "nothing" if change.after is None else f"{change.after['revenue']:,.2f}"
    minute = str(change.key["window_start"])[11:16]
    return f"corrected: revenue of {change.key['region']} at {minute} was {was} and is {now}"


def _revenue(store: ViewStore, now: datetime) -> str:
    del now
    rows = _newest_window(store, "revenue_per_minute")
    rows.sort(key=lambda row: -row["revenue"])
    return _line(rows, "revenue of the minute", lambda row: f"{row['region']} {row['revenue']:,.2f}")


def _best_sellers(store: ViewStore, now: datetime) -> str:
    """Of the ten minutes that end with the present one."""
    rows = _rows(store, "best_sellers", "window_end", first=Condition("window_end", ">", now))
    rows = _of_first(rows)
    rows.sort(key=lambda row: -row["sold"])
    return _line(rows, "best sellers of ten minutes", lambda row: f"{row['product']} {row['sold']:,}")


def _searches(store: ViewStore, now: datetime) -> str:
    del now
    rows = _newest_window(store, "searches_per_minute")
    rows.sort(key=lambda row: -row["searches"])
    return _line(rows, "searches of the minute", lambda row: f"{row['term']} {row['searches']:,}")


def _failed_payments(store: ViewStore, now: datetime) -> str:
    del now
    rows = _rows(store, "failed_payments", "window_end", descending=True)
    rows = sorted({row["card"]: row for row in reversed(rows)}.values(), key=lambda row: -row["failures"])
    return _line(rows, "payments failed within a minute", lambda row: f"{row['card']} {row['failures']:,}")


def _visits(store: ViewStore, now: datetime) -> str:
    del now
    rows = _rows(store, "visits", "window_end", descending=True)
    return _line(rows, "visits that ended", lambda row: f"{row['visitor']} {row['pages']:,} pages")


def _line(rows: Rows, title: str, show: Callable[[dict[str, Any]], str]) -> str:
    return f"{title}: {' · '.join(show(row) for row in rows[:_SHOWN])}" if rows else ""


def _newest_window(store: ViewStore, view: str) -> Rows:
    return _of_first(_rows(store, view, "window_end", descending=True))


def _of_first(rows: Rows) -> Rows:
    return list(takewhile(lambda row: row["window_end"] == rows[0]["window_end"], rows))


def _rows(
    store: ViewStore, view: str, by: str, *, descending: bool = False, first: Condition | None = None
) -> Rows:
    where = () if first is None else (first,)
    found: Rows = store.read(view, where=where, order=[Order(by, descending)], limit=_ENOUGH).to_pylist()
    return found
