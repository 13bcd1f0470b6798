"""Every route of the console, and every part of what the page follows live.

A route module has `ROUTES`, a tuple of `Route`. It may have `SCHEMAS`, the shapes that
they name, and `LIVE`, a dictionary from a name to a `LivePart`: what it adds to the
events of `GET /v1/live`.
"""

from headrace.console import (
    asides,
    audit_page,
    changes,
    dead_letters,
    groups,
    ingest,
    live,
    metrics,
    pages,
    pipelines,
    records,
    rows,
    service,
    topics_admin,
    views,
)
from headrace.console.routing import LivePart, Route
from headrace.console.schemas import Schema

__all__ = ["LIVE", "ROUTES", "SCHEMAS"]

MODULES = (
    service,
    topics_admin,
    ingest,
    records,
    groups,
    views,
    rows,
    changes,
    pipelines,
    dead_letters,
    asides,
    audit_page,
    live,
    metrics,
    pages,
)

ROUTES: tuple[Route, ...] = tuple(route for module in MODULES for route in module.ROUTES)
LIVE: dict[str, LivePart] = {
    name: part for module in MODULES for name, part in getattr(module, "LIVE", {}).items()
}
SCHEMAS: dict[str, Schema] = {
    name: schema for module in MODULES for name, schema in getattr(module, "SCHEMAS", {}).items()
}
