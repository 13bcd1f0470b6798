"""Headrace's side of `memory.py`: the application of one case.

    python memory_ours.py CASE BOOTSTRAP DATA [RECORDS]

Runs to the end of the log, and then prints every view. To follow the log, it is told how many records
a micro-batch takes (0: as many as there are), and ends when its input does; for each line of it, a
number, it says when it has read so many records in all.
"""

import json
import sys
import threading
from dataclasses import replace
from pathlib import Path

from headrace import App, agg, tumbling
from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.app.status.batch_report import BatchReport

CUSTOMERS = "customer string, region string, changed_at long"
ORDERS = "order_id string, customer string, amount long, placed_at long"


def hot_key(app: App) -> None:
    """A customer who places a third of all orders: as of their time, grouped, and ranked."""
    orders = app.stream("orders", schema=ORDERS, event_time="placed_at", idle_after="10 minutes")
    customers = app.table(
        "customers", key="customer", schema=CUSTOMERS, valid_from="changed_at", idle_after="10 minutes"
    )

    @app.view
    def by_region() -> object:
        joined = orders.join(customers, on="customer")
        return joined.group_by("region").agg(n=agg.count(), total=agg.sum("amount"))

    @app.view(key="order_id")
    def largest() -> object:
        return orders.top(3, by="amount", per="customer")


def large_table(app: App) -> None:
    """Orders that change, by the region of their customer, which changes, too."""
    orders = app.table("orders", key="order_id", schema=ORDERS)
    customers = app.table("customers", key="customer", schema=CUSTOMERS)

    @app.view
    def by_region() -> object:
        joined = orders.join(customers, on="customer", how="left")
        return joined.group_by("region").agg(n=agg.count(), total=agg.sum("amount"))


def far_behind(app: App) -> None:
    """Many searches and a quarter as many clicks, so that equal batches of both drift apart in time."""
    searches, clicks = _searches_and_clicks(app)

    @app.view
    def per_minute() -> object:
        found = searches.join(clicks, on="search", after="30 seconds")
        return found.window(tumbling("1 minute"), by="word").agg(n=agg.count())


def steady(app: App) -> None:
    """A join of streams, one with a table whose rows change, and groups and windows behind them."""
    searches, clicks = _searches_and_clicks(app)
    customers = app.table(
        "customers", key="customer", schema=CUSTOMERS, valid_from="changed_at", history="5 minutes"
    )
    orders = app.stream("orders", schema=ORDERS, event_time="placed_at")

    @app.view
    def per_minute() -> object:
        found = searches.join(clicks, on="search", how="left", after="30 seconds")
        return found.window(tumbling("1 minute"), by="word").agg(n=agg.count(), clicked=agg.count("click"))

    @app.view
    def by_region() -> object:
        joined = orders.join(customers, on="customer", how="left")
        return joined.group_by("region").agg(n=agg.count(), total=agg.sum("amount"))


def _searches_and_clicks(app: App) -> tuple[object, object]:
    searches = app.stream("searches", schema="search string, word string, at long", event_time="at")
    clicks = app.stream(
        "clicks", schema="click string, search string, clicked_at long", event_time="clicked_at"
    )
    return searches, clicks


APPLICATIONS = {"hot key": hot_key, "large table": large_table, "far behind": far_behind, "steady": steady}


class Reading:
    """How many records have been read, and a wait for more."""

    def __init__(self) -> None:
        self._records = 0
        self._changed = threading.Condition()

    def on_batch(self, report: BatchReport) -> None:
        with self._changed:
            self._records += report.records
            self._changed.notify_all()

    def wait(self, records: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._records >= records)


def main() -> None:
    case, bootstrap, data, *follow = sys.argv[1:]
    folder, reading = Path(data), Reading()
    app = App("memory", store=f"parquet:///{folder / 'views'}")
    APPLICATIONS[case](app)
    options = RunOptions(data=folder, bootstrap=bootstrap, until_caught_up=not follow)
    if follow and int(follow[0]):
        options = replace(options, max_records_per_batch=int(follow[0]))
    with running(app, options, on_batch=reading.on_batch) as run:
        print(json.dumps({"ready": True}), flush=True)
        if follow:
            for line in sys.stdin:
                reading.wait(int(line))
                print(json.dumps({"read": int(line)}), flush=True)
        else:
            run.wait()
        views = {name: store.snapshot(name).rows.to_pylist() for name, store in run.stores.items()}
    print(json.dumps(views, default=str), flush=True)


if __name__ == "__main__":
    main()
