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

from typing import TYPE_CHECKING

from headrace.exports import lazily

if TYPE_CHECKING:
    from headrace.app.application import App as App
    from headrace.app.application import View as View
    from headrace.app.loading import import_app as import_app
    from headrace.app.loading import load_app as load_app
    from headrace.app.operations import Operations as Operations
    from headrace.app.options import RunOptions as RunOptions
    from headrace.app.options import data_place as data_place
    from headrace.app.plain_frame import reading_from as reading_from
    from headrace.app.projected import projection_starts as projection_starts
    from headrace.app.projected import request_rebuilds as request_rebuilds
    from headrace.app.relation import Grouped as Grouped
    from headrace.app.relation import Relation as Relation
    from headrace.app.relation import Table as Table
    from headrace.app.stream import Aggregation as Aggregation
    from headrace.app.stream import Stream as Stream
    from headrace.app.stream import Windowed as Windowed

__getattr__, __dir__, __all__ = lazily(
    __name__,
    {
        "application": "App View",
        "loading": "import_app load_app",
        "operations": "Operations",
        "options": "RunOptions data_place",
        "plain_frame": "reading_from",
        "projected": "projection_starts request_rebuilds",
        "relation": "Grouped Relation Table",
        "stream": "Aggregation Stream Windowed",
    },
)
