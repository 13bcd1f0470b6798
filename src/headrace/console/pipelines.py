"""The application over HTTP: its graph with what moves in it, samples of its nodes, and rebuilding it."""

from typing import Any

from starlette.responses import Response

from headrace.app.status import is_running
from headrace.console.parameters import Parameter
from headrace.console.pipeline_questions import pipeline_watch, sampled
from headrace.console.problems import ProblemError
from headrace.console.routing import Answer, Body, Call, LivePart, Route, json_response
from headrace.console.schemas import Schema, array, integer, mapping, nullable, object_of, ref, string
from headrace.console.security import Role
from headrace.console.surroundings import Surroundings

__all__ = ["LIVE", "ROUTES", "SCHEMAS"]


async def describe_pipelines(call: Call) -> Response:
    return json_response(await pipeline_watch(call.here).look())


async def live_pipelines(here: Surroundings) -> Any:
    return await pipeline_watch(here).look()


async def live_driver(here: Surroundings) -> Any:
    """Whether the application runs; None where this console knows of none."""
    if here.data is None:
        return None
    return {"running": await here.workers.run(is_running, here.data)}


async def sample_node(call: Call) -> Response:
    return json_response(await call.here.workers.run(sampled, call.here, call["node"], call["limit"]))


# --- rebuilding ----------------------------------------------------------------------------------


async def rebuild(call: Call) -> Response:
    """Asks the driver for it; how far it is stands in `GET /v1/pipelines`."""
    app = await call.here.workers.run(call.here.application)
    if app is None:
        raise ProblemError(404, "this console knows no application", "start it with --data DIR")
    if call.json_object().get("confirm") != app.app:
        raise ProblemError(
            400,
            "a rebuild reads the whole log again, and was not confirmed",
            f'send {{"confirm": "{app.app}"}}',
            kind="not-confirmed",
        )
    assert call.here.data is not None
    if not await call.here.workers.run(is_running, call.here.data):
        raise ProblemError(
            409,
            f"{app.app} does not run now",
            f"start it with headrace run {app.file or 'FILE'} --rebuild",
            kind="no-driver",
        )
    call.here.command("rebuild", who=call.principal.name)
    return json_response({"application": app.app, "asked": True}, 202)


LIVE: dict[str, LivePart] = {"pipelines": live_pipelines, "driver": live_driver}

_NUMBER: Schema = {"type": "number"}
_ANY_OBJECT: Schema = {"type": "object"}
_POSITIONS = mapping(integer(), "Next offsets by partition.")
_TIME = nullable({"type": "number", "description": "Seconds since the epoch."})

SCHEMAS: dict[str, Schema] = {
    "Node": object_of(
        {
            "id": string(),
            "kind": string("topic, query, step, window, view or hook"),
            "name": string("Of the topic, query, view or hook; of a step, its view's."),
            "label": string("What it does, in words."),
            "state": nullable(string("starting, running, restarting, rebuilding, failed or stopped")),
            "records_per_s": nullable({**_NUMBER, "description": "Over ten seconds; null at first."}),
            "watermark": nullable(string("Event-time watermark.", format="date-time")),
            "delay_s": nullable({**_NUMBER, "description": "How long the oldest record has waited for it."}),
            "lag_records": nullable(integer()),
            "batch_seconds": nullable(_NUMBER),
            "error": nullable(string()),
        }
    ),
    "Query": object_of(
        {
            "name": string(),
            "state": nullable(string()),
            "batch_id": integer(),
            "records": integer("Read since the driver started, or began to rebuild."),
            "batch_records": integer("In the last batch."),
            "batch_seconds": nullable(_NUMBER),
            "records_per_s": _NUMBER,
            "watermark": nullable(string(format="date-time")),
            "restarts": integer(),
            "error": nullable(string("Of the last failure.")),
            "positions": _POSITIONS,
            "updated_at": {"type": "number", "description": "Seconds since the epoch."},
        }
    ),
    "Rebuild": object_of(
        {
            "began_at": {"type": "number", "description": "Seconds since the epoch."},
            "done_at": _TIME,
            "targets": mapping(_POSITIONS, "Where each query must come to."),
            "progress": nullable({**_NUMBER, "description": "From 0 to 1."}),
        }
    ),
    "Pipelines": object_of(
        {
            "application": nullable(
                object_of(
                    {
                        "name": string(),
                        "file": nullable(string()),
                        "streams": array(_ANY_OBJECT),
                        "hooks": array(object_of({"name": string(), "topic": string()})),
                    }
                )
            ),
            "running": {"type": "boolean"},
            "pid": nullable(integer()),
            "started_at": _TIME,
            "nodes": array(ref("Node")),
            "edges": array(object_of({"from": string(), "to": string()})),
            "queries": array(ref("Query")),
            "rebuild": nullable(ref("Rebuild")),
            "messages": array(object_of({"at": _NUMBER, "text": string()})),
            "alerts": array(_ANY_OBJECT),
        }
    ),
    "Sample": object_of(
        {
            "node": string(),
            "of": string("The node whose rows these are, where that is another."),
            "rows": array(_ANY_OBJECT, "Rows of a view, or records of a topic; newest first."),
        }
    ),
    "RebuildConfirmed": object_of({"confirm": string("The application's name.")}),
    "RebuildAsked": object_of({"application": string(), "asked": {"type": "boolean"}}),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/pipelines",
        role=Role.READER,
        tag="pipelines",
        summary="The application: its graph, its queries, what the driver said",
        handler=describe_pipelines,
        answers={200: Answer("The application; null where this console knows of none.", "Pipelines")},
    ),
    Route(
        method="GET",
        path="/v1/pipelines/nodes/{node:path}/sample",
        role=Role.READER,
        tag="pipelines",
        summary="The newest rows or records of a node",
        handler=sample_node,
        parameters=(
            Parameter(name="node", place="path", help="Id of the node.", example="view:revenue"),
            Parameter(name="limit", help="How many.", kind="integer", default=20, minimum=1, maximum=1_000),
        ),
        answers={200: Answer("Rows.", "Sample"), 404: Answer("There is no such node, or it has no rows.")},
    ),
    Route(
        method="POST",
        path="/v1/pipelines/rebuild",
        role=Role.ADMIN,
        tag="pipelines",
        summary="Build all views anew from the log, while the old ones are served",
        handler=rebuild,
        body=Body("RebuildConfirmed"),
        answers={
            202: Answer("Asked for; see `rebuild` in GET /v1/pipelines.", "RebuildAsked"),
            404: Answer("There is no application."),
            409: Answer("The application does not run, or this console was started by itself."),
        },
    ),
)
