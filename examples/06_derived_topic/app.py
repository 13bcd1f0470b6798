"""A topic made from a topic: PySpark columns between, each record once."""

from pyspark.sql import functions as F

from headrace import App

app = App("large-orders")

orders = app.stream(
    "orders",
    schema="order_id string, region string, amount double, placed_at timestamp",
    event_time="placed_at",
)


@app.topic("large-orders", key="order_id")
def large_orders():
    """Orders of more than 1,000, with tax."""
    return (
        orders.where(F.col("amount") > 1000)
        .with_columns(tax=F.round(F.col("amount") * 0.19, 2))
        .select("order_id", "region", "amount", "tax")
    )
