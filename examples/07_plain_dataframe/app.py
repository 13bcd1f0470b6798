"""Spark's own operators: `.df` is the plain streaming DataFrame, and a view accepts one."""

from pyspark.sql import functions as F

from headrace import App

app = App("plain")

orders = app.stream(
    "orders",
    schema="order_id string, region string, amount double, placed_at timestamp",
    event_time="placed_at",
)


@app.view(key="region")
def orders_by_region():
    """All orders so far."""
    return orders.df.where("_corrupt is null").groupBy("region").agg(F.count("*").alias("orders"))
