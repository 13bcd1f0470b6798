"""`GET /metrics`: the console's own numbers, and those of the application and its views, for Prometheus."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from starlette.responses import Response

from headrace.app.status import AppStatus, is_running, read_state, read_status
from headrace.console.api import Call, Route, RouteResponse
from headrace.console.ask.view_state import view_statuses
from headrace.console.context import ConsoleContext
from headrace.console.push import FULL, STALLED, SendBuffers
from headrace.console.routes.alerts import alert_families
from headrace.console.routes.captures import capture_families
from headrace.console.security import Role
from headrace.errors import HeadraceError
from headrace.metrics import CONTENT_TYPE, Family, render

__all__ = ["ROUTES"]

Samples = list[tuple[str, tuple[tuple[str, str], ...], float]]


async def get_metrics(call: Call) -> Response:
    sending = list(sending_families(call.context.send_buffers))
    text = await call.context.workers.run(lambda: render([*sending, *families(call.context)]))
    return Response(text.encode(), headers={"Content-Type": CONTENT_TYPE})


def sending_families(send_buffers: SendBuffers) -> Iterator[Family]:
    """What is on its way to readers; event loop only."""
    yield Family(
        "headrace_console_buffered_bytes",
        "gauge",
        "Bytes that readers have yet to take.",
        [("", (), send_buffers.buffered_bytes())],
    )
    cut: Samples = [("", (("reason", reason),), send_buffers.cut[reason]) for reason in (STALLED, FULL)]
    yield Family(
        "headrace_console_readers_cut_total",
        "counter",
        "Readers cut off: they took nothing for too long, or had waited longest when much was buffered.",
        cut,
    )


def families(context: ConsoleContext) -> Iterator[Family]:
    """Everything; what cannot be read is left out. Blocks."""
    yield from context.http.families()
    yield Family(
        "headrace_console_subscribers",
        "gauge",
        "Subscriptions that are open.",
        [("", (), context.subscriptions.open)],
    )
    with suppress(HeadraceError):
        yield from capture_families(context)
    if context.application.path is None:
        return
    yield Family(
        "headrace_driver_running",
        "gauge",
        "Whether the application runs.",
        [("", (), float(is_running(context.application.path)))],
    )
    status = read_status(context.application.path)
    if status is not None:
        yield from _of_queries(status)
        yield from _of_cluster(status)
    yield from _of_states(context)
    yield from alert_families(context)
    try:
        yield from _of_views(view_statuses(context))
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
    yield Family("headrace_query_tasks", "gauge", "Tasks that work on the state.", samples("tasks"))
    yield Family(
        "headrace_query_state_put_seconds",
        "gauge",
        "The longest that a bucket's state took to be put into an object store in the last batch.",
        samples("put_ms", 1e-3),
    )


def _of_cluster(status: AppStatus) -> Iterator[Family]:
    cluster = status.cluster
    samples: Samples = [] if cluster is None else [("", (), float(cluster.executors))]
    yield Family("headrace_executors", "gauge", "Executors of the Spark cluster.", samples)


def _of_states(context: ConsoleContext) -> Iterator[Family]:
    """What operators keep, as `headrace state` shows it."""
    app, path = context.application.description(), context.application.path
    if app is None or path is None:
        return
    found = [((("query", each.query), ("operator", each.operator)), each) for each in read_state(path, app)]
    sizes: Samples = [("", labels, float(sum(each.bytes.values()))) for labels, each in found]
    yield Family("headrace_state_bytes", "gauge", "Bytes that an operator's state takes.", sizes)
    skews: Samples = [("", labels, each.skew) for labels, each in found if each.skew is not None]
    yield Family(
        "headrace_state_skew",
        "gauge",
        "Rows of an operator's largest bucket, against the median bucket.",
        skews,
    )


def _of_views(views: list[dict[str, Any]]) -> Iterator[Family]:
    events: Samples = [
        ("", (("view", view["name"]), ("outcome", outcome)), float(count))
        for view in views
        for outcome, count in (view["counters"] or {}).items()
    ]
    yield Family("headrace_view_events_total", "counter", "Events by what became of them.", events)
    for name, field, text in (
        (
            "headrace_view_freshness_seconds",
            "freshness_s",
            "How long the oldest record that is not in the view has waited.",
        ),
        ("headrace_view_lag_records", "lag_records", "Offsets that are not in the view."),
        ("headrace_view_sequence", "sequence", "Number of the newest change."),
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
        summary="Metrics for Prometheus",
        handler=get_metrics,
        answers={200: RouteResponse("Prometheus' text format.", "Text", media_type="text/plain")},
    ),
)
