"""The current contents of the shop's views, as lines for a terminal."""

from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import takewhile
from typing import Any

from headrace.views import Condition, Order, ViewChange, ViewStore

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
        _orders_of_customers,
        _abandoned_searches,
        _customers_per_tier,
        _timelines,
    )
    return filter(None, (line(store, now) for line in lines))


def correction(change: ViewChange) -> str:
    """A published result that has been corrected."""
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
    """Of the ten minutes that end with the current one."""
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


def _orders_of_customers(store: ViewStore, now: datetime) -> str:
    before = Condition("placed_at", "<=", now)
    rows = _rows(store, "orders_of_customers", "placed_at", descending=True, first=before)
    return _line(rows, "orders of customers", lambda row: f"{row['tier'] or 'unknown'} {row['amount']:,.2f}")


def _abandoned_searches(store: ViewStore, now: datetime) -> str:
    before = Condition("searched_at", "<=", now)
    rows = _rows(store, "abandoned_searches", "searched_at", descending=True, first=before)
    return _line(rows, "searches that led to nothing", lambda row: f"{row['visitor']} {row['term']}")


def _customers_per_tier(store: ViewStore, now: datetime) -> str:
    del now
    rows = _rows(store, "customers_per_tier", "customers", descending=True)
    return _line(rows, "customers by tier", lambda row: f"{row['tier']} {row['customers']:,}")


def _timelines(store: ViewStore, now: datetime) -> str:
    """Of the first member, whoever that is."""
    del now
    rows = _rows(store, "timelines", "follower")
    rows = [row for row in rows if row["follower"] == rows[0]["follower"]]
    title = f"timeline of {rows[0]['follower']}" if rows else ""
    return _line(rows, title, lambda row: f"{row['author']}: {row['text']}")


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
