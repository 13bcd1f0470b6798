"""An application with a view over several topics for each operator, for processes that are killed."""

from headrace import App, agg, tumbling
from headrace.crash_points import STORE_POINTS, WORKER_POINTS

__all__ = ["AROUND", "INSIDE", "TOPICS", "VIEWS", "WORKER_POINTS", "application"]

TOPICS = ("searches", "clicks", "items", "owners")
VIEWS = {
    "outcomes": "sqlite",  # a join of streams
    "priced": "postgresql",  # a stream with a table, as of its time
    "owned": "parquet",  # a join of tables
    "per_region": "sqlite",  # a group over it
    "per_window": "topic",  # windows over a join of streams
}

# The named steps, in the driver: of the sinks, and inside the commit of each store.
AROUND = (*(f"view {name}" for name in VIEWS), "records", "progress", "done")
INSIDE = tuple(
    f"{name}: {step}"
    for name, store in VIEWS.items()
    for step in STORE_POINTS
    if step != "tidied" or store == "parquet"
)


def application(stores: dict[str, str]) -> App:
    """Searches and what was clicked; items that change their price and owner; owners that move."""
    app = App("flows")
    # Nobody is taken for idle: what was late is a matter of the log alone, however long a kill takes.
    common = {"lateness": "2 seconds", "partitions": 2, "idle_after": "10 minutes"}
    fields = "search long, item string, at long"
    searches = app.stream("searches", schema=fields, event_time="at", **common)
    fields = "click long, search long, clicked_at long"
    corrected = {"late": "correct", "correct_for": "5 seconds"}
    clicks = app.stream("clicks", schema=fields, event_time="clicked_at", **corrected, **common)
    fields = "item string, price double, owner long, since long"
    items = app.table("items", key="item", schema=fields, valid_from="since", **corrected, **common)
    owners = app.table("owners", key="owner", schema="owner long, region string", **common)
    owned_items = items.join(owners, on="owner", how="left")

    @app.view(key=["search", "click"], store=stores["sqlite"])
    def outcomes():
        return searches.join(clicks, on="search", how="left", after="5 seconds")

    @app.view(key="search", store=stores["postgresql"])
    def priced():
        return searches.where("search % 10 <> 3").join(items, on="item", how="left")

    @app.view(store=stores["parquet"])
    def owned():
        return owned_items

    @app.view(store=stores["sqlite"])
    def per_region():
        return owned_items.group_by("region").agg(n=agg.count(), total=agg.sum("price"))

    @app.topic("per_window")
    def per_window():
        found = searches.join(clicks, on="search", after="5 seconds").where("click % 10 <> 3")
        return found.window(tumbling("5 seconds"), by="item").agg(n=agg.count(), last=agg.max("click"))

    return app
