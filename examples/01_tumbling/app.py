"""Revenue per minute and region: tumbling windows, stragglers dropped and kept."""

from headrace import App, agg, tumbling

app = App("shop")

orders = app.stream(
    "orders",
    schema="order_id string, region string, amount double, placed_at timestamp",
    event_time="placed_at",
    lateness="10 seconds",
)


@app.view
def revenue_per_minute():
    """What each region earned in each minute."""
    return orders.window(tumbling("1 minute"), by="region").agg(revenue=agg.sum("amount"), orders=agg.count())
