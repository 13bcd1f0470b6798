"""A rebuilt view beside the one that is shown: what differs, and the decision to show it."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from headrace.console.api import (
    ANYTHING,
    Call,
    Parameter,
    Route,
    RouteBody,
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
from headrace.console.context import ConsoleContext
from headrace.console.problems import ProblemError
from headrace.console.routes.views.views import VIEW
from headrace.console.security import Role
from headrace.errors import RequestError
from headrace.views.rebuilt import HoldState, Rebuilds

__all__ = ["LIVE", "ROUTES", "SCHEMAS"]


async def get_rebuilt(call: Call) -> Response:
    return json_response(await call.context.workers.run(_rebuilt, call.context, call["view"], call["limit"]))


async def post_switch(call: Call) -> Response:
    """Decides; the process that keeps the view carries it out."""
    wanted = call.json_object().get("rebuild")
    call.notes.update(rebuild=wanted)
    await call.context.workers.run(_switch, call.context, call["view"], wanted)
    return json_response({"view": call["view"], "rebuild": wanted, "state": "switching"}, 202)


async def live_rebuilds(context: ConsoleContext) -> Mapping[str, str]:
    """The views that are being rebuilt to be compared, and how far each is."""
    return await context.workers.run(_states, context)


# --- these block ---------------------------------------------------------------------------------


def _rebuilt(context: ConsoleContext, view: str, limit: int) -> dict[str, Any]:
    context.application.view(view)
    found = _rebuilds(context).read(view)
    if found is None:
        raise _none_waits(view)
    compared = None if found.comparison is None else found.comparison.to_json()
    if compared is not None:
        compared = {**compared, "differences": compared["differences"][:limit]}
    return {"view": view, "rebuild": found.query_id, "state": _state(found), "comparison": compared}


def _switch(context: ConsoleContext, view: str, wanted: object) -> None:
    context.application.view(view)
    rebuilds = _rebuilds(context)
    if rebuilds.read(view) is None:
        raise _none_waits(view)
    context.application.check_is_original()
    if not isinstance(wanted, str) or not wanted:
        raise ProblemError(
            400,
            "the body does not say which rebuild is to be shown",
            f'send {{"rebuild": …}} with the rebuild from GET /v1/views/{view}/rebuilt',
            kind="bad-body",
        )
    try:
        rebuilds.approve(view, wanted)
    except RequestError as error:
        raise ProblemError(
            409, str(error), f"read /v1/views/{view}/rebuilt again, and decide then", kind="not-compared"
        ) from None


def _states(context: ConsoleContext) -> dict[str, str]:
    if context.application.path is None:
        return {}
    rebuilds = _rebuilds(context)
    found = {view: rebuilds.read(view) for view in rebuilds.views()}
    return {view: _state(each) for view, each in found.items() if each is not None}


def _rebuilds(context: ConsoleContext) -> Rebuilds:
    path = context.application.path
    assert path is not None, "only an application has views"
    return Rebuilds(path)


def _state(found: HoldState) -> str:
    if found.comparison is None:
        return "rebuilding"
    return "switching" if found.is_approved else "waiting"


def _none_waits(view: str) -> ProblemError:
    return ProblemError(
        404,
        f"no rebuild of view {view!r} is compared",
        f"begin one with `headrace run FILE --rebuild-view {view} --compare`",
        kind="no-rebuild",
    )


# --- the table -----------------------------------------------------------------------------------

_STATE = string(
    "`rebuilding` until the rows are compared, `waiting` for a decision, `switching` until they are shown.",
    enum=["rebuilding", "waiting", "switching"],
)
_ROW = nullable(mapping(ANYTHING))

SCHEMAS: dict[str, Schema] = {
    "RowDifference": object_of(
        {"key": mapping(ANYTHING), "shown": _ROW, "rebuilt": _ROW},
        description="A key whose rows differ; null where there is no row.",
    ),
    "Comparison": object_of(
        {
            "view": string(),
            "shown_rows": integer(),
            "rebuilt_rows": integer(),
            "changed": integer("Keys with another row."),
            "added": integer("Keys that only the rebuilt view has."),
            "removed": integer("Keys that only the shown view has."),
            "differences": array(ref("RowDifference"), "The first of them."),
            "columns": string("How the columns differ; empty if they do not."),
            "shown_at": ref("Offsets"),
            "rebuilt_at": ref("Offsets"),
        }
    ),
    "RebuiltView": object_of(
        {
            "view": string(),
            "rebuild": string("Which rebuild this is."),
            "state": _STATE,
            "comparison": nullable(ref("Comparison")),
        }
    ),
    "RebuildChosen": object_of({"rebuild": string("The rebuild whose comparison was read.")}),
    "RebuildSwitched": object_of({"view": string(), "rebuild": string(), "state": _STATE}),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/views/{view}/rebuilt",
        role=Role.READER,
        tag="views",
        summary="A rebuilt view that is held back, compared with the one that is shown",
        handler=get_rebuilt,
        parameters=(
            VIEW,
            Parameter(
                name="limit",
                kind="integer",
                default=100,
                minimum=0,
                maximum=1_000,
                help="Maximum number of differences.",
            ),
        ),
        answers={
            200: RouteResponse("What differs; null while it is being rebuilt.", "RebuiltView"),
            404: RouteResponse("There is no such view, or no rebuild of it is compared."),
        },
    ),
    Route(
        method="POST",
        path="/v1/views/{view}/switch",
        role=Role.ADMIN,
        tag="views",
        summary="Show a rebuilt view in place of the old one",
        handler=post_switch,
        parameters=(VIEW,),
        body=RouteBody("RebuildChosen", "Which one: what was compared is what is shown."),
        answers={
            202: RouteResponse(
                "It is shown as soon as the process that keeps the view notices.", "RebuildSwitched"
            ),
            404: RouteResponse("There is no such view, or no rebuild of it is compared."),
            409: RouteResponse("It is still being rebuilt, or another rebuild has taken its place."),
        },
    ),
)

LIVE = {"rebuilds": live_rebuilds}
