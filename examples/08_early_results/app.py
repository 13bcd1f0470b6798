"""Early results: a window is published from its first row on, and again whenever it changes."""

from headrace import App, agg, tumbling

app = App("early")

orders = app.stream(
    "orders",
    schema="order_id string, region string, amount double, placed_at timestamp",
    event_time="placed_at",
    lateness="10 seconds",
)


@app.view
def revenue_so_far():
    """What each region has earned in the minute that still runs, and in the ones before."""
    return orders.window(tumbling("1 minute"), by="region", emit="update").agg(
        revenue=agg.sum("amount"), orders=agg.count()
    )
