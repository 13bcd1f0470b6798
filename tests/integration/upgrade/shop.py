"""An application for tests: an earlier version begins it, and this one goes on. Each has what it knows."""

from headrace import App, agg, session, tumbling

app = App("earlier-shop")

orders = app.stream(
    "orders", schema="place string, amount double, at long", event_time="at", lateness="5 seconds"
)


@app.view
def per_place():
    """A window behind a condition."""
    large = orders.where("amount > 1").with_columns(half="amount / 2")
    return large.window(tumbling("1 minute"), by="place").agg(n=agg.count(), half=agg.sum("half"))


@app.view
def visits():
    """Sessions."""
    return orders.window(session("30 seconds"), by="place").agg(most=agg.max("amount"))


@app.topic("earlier-shop.large", key="place")
def large():
    """A topic of rows."""
    return orders.where("amount > 50").select("place", "amount", "at")


if hasattr(app, "table"):
    places = app.table("places", key="place", schema="place string, region string")

    @app.view
    def per_region():
        """A stream with a table, in windows."""
        located = orders.join(places, on="place")
        return located.window(tumbling("1 minute"), by="region").agg(n=agg.count())

    @app.view
    def regions():
        """A table, in groups."""
        return places.group_by("region").agg(n=agg.count())
