"""An application with a view in each kind of store, for processes that are killed."""

from headrace import App, agg, hopping, session, tumbling
from headrace.app.options import RunOptions
from headrace.crash_points import STORE_POINTS, WORKER_POINTS

TOPIC = "readings"
VIEWS = {"per_second": "sqlite", "overlapping": "postgresql", "visits": "parquet", "maxima": "topic"}

# The named steps, in the driver: of the sink, and inside the commit of each store (of which only
# Parquet files are tidied); and in the workers.
AROUND = (*(f"view {name}" for name in VIEWS), "records", "progress", "done")
INSIDE = tuple(
    f"{name}: {step}"
    for name, store in VIEWS.items()
    for step in STORE_POINTS
    if step != "tidied" or store == "parquet"
)


def application(stores: dict[str, str]) -> App:
    """Windows of three kinds, a changelog, and a derived topic whose rows pass through Spark's columns."""
    app = App("crash")
    readings = app.stream(
        TOPIC,
        schema="id long, place string, amount double, at long",
        event_time="at",
        lateness="2 seconds",
        late="correct",
        correct_for="20 seconds",
        idle_after="1 second",
        partitions=3,
    )

    @app.view(store=stores["sqlite"])
    def per_second():
        return readings.window(tumbling("5 seconds"), by="place").agg(n=agg.count(), total=agg.sum("amount"))

    @app.view(store=stores["postgresql"])
    def overlapping():
        every = readings.window(hopping("20 seconds", every="5 seconds"), by="place", emit="update")
        return every.agg(mean=agg.mean("amount"), last=agg.last("id"))

    @app.view(store=stores["parquet"])
    def visits():
        return readings.window(session("3 seconds"), by="place").agg(n=agg.count(), first=agg.first("id"))

    @app.topic("maxima")
    def maxima():
        return readings.window(tumbling("10 seconds"), by="place").agg(highest=agg.max("amount"))

    @app.topic("large", key="place")
    def large():
        return readings.where("amount > 900").select("id", "place", "amount")

    return app


__all__ = ["AROUND", "INSIDE", "TOPIC", "VIEWS", "WORKER_POINTS", "RunOptions", "application"]
