"""A small shop: what `headrace demo` runs. An ordinary application file; run it yourself with

headrace run src/headrace/demo/shop.py
"""

from headrace import App, agg, hopping, session, sliding, tumbling

app = App("shop")

orders = app.stream(
    "shop.orders",
    schema="order_id string, region string, product string, quantity long, amount double, "
    "placed_at timestamp",
    event_time="placed_at",
    lateness="20 seconds",
    late="correct",
    correct_for="1 hour",
)

clicks = app.stream(
    "shop.clicks",
    schema="visitor string, page string, clicked_at timestamp",
    event_time="clicked_at",
    lateness="20 seconds",
)

payments = app.stream(
    "shop.payments",
    schema="payment_id string, card string, ok boolean, paid_at timestamp, sent_at timestamp",
    event_time="paid_at",
    sent_at="sent_at",  # the terminals' clocks are wrong; the log's is not
    lateness="2 seconds",
)


@app.view
def revenue_per_minute():
    """Revenue of each region, minute by minute, corrected when stragglers come."""
    return orders.window(tumbling("1 minute"), by="region").agg(revenue=agg.sum("amount"), orders=agg.count())


@app.view
def best_sellers():
    """Pieces of each product sold in the last ten minutes."""
    return orders.window(hopping("10 minutes", every="1 minute"), by="product").agg(sold=agg.sum("quantity"))


@app.view
def visits():
    """Clicks of a visitor that are at most two minutes apart."""
    return clicks.window(session("2 minutes"), by="visitor").agg(
        pages=agg.count(), landed_on=agg.first("page")
    )


@app.view
def failed_payments():
    """For each failed payment, how many of the card failed in the ten seconds up to it."""
    return payments.where("not ok").window(sliding("10 seconds"), by="card").agg(failures=agg.count())


@app.topic("shop.large-orders", key="order_id")
def large_orders():
    """Orders that somebody should look at."""
    return orders.where("amount > 180").select("order_id", "region", "amount")
