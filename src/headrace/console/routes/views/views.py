"""Views over HTTP: what there is and how fresh it is."""

from typing import Any

from starlette.responses import Response

from headrace.app.status import ViewDescription
from headrace.console.api import (
    Call,
    Parameter,
    Route,
    RouteResponse,
    Schema,
    array,
    integer,
    json_response,
    mapping,
    nullable,
    object_of,
    ref,
    string,
)
from headrace.console.ask.view_state import view_status, view_statuses
from headrace.console.context import ConsoleContext
from headrace.console.security import Role

__all__ = ["LIVE", "ROUTES", "SCHEMAS", "VIEW"]

VIEW = Parameter(name="view", place="path", help="Name of the view.", example="revenue_per_minute")


async def get_views(call: Call) -> Response:
    return json_response({"views": await call.context.workers.run(_all, call.context)})


async def get_view(call: Call) -> Response:
    return json_response(await call.context.workers.run(_one, call.context, call["view"]))


async def live_views(context: ConsoleContext) -> list[dict[str, Any]]:
    """The status of all views, for `GET /v1/live`."""
    return await context.workers.run(view_statuses, context)


# --- these block ---------------------------------------------------------------------------------


def _all(context: ConsoleContext) -> list[dict[str, Any]]:
    views = context.application.views()
    statuses = {each["name"]: each for each in view_statuses(context)}
    return [_described(each) | statuses[name] for name, each in views.items() if name in statuses]


def _one(context: ConsoleContext, name: str) -> dict[str, Any]:
    view = context.application.view(name)
    return _described(view) | view_status(context, view)


def _described(view: ViewDescription) -> dict[str, Any]:
    return {
        "name": view.name,
        "doc": view.doc,
        "kind": view.kind,
        "window": view.window,
        "stream": view.stream,
        "topic": view.topic,
        "query": view.query,
        "history_s": None if view.history_us is None else view.history_us / 1_000_000,
        "key": list(view.key),
        "columns": [{"name": name, "type": kind} for name, kind in view.columns.items()],
    }


# --- the table -----------------------------------------------------------------------------------

_STATUS: dict[str, Schema] = {
    "name": string(),
    "sequence": nullable(integer("Number of the newest change.")),
    "reflected": nullable(ref("Reflected")),
    "watermark": nullable(string("Event-time watermark.", format="date-time")),
    "counters": nullable(mapping(integer(), "Counts since the query began.")),
    "freshness_s": nullable(
        {"type": "number", "description": "How long the oldest record that is not in the view has waited."}
    ),
    "lag_records": nullable(integer("Offsets that are not in the view yet.")),
    "token": nullable(string("What the view reflects, as a token.")),
    "problem": nullable(string("Why its status is unknown.")),
}

SCHEMAS: dict[str, Schema] = {
    "Reflected": object_of(
        {
            "query_id": nullable(string()),
            "batch_id": integer("-1 before the first batch."),
            "offsets": ref("Offsets"),
            "watermark": nullable(string(format="date-time")),
            "counters": mapping(integer()),
            "inputs": mapping(
                mapping(integer()), "Of a view over several topics, these counts by input; empty otherwise."
            ),
        }
    ),
    "View": object_of(
        {
            **_STATUS,
            "doc": string(),
            "kind": string("tumbling, hopping, sliding, session, rows or frame"),
            "window": nullable(string("The window, as text.")),
            "stream": nullable(string("The topic it reads.")),
            "topic": nullable(string("The derived topic, if there is one.")),
            "query": string("The query that maintains the view."),
            "history_s": nullable(
                {"type": "number", "description": "How far back a table can be read with as_of."}
            ),
            "key": array(string()),
            "columns": array(object_of({"name": string(), "type": string()})),
        }
    ),
    "Views": object_of({"views": array(ref("View"))}),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/views",
        role=Role.READER,
        tag="views",
        summary="All views: their contents, the offsets they reflect, their freshness",
        handler=get_views,
        answers={200: RouteResponse("The views.", "Views")},
    ),
    Route(
        method="GET",
        path="/v1/views/{view}",
        role=Role.READER,
        tag="views",
        summary="One view",
        handler=get_view,
        parameters=(VIEW,),
        answers={200: RouteResponse("The view.", "View")},
    ),
)

LIVE = {"views": live_views}
