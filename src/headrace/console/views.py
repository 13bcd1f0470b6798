"""Views over HTTP: what there is and how fresh it is."""

from typing import Any

from starlette.responses import Response

from headrace.app.description import ViewDescription
from headrace.console.parameters import Parameter
from headrace.console.routing import Answer, Call, Route, json_response
from headrace.console.schemas import Schema, array, integer, mapping, nullable, object_of, ref, string
from headrace.console.security import Role
from headrace.console.surroundings import Surroundings
from headrace.console.tokens import encode_token
from headrace.console.view_state import ViewState, ends_of, lag_of, look, reflected_to_json
from headrace.errors import HeadraceError, RetriableError

__all__ = ["LIVE", "ROUTES", "SCHEMAS", "VIEW", "moving"]

VIEW = Parameter(name="view", place="path", help="Name of the view.", example="revenue_per_minute")


async def list_views(call: Call) -> Response:
    return json_response({"views": await call.here.workers.run(_all, call.here)})


async def describe_view(call: Call) -> Response:
    return json_response(await call.here.workers.run(_one, call.here, call["view"]))


async def live_views(here: Surroundings) -> list[dict[str, Any]]:
    """What moves of all views, for `GET /v1/live`."""
    return await here.workers.run(moving, here)


# --- these block ---------------------------------------------------------------------------------


def _all(here: Surroundings) -> list[dict[str, Any]]:
    views = here.views()
    moves = {each["name"]: each for each in moving(here)}
    return [_described(each) | moves[name] for name, each in views.items() if name in moves]


def _one(here: Surroundings, name: str) -> dict[str, Any]:
    view = here.view(name)
    return _described(view) | _with_lag(here, {name: (view, _state(here, view))})[0]


def moving(here: Surroundings) -> list[dict[str, Any]]:
    """What moves of every view; one that cannot be read says why."""
    return _with_lag(here, {name: (view, _state(here, view)) for name, view in here.views().items()})


def _state(here: Surroundings, view: ViewDescription) -> ViewState | str:
    """The state of a view, or why it is not known."""
    try:
        return look(here, view)
    except HeadraceError as error:
        return str(error)


def _with_lag(
    here: Surroundings, states: dict[str, tuple[ViewDescription, ViewState | str]]
) -> list[dict[str, Any]]:
    topics = {
        topic
        for _, state in states.values()
        if isinstance(state, ViewState)
        for topic in state.reflected.offsets
    }
    try:
        with here.fetcher() as fetcher:
            ends = ends_of(fetcher, topics) if topics else {}
    except RetriableError:
        ends = {}
    return [_moves(here, name, state, ends) for name, (_, state) in states.items()]


def _moves(
    here: Surroundings, name: str, state: ViewState | str, ends: dict[str, dict[int, int]]
) -> dict[str, Any]:
    if isinstance(state, str):
        return dict.fromkeys(_MOVING) | {"name": name, "problem": state}
    reflected = reflected_to_json(state.reflected)
    known = state.reflected.batch_id >= 0 and state.reflected.offsets.keys() <= ends.keys()
    lag = lag_of(here, state.reflected.offsets, ends) if known else None
    return {
        "name": name,
        "sequence": state.sequence,
        "reflected": reflected,
        "watermark": reflected["watermark"],
        "books": reflected["books"],
        "freshness_s": None if lag is None else round(lag.seconds, 3),
        "lag_records": None if lag is None else lag.records,
        "token": encode_token(state.reflected.offsets),
        "problem": None,
    }


def _described(view: ViewDescription) -> dict[str, Any]:
    return {
        "name": view.name,
        "doc": view.doc,
        "kind": view.kind,
        "window": view.window,
        "stream": view.stream,
        "topic": view.topic,
        "query": view.query,
        "key": list(view.key),
        "columns": [{"name": name, "type": kind} for name, kind in view.columns.items()],
    }


# --- the table -----------------------------------------------------------------------------------

_MOVING: dict[str, Schema] = {
    "name": string(),
    "sequence": nullable(integer("Number of the newest change.")),
    "reflected": nullable(ref("Reflected")),
    "watermark": nullable(string("Event-time watermark.", format="date-time")),
    "books": nullable(mapping(integer(), "What was counted since the query began.")),
    "freshness_s": nullable(
        {"type": "number", "description": "How long the oldest record that is not in it has waited."}
    ),
    "lag_records": nullable(integer("Offsets that are not in it yet.")),
    "token": nullable(string("What it reflects, as a token.")),
    "problem": nullable(string("Why nothing is known of it.")),
}

SCHEMAS: dict[str, Schema] = {
    "Reflected": object_of(
        {
            "query_id": nullable(string()),
            "batch_id": integer("-1 before the first batch."),
            "offsets": ref("Offsets"),
            "watermark": nullable(string(format="date-time")),
            "books": mapping(integer()),
        }
    ),
    "View": object_of(
        {
            **_MOVING,
            "doc": string(),
            "kind": string("tumbling, hopping, sliding, session, rows or frame"),
            "window": nullable(string("The window in words.")),
            "stream": nullable(string("The topic it reads.")),
            "topic": nullable(string("The topic it derives, if it does.")),
            "query": string("The query that keeps it."),
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
        summary="All views: what they hold, what they reflect, how fresh they are",
        handler=list_views,
        answers={200: Answer("The views.", "Views")},
    ),
    Route(
        method="GET",
        path="/v1/views/{view}",
        role=Role.READER,
        tag="views",
        summary="One view",
        handler=describe_view,
        parameters=(VIEW,),
        answers={200: Answer("The view.", "View")},
    ),
)

LIVE = {"views": live_views}
