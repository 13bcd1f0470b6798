"""The routes of the API, a file for each thing it is about, and all of them in one table.

A route module has `ROUTES`, a tuple of `Route`. It may have `SCHEMAS`, the shapes that
they name, and `LIVE`, a dictionary from a name to a `LivePart`: what it adds to the
events of `GET /v1/live`.
"""

from headrace.console.api import LivePart, Route, Schema
from headrace.console.routes import (
    alerts,
    audit,
    captures,
    dead_letters,
    entities,
    groups,
    histories,
    late,
    live,
    metrics,
    page,
    pipelines,
    service,
    traces,
)
from headrace.console.routes.topics import records, topics, writing
from headrace.console.routes.views import changes, rebuilt, rows, views

__all__ = ["LIVE", "ROUTES", "SCHEMAS"]

_MODULES = (
    service,
    topics,
    writing,
    records,
    groups,
    views,
    rows,
    changes,
    rebuilt,
    pipelines,
    entities,
    histories,
    traces,
    captures,
    dead_letters,
    late,
    alerts,
    audit,
    live,
    metrics,
    page,
)

ROUTES: tuple[Route, ...] = tuple(route for module in _MODULES for route in module.ROUTES)
LIVE: dict[str, LivePart] = {
    name: part for module in _MODULES for name, part in getattr(module, "LIVE", {}).items()
}
SCHEMAS: dict[str, Schema] = {
    name: schema for module in _MODULES for name, schema in getattr(module, "SCHEMAS", {}).items()
}
