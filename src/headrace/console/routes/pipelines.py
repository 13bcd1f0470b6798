"""The application over HTTP: its graph with what moves in it, samples of its nodes, and rebuilding it."""

from typing import Any

from starlette.responses import Response

from headrace.app.status import is_running
from headrace.console.api import (
    Call,
    LivePart,
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
from headrace.console.ask.pipeline import pipeline_watch, sample_of_node
from headrace.console.context import ConsoleContext
from headrace.console.problems import ProblemError
from headrace.console.security import Role

__all__ = ["LIVE", "ROUTES", "SCHEMAS"]


async def get_pipelines(call: Call) -> Response:
    return json_response(await pipeline_watch(call.context).look())


async def live_pipelines(context: ConsoleContext) -> Any:
    return await pipeline_watch(context).look()


async def live_driver(context: ConsoleContext) -> Any:
    """Whether the application runs; None where this console knows of none."""
    if context.application.path is None:
        return None
    return {"running": await context.workers.run(is_running, context.application.path)}


async def get_sample(call: Call) -> Response:
    return json_response(
        await call.context.workers.run(sample_of_node, call.context, call["node"], call["limit"])
    )


# --- rebuilding ----------------------------------------------------------------------------------


async def post_rebuild(call: Call) -> Response:
    """Asks the driver for it; how far it is stands in `GET /v1/pipelines`."""
    app = await call.context.workers.run(call.context.application.description)
    if app is None:
        raise ProblemError(404, "this console has no application", "start it with --data DIR")
    if call.json_object().get("confirm") != app.app:
        raise ProblemError(
            400,
            "a rebuild reads the whole log again, and must be confirmed",
            f'send {{"confirm": "{app.app}"}}',
            kind="not-confirmed",
        )
    assert call.context.application.path is not None
    if not await call.context.workers.run(is_running, call.context.application.path):
        raise ProblemError(
            409,
            f"{app.app} is not running",
            f"start it with: headrace run {app.file or 'FILE'} --rebuild",
            kind="no-driver",
        )
    call.context.command("rebuild", who=call.principal.name)
    return json_response({"application": app.app, "asked": True}, 202)


LIVE: dict[str, LivePart] = {"pipelines": live_pipelines, "driver": live_driver}

_NUMBER: Schema = {"type": "number"}
_ANY_OBJECT: Schema = {"type": "object"}
_POSITIONS = mapping(integer(), "Next offsets by partition.")
_PUT_MS = "The longest that a bucket's state took to be put into an object store, in the last batch."
_TIME = nullable({"type": "number", "description": "Seconds since the epoch."})

SCHEMAS: dict[str, Schema] = {
    "Node": object_of(
        {
            "id": string(),
            "kind": string("topic, query, step, window, join, table, group, view or hook"),
            "name": string("Name of the topic, query, view or hook; for a step, of its view."),
            "label": string("What it does."),
            "state": nullable(string("starting, running, restarting, rebuilding, failed or stopped")),
            "records_per_s": nullable({**_NUMBER, "description": "Average over ten seconds; null at first."}),
            "watermark": nullable(string("Event-time watermark.", format="date-time")),
            "delay_s": nullable(
                {**_NUMBER, "description": "How long the oldest unprocessed record has waited."}
            ),
            "lag_records": nullable(integer()),
            "batch_seconds": nullable(_NUMBER),
            "buckets": nullable(integer("Of a query: over so many its state is spread.")),
            "tasks": nullable(integer("Of a query: so many tasks work on its state at a time.")),
            "put_ms": nullable({**_NUMBER, "description": _PUT_MS}),
            "state_rows": nullable(integer("Rows that an operator keeps.")),
            "state_bytes": nullable(integer("Bytes that they take in the checkpoint.")),
            "state_skew": nullable(
                {**_NUMBER, "description": "Rows of the largest bucket, against the median bucket."}
            ),
            "state_oldest": nullable(string("Event time of the oldest of them.", format="date-time")),
            "stage": nullable(integer("The stage of a dataflow's operator.")),
            "why": string("What the planner fused or split here, and why."),
            "error": nullable(string()),
        }
    ),
    "Query": object_of(
        {
            "name": string(),
            "state": nullable(string()),
            "batch_id": integer(),
            "records": integer("Read since the driver started, or since the rebuild began."),
            "batch_records": integer("In the last batch."),
            "batch_seconds": nullable(_NUMBER),
            "records_per_s": _NUMBER,
            "watermark": nullable(string(format="date-time")),
            "restarts": integer(),
            "error": nullable(string("Of the last failure.")),
            "positions": _POSITIONS,
            "buckets": integer("Over so many the state is spread."),
            "tasks": integer("So many tasks work on it at a time."),
            "put_ms": nullable({**_NUMBER, "description": _PUT_MS}),
            "updated_at": {"type": "number", "description": "Seconds since the epoch."},
        }
    ),
    "Rebuild": object_of(
        {
            "began_at": {"type": "number", "description": "Seconds since the epoch."},
            "done_at": _TIME,
            "targets": mapping(_POSITIONS, "The positions that each query must reach."),
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
            "cluster": nullable(
                object_of({"master": string(), "executors": integer(), "cores": integer("Tasks at a time.")})
            ),
            "queries": array(ref("Query")),
            "rebuild": nullable(ref("Rebuild")),
            "messages": array(object_of({"at": _NUMBER, "text": string()})),
            "alerts": array(_ANY_OBJECT),
        }
    ),
    "Sample": object_of(
        {
            "node": string(),
            "of": string("The node that the rows belong to."),
            "rows": array(_ANY_OBJECT, "Rows of a view, or records of a topic, newest first."),
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
        summary="The application: its graph, its queries, and messages from the driver",
        handler=get_pipelines,
        answers={200: RouteResponse("The application; null if there is none.", "Pipelines")},
    ),
    Route(
        method="GET",
        path="/v1/pipelines/nodes/{node:path}/sample",
        role=Role.READER,
        tag="pipelines",
        summary="The newest rows or records of a node",
        handler=get_sample,
        parameters=(
            Parameter(name="node", place="path", help="Id of the node.", example="view:revenue"),
            Parameter(name="limit", help="How many.", kind="integer", default=20, minimum=1, maximum=1_000),
        ),
        answers={
            200: RouteResponse("Rows.", "Sample"),
            404: RouteResponse("There is no such node, or it has no rows."),
        },
    ),
    Route(
        method="POST",
        path="/v1/pipelines/rebuild",
        role=Role.ADMIN,
        tag="pipelines",
        summary="Rebuild all views from the log, while the old ones are served",
        handler=post_rebuild,
        body=RouteBody("RebuildConfirmed"),
        answers={
            202: RouteResponse("Requested; see `rebuild` in GET /v1/pipelines.", "RebuildAsked"),
            404: RouteResponse("There is no application."),
            409: RouteResponse("The application is not running, or this console was started on its own."),
        },
    ),
)
