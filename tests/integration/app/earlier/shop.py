"""An application, and what earlier versions wrote about it: `manifests.json` beside this file."""

from pyspark.sql import functions as F  # noqa: N812 - the name PySpark's users know

from headrace import App, agg, hopping, session, tumbling


class Product:
    """A user's own aggregate."""

    columns = ("amount",)

    def __init__(self, limit=2):
        self.limit = limit

    def state_types(self, inputs):
        return list(inputs)

    def result_type(self, inputs):
        return inputs[0]

    def partial(self, inputs, groups):
        return [groups.aggregate(inputs[0], "product")]

    def merge(self, states, groups):
        return [groups.aggregate(states[0], "product")]

    def finish(self, states):
        return states[0]


def is_known(place):
    return place is not None


def earlier_app(size="1 minute", least=1, limit=2):
    """What the earlier version ran, where nothing is said."""
    app = App("shop")
    orders = app.stream(
        "orders", schema="place string, amount double, at long", event_time="at", lateness="5 seconds"
    )
    known = orders.where(F.udf(is_known, "boolean")(F.col("place")) & (F.col("amount") > least))

    @app.view
    def per_place():
        return known.window(tumbling(size), by="place").agg(
            n=agg.count(), total=agg.sum("amount"), most=agg.max("amount"), own=agg.custom(Product(limit))
        )

    @app.view
    def sessions():
        half = orders.with_columns(half=F.col("amount") / 2, places=F.expr("upper(place)"))
        return (
            half.select("places", "half")
            .window(session("30 seconds"), by="places")
            .agg(last=agg.last("half"), all=agg.collect("half", limit=3), off=agg.stddev("half"))
        )

    @app.view
    def hops():
        return orders.window(hopping("1 minute", every="10 seconds")).agg(mean=agg.mean("amount"))

    app.view(name="last_order", key="place")(lambda: orders)
    places = app.table("places", key="place", schema="place string, region string")

    @app.view
    def per_region():
        located = known.join(places, on="place", how="left").where("region is not null")
        return located.window(tumbling(size), by="region").agg(n=agg.count(), own=agg.custom(Product(limit)))

    @app.view
    def regions():
        return places.where(F.col("region") != "").group_by("region").agg(n=agg.count())

    return app
