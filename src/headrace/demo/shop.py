"""A small shop: what `headrace demo` runs. An ordinary application file."""

import os

from headrace import App, agg, hopping, session, sliding, tumbling
from headrace.derived import search

app = App("shop")

orders = app.stream(
    "shop.orders",
    schema="order_id string, customer_id string, region string, product string, quantity long, "
    "amount double, placed_at timestamp",
    event_time="placed_at",
    lateness="10 seconds",
    late="correct",  # stragglers correct what was published
)

clicks = app.stream(
    "shop.clicks",
    schema="visitor string, page string, clicked_at timestamp",
    event_time="clicked_at",
    lateness="10 seconds",  # later ones are counted, and kept in shop.late
)

searches = app.stream(
    "shop.searches",
    schema="search_id string, visitor string, term string, found long, searched_at timestamp",
    event_time="searched_at",
    lateness="10 seconds",
)

payments = app.stream(
    "shop.payments",
    schema="payment_id string, card string, ok boolean, paid_at timestamp, sent_at timestamp",
    event_time="paid_at",
    sent_at="sent_at",  # some terminals' clocks are wrong; the log's is not
    lateness="2 seconds",
)

# Customers live in a database, which the demo changes while it runs: a SQLite file, or a PostgreSQL.
database = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")
customers = app.table(
    "customers",
    source=app.capture(database, table="customers", name="shop"),
    valid_from="changed_at",  # else from when the database committed it
)
app.follow(
    customers,
    into=search(
        os.environ.get("SHOP_SEARCH", "sqlite:///search.db"), "customers", fields=["name", "tier", "city"]
    ),
)

posts = app.table("shop.posts", key="post_id", schema="post_id string, author string, text string")
follows = app.table("shop.follows", key=["follower", "author"], schema="follower string, author string")


@app.view
def revenue_per_minute():
    """Revenue of each region, minute by minute, corrected when stragglers come."""
    return orders.window(tumbling("1 minute"), by="region", emit="update").agg(
        revenue=agg.sum("amount"), orders=agg.count()
    )


@app.view
def best_sellers():
    """Pieces of each product sold in ten minutes, updated every minute."""
    return orders.window(hopping("10 minutes", every="1 minute"), by="product", emit="update").agg(
        sold=agg.sum("quantity")
    )


@app.view
def visits():
    """Clicks of a visitor that are at most a minute apart."""
    return clicks.window(session("1 minute"), by="visitor").agg(
        pages=agg.count(), landed_on=agg.first("page"), left_from=agg.last("page")
    )


@app.view
def failed_payments():
    """For each failed payment, how many of the card failed in the minute up to it."""
    return payments.where("not ok").window(sliding("1 minute"), by="card").agg(failures=agg.count())


@app.view
def searches_per_minute():
    """What people look for, and how often they find nothing."""
    return (
        searches.with_columns(nothing="if(found = 0, 1, 0)")
        .window(tumbling("1 minute"), by="term", emit="update")
        .agg(searches=agg.count(), in_vain=agg.sum("nothing"))
    )


@app.view(key="order_id")
def orders_of_customers():
    """Orders with the customer's tier and city as they were when the order was placed."""
    return orders.join(customers, on="customer_id", how="left").select(
        "order_id", "customer_id", "tier", "city", "amount", "placed_at"
    )


@app.view(key="search_id")
def abandoned_searches():
    """Searches after which the visitor did not click on anything for half a minute."""
    return (
        searches.join(clicks, on="visitor", how="left", after="30 seconds")
        .where("page is null")
        .select("search_id", "visitor", "term", "searched_at")
    )


@app.view
def customers_per_tier():
    """How many customers there are in each tier: the count goes down as well as up."""
    return customers.group_by("tier").agg(customers=agg.count())


@app.view(key=["follower", "post_id"])
def timelines():
    """What each member of the forum sees: the posts of those whom the member follows."""
    return follows.join(posts, on="author").select("follower", "post_id", "author", "text")


@app.topic("shop.large-orders", key="order_id")
def large_orders():
    """Orders that somebody should look at."""
    return orders.where("amount > 1000").select("order_id", "region", "product", "quantity", "amount")


app.webhook(
    "shop.large-orders",
    url="env:SHOP_WEBHOOK_URL",
    secret="env:SHOP_WEBHOOK_SECRET",
    allow="127.0.0.0/8",  # in the demonstration, the receiver is on this machine
)
app.email(
    "shop.large-orders",
    to="owner@shop.example",
    subject="{quantity} x {product} for {amount}",
    smtp="env:SHOP_SMTP",
)
