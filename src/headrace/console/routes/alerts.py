"""Alerts over HTTP, and for Prometheus."""

from collections.abc import Iterator
from typing import Any

from starlette.responses import Response

from headrace.console.api import (
    Call,
    LivePart,
    Route,
    RouteResponse,
    Schema,
    array,
    json_response,
    object_of,
    ref,
    string,
)
from headrace.console.ask.alerts import active_alerts
from headrace.console.context import ConsoleContext
from headrace.console.security import Role
from headrace.metrics import Family

__all__ = ["LIVE", "ROUTES", "SCHEMAS", "alert_families"]


async def get_alerts(call: Call) -> Response:
    return json_response({"alerts": await live_alerts(call.context)})


async def live_alerts(context: ConsoleContext) -> Any:
    return await context.workers.run(active_alerts, context)


def alert_families(context: ConsoleContext) -> Iterator[Family]:
    """The alerts for Prometheus: 1 for each that is active. Blocks."""
    samples = [
        ("", (("kind", each["kind"]), ("subject", each["subject"])), 1.0) for each in active_alerts(context)
    ]
    yield Family("headrace_alert", "gauge", "1 while an alert is active.", samples)


LIVE: dict[str, LivePart] = {"alerts": live_alerts}

_NUMBER: Schema = {"type": "number"}

SCHEMAS: dict[str, Schema] = {
    "Alert": object_of(
        {
            "id": string(),
            "kind": string("late, dead-letters, lag, query, driver, near-retention or fell-off"),
            "subject": string(),
            "severity": string(enum=["critical", "warning"]),
            "title": string(),
            "detail": string(),
            "next": string("What to do."),
            "value": _NUMBER,
            "threshold": _NUMBER,
            "since": {"type": "number", "description": "Seconds since the epoch."},
        }
    ),
    "Alerts": object_of({"alerts": array(ref("Alert"))}),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/alerts",
        role=Role.READER,
        tag="alerts",
        summary="Active alerts: what needs attention now",
        handler=get_alerts,
        answers={200: RouteResponse("The active alerts.", "Alerts")},
    ),
)
