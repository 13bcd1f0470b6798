"""A topic made from a topic, each record once, and a view that reads it: two stages in one application."""

from pyspark.sql import functions as F

from headrace import App, agg, tumbling

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
        .select("order_id", "region", "amount", "tax", "placed_at")
    )


large = app.stream(
    "large-orders",
    schema="region string, tax double, placed_at timestamp",
    event_time="placed_at",
    lateness="1 minute",
)


@app.view
def tax_per_minute():
    """Large orders and their tax, from the first order on."""
    return large.window(tumbling("1 minute"), by="region", emit="update").agg(
        tax=agg.sum("tax"), orders=agg.count()
    )
