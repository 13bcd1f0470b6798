"""`GET /metrics`: the console's own numbers, and those of the application and its views, for Prometheus."""

from collections.abc import Iterator
from typing import Any

from starlette.responses import Response

from headrace.app.status import AppStatus, is_running, read_status
from headrace.console.asides import alert_families
from headrace.console.routing import Answer, Call, Route
from headrace.console.security import Role
from headrace.console.surroundings import Surroundings
from headrace.console.views import moving
from headrace.errors import HeadraceError
from headrace.metrics import CONTENT_TYPE, Family, render

__all__ = ["ROUTES"]

Samples = list[tuple[str, tuple[tuple[str, str], ...], float]]


async def metrics(call: Call) -> Response:
    text = await call.here.workers.run(lambda: render(families(call.here)))
    return Response(text.encode(), headers={"Content-Type": CONTENT_TYPE})


def families(here: Surroundings) -> Iterator[Family]:
    """Everything; what cannot be read is left out. Blocks."""
    yield from here.http.families()
    yield Family(
        "headrace_console_subscribers", "gauge", "Subscriptions that are open.", [("", (), here.subscribers)]
    )
    if here.data is None:
        return
    yield Family(
        "headrace_driver_running",
        "gauge",
        "Whether the application runs.",
        [("", (), float(is_running(here.data)))],
    )
    status = read_status(here.data)
    if status is not None:
        yield from _of_queries(status)
    yield from alert_families(here)
    try:
        yield from _of_views(moving(here))
    except HeadraceError:
        return


def _of_queries(status: AppStatus) -> Iterator[Family]:
    def samples(name: str, scale: float = 1.0) -> Samples:
        values = [(query, getattr(each, name)) for query, each in status.queries.items()]
        return [("", (("query", query),), value * scale) for query, value in values if value is not None]

    yield Family("headrace_query_records_total", "counter", "Records a query has read.", samples("records"))
    yield Family("headrace_query_batch_seconds", "gauge", "Time of the last batch.", samples("batch_seconds"))
    yield Family("headrace_query_restarts_total", "counter", "Restarts of a query.", samples("restarts"))
    yield Family(
        "headrace_query_watermark_seconds",
        "gauge",
        "Event-time watermark, as seconds since the epoch.",
        samples("watermark_us", 1e-6),
    )


def _of_views(views: list[dict[str, Any]]) -> Iterator[Family]:
    events: Samples = [
        ("", (("view", view["name"]), ("outcome", outcome)), float(count))
        for view in views
        for outcome, count in (view["books"] or {}).items()
    ]
    yield Family("headrace_view_events_total", "counter", "Events by what became of them.", events)
    for name, field, text in (
        ("headrace_view_freshness_seconds", "freshness_s", "Wait of the oldest record that is not in it."),
        ("headrace_view_lag_records", "lag_records", "Offsets that are not in it."),
        ("headrace_view_sequence", "sequence", "Number of its newest change."),
    ):
        samples: Samples = [
            ("", (("view", view["name"]),), float(view[field])) for view in views if view[field] is not None
        ]
        yield Family(name, "gauge", text, samples)


ROUTES = (
    Route(
        method="GET",
        path="/metrics",
        role=Role.READER,
        tag="service",
        summary="Numbers for Prometheus",
        handler=metrics,
        answers={200: Answer("Prometheus' text format.", "Text", media_type="text/plain")},
    ),
)
