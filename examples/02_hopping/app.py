"""Best sellers: the last ten minutes, every minute. Hopping windows overlap, so an order counts in ten."""

from headrace import App, agg, hopping

app = App("bestsellers")

orders = app.stream(
    "orders",
    schema="order_id string, product string, quantity long, placed_at timestamp",
    event_time="placed_at",
    lateness="10 seconds",
)


@app.view
def best_sellers():
    """Pieces sold of each product in the ten minutes that end at each full minute."""
    return orders.window(hopping("10 minutes", every="1 minute"), by="product").agg(
        sold=agg.sum("quantity"), orders=agg.count()
    )
