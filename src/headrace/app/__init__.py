"""The application a user writes: streams, views, derived topics; planning, running and proving it.

    from headrace import App, agg, tumbling

    app = App("shop")
    orders = app.stream("orders", schema="…", event_time="placed_at")

    @app.view
    def revenue_per_minute():
        return orders.window(tumbling("1 minute"), by="region").agg(revenue=agg.sum("amount"))

`running` starts everything that an application needs and ends it in order;
`verify_view` recomputes a view from the log. Declaring an application imports no Spark.
May import `views`, `streams` and below.
"""

from headrace.app.application import App, View
from headrace.app.stream import Aggregation, Stream, Windowed

__all__ = ["Aggregation", "App", "Stream", "View", "Windowed"]
