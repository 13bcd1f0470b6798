"""Headrace's side of `joins.py`: an application for each kind of join, run to the end of the log.

Reads requests as JSON lines and answers each with the seconds from the first micro-batch's start
to the last one's end, and the view as a Parquet file.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from peers import micro_batch_seconds

from headrace import App, agg
from headrace.app.options import RunOptions
from headrace.app.run.runner import running
from headrace.streams import local_spark

ORDERS = "order_id long, customer_id long, amount long, placed_at long, line long"
CUSTOMERS = "customer long, region string, changed_at long, version long"


def searches_and_clicks(app: App) -> None:
    searches = app.stream("searches", schema="search long, at long, words string", event_time="at")
    clicks = app.stream(
        "clicks", schema="click long, search_id long, clicked_at long", event_time="clicked_at"
    )

    @app.view(key="click")
    def result() -> object:
        return searches.join(clicks, on={"search": "search_id"}, after="5 seconds").select(
            "click", "search", "words", "clicked_at - at as waited"
        )


def orders_as_of(app: App) -> None:
    orders = app.stream("orders", schema=ORDERS, event_time="placed_at")
    customers = app.table("customers", key="customer", schema=CUSTOMERS, valid_from="changed_at")

    @app.view(key="line")
    def result() -> object:
        return orders.join(customers, on={"customer_id": "customer"}, how="left").select(
            "line", "order_id", "amount", "region"
        )


def orders_and_customers(app: App) -> None:
    orders = app.table("orders", key="order_id", schema=ORDERS)
    customers = app.table("customers", key="customer", schema=CUSTOMERS)

    @app.view(key="order_id")
    def result() -> object:
        return orders.join(customers, on={"customer_id": "customer"}, how="left").select(
            "order_id", "amount", "region"
        )


def customers_by_region(app: App) -> None:
    customers = app.table("customers", key="customer", schema=CUSTOMERS)

    @app.view
    def result() -> object:
        return customers.group_by("region").agg(customers=agg.count(), newest=agg.sum("version"))


APPLICATIONS = {
    "stream-stream": searches_and_clicks,
    "as of": orders_as_of,
    "table-table": orders_and_customers,
    "group": customers_by_region,
}


def answer(request: dict[str, Any]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="headrace-joins-"))
    try:
        app = App("joins", store=f"parquet:///{folder / 'view'}")
        APPLICATIONS[request["kind"]](app)
        options = RunOptions(
            data=folder, bootstrap=request["bootstrap"], until_caught_up=True, max_restarts=0
        )
        with running(app, options) as run:
            run.wait()
            (query,) = run.queries.values()
            progress = query.spark_query.recentProgress
            if request["out"]:
                Path(request["out"]).mkdir(parents=True)
                pq.write_table(
                    run.stores["result"].snapshot("result").rows, Path(request["out"]) / "part.parquet"
                )
            return {
                "seconds": micro_batch_seconds(progress),
                "batches": [{"rows": each["numInputRows"], **each["durationMs"]} for each in progress],
            }
    finally:
        shutil.rmtree(folder)


def main() -> None:
    local_spark("joins", settings={"spark.driver.memory": "4g"})
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
