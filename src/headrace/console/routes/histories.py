"""Entities over HTTP: which there are, what happened to one, and its state at every step.

Personal fields stay sealed. States are made by the application's code, in a process of its own.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any

from starlette.responses import Response

from headrace.app.status import AppDescription
from headrace.console.api import (
    ANYTHING,
    Call,
    Parameter,
    Route,
    RouteResponse,
    Schema,
    array,
    format_rfc3339,
    integer,
    json_response,
    nullable,
    object_of,
    ref,
    string,
)
from headrace.console.context import ConsoleContext
from headrace.console.problems import ProblemError
from headrace.console.security import Role
from headrace.nearest import no_such
from headrace.sourcing import Event, Topics, list_entities, read_events

__all__ = ["ROUTES", "SCHEMAS"]

_PAGE, _MOST = 100, 1_000


async def get_types(call: Call) -> Response:
    described = await call.context.workers.run(call.context.application.description)
    return json_response({"types": [] if described is None else [_type(each) for each in described.entities]})


async def get_entities(call: Call) -> Response:
    found = await call.context.workers.run(_entities, call.context, call["type"])
    wanted = [(name, version) for name, version in found.items() if name.startswith(call["prefix"] or "")]
    behind = [each for each in wanted if each[0] > (call["after"] or "")]
    page = [{"entity": name, "version": version} for name, version in islice(behind, call["limit"])]
    following = page[-1]["entity"] if len(behind) > len(page) else None
    return json_response({"type": call["type"], "entities": page, "count": len(wanted), "next": following})


async def get_history(call: Call) -> Response:
    events = await call.context.workers.run(_events, call.context, call["type"], call["id"])
    version = events[-1].version if events else 0
    last = min(call["to"] or version, version)
    first = max(1, last - call["limit"] + 1) if call["from"] is None else call["from"]
    last = min(last, first + call["limit"] - 1)
    page = [each.to_json() for each in events if first <= each.version <= last]
    if call["states"] and page:
        page = (await _with_states(call, first, last))["events"]
    topic = Topics.of(_described(call.context, call["type"]).app, call["type"]).events
    found = {"type": call["type"], "entity": call["id"], "version": version, "topic": topic, "events": page}
    return json_response(found)


async def get_state(call: Call) -> Response:
    if call["version"] is not None and call["time"] is not None:
        raise ProblemError(400, "give a version or a time, not both", kind="bad-parameter")
    events = await call.context.workers.run(_events, call.context, call["type"], call["id"])
    if not events:
        raise ProblemError(404, f"nothing has happened to {call['type']} {call['id'][:100]!r}")
    last = events[-1].version
    if call["version"] is not None and call["version"] > last:
        raise ProblemError(404, f"there is no version {call['version']}; the last is {last}")
    when = ["show"]
    if call["version"] is not None:
        when = ["at", "--version", str(call["version"])]
    if call["time"] is not None:
        when = ["at", "--time", str(format_rfc3339(call["time"]))]
    return json_response(await _ask(call, *when))


async def _with_states(call: Call, first: int, last: int) -> Any:
    return await _ask(call, "history", "--states", "--from", str(first), "--to", str(last))


async def _ask(call: Call, command: str, *options: str) -> Any:
    """What `headrace entity` says of the entity that the call names."""
    file = await call.context.workers.run(call.context.application.file)
    flags = ["--json", "--sealed", "--bootstrap", call.context.connection.bootstrap_servers]
    return await call.context.states.ask(
        "entity", command, *options, *flags, "--", file, call["type"], call["id"]
    )


# --- these block ---------------------------------------------------------------------------------


def _entities(context: ConsoleContext, entity_type: str) -> dict[str, int]:
    described = _described(context, entity_type)
    return list_entities(context.connection, described.app, entity_type)


def _events(context: ConsoleContext, entity_type: str, entity: str) -> list[Event]:
    described = _described(context, entity_type)
    return read_events(context.connection, Topics.of(described.app, entity_type), entity_type, entity)


def _described(context: ConsoleContext, entity_type: str) -> AppDescription:
    """The application, which has such a type; raises ProblemError with 404."""
    described = context.application.description()
    types = [] if described is None else [each["type"] for each in described.entities]
    if described is None or entity_type not in types:
        raise ProblemError(404, no_such("entity type", entity_type[:100], types))
    return described


def _type(described: Mapping[str, Any]) -> dict[str, Any]:
    personal = {*described.get("personal", {}), *_with_personal(described["commands"])}
    return {"type": described["type"], "commands": sorted(described["commands"]), "personal": bool(personal)}


def _with_personal(commands: Mapping[str, Any]) -> list[str]:
    return [name for name, each in commands.items() if each.get("personal")]


# --- the table -----------------------------------------------------------------------------------

_TYPE = Parameter(name="type", place="path", help="Type of the entity.")
_ID = Parameter(name="id", place="path", help="Id of the entity.")
_LIMIT = Parameter(
    name="limit",
    kind="integer",
    default=_PAGE,
    minimum=1,
    maximum=_MOST,
    help="Maximum entries in a page.",
)

SCHEMAS: dict[str, Schema] = {
    "EntityTypes": object_of(
        {
            "types": array(
                object_of(
                    {
                        "type": string(),
                        "commands": array(string()),
                        "personal": {
                            "type": "boolean",
                            "description": "It has personal fields.",
                        },
                    }
                )
            )
        }
    ),
    "EntityList": object_of(
        {
            "type": string(),
            "entities": array(object_of({"entity": string(), "version": integer("How many events it has.")})),
            "count": integer("How many there are in all."),
            "next": nullable(string("Pass it as `after`; null on the last page.")),
        }
    ),
    "EntityEvent": object_of(
        {
            "version": integer("Which event of the entity it is."),
            "type": string(),
            "data": ANYTHING,
            "at": string("When the command was carried out."),
            "by": nullable(string("Who sent the command.")),
            "command": object_of({"id": string(), "name": nullable(string())}),
            "cause": nullable(string()),
            "correlation": nullable(string()),
            "partition": integer("Where the event is on the log."),
            "offset": integer(),
        }
    ),
    "EntityHistory": object_of(
        {
            "type": string(),
            "entity": string(),
            "version": integer("The entity's version now; 0 if nothing has happened to it."),
            "topic": string("The topic of its events."),
            "events": array(ref("EntityEvent")),
        }
    ),
    "EntityState": object_of(
        {"type": string(), "entity": string(), "version": integer("After so many events."), "state": ANYTHING}
    ),
}

_NEEDS_CODE = {
    409: RouteResponse("The application's file is not on this machine."),
    422: RouteResponse("The application's code could not answer; `detail` says why."),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1/entities",
        role=Role.READER,
        tag="entities",
        summary="The entity types of the application, and their commands",
        handler=get_types,
        answers={200: RouteResponse("All types.", "EntityTypes")},
    ),
    Route(
        method="GET",
        path="/v1/entities/{type}",
        role=Role.READER,
        tag="entities",
        summary="The entities of a type, by id",
        handler=get_entities,
        parameters=(
            _TYPE,
            Parameter(name="prefix", help="Only ids that begin with this."),
            Parameter(name="after", help="`next` of the page before."),
            _LIMIT,
        ),
        answers={200: RouteResponse("A page of entities.", "EntityList")},
    ),
    Route(
        method="GET",
        path="/v1/entities/{type}/{id:path}/history",
        role=Role.READER,
        tag="entities",
        summary="The events of an entity: what happened, when, by whom and by which command",
        handler=get_history,
        parameters=(
            _TYPE,
            _ID,
            Parameter(
                name="states",
                kind="boolean",
                default=False,
                help="Also `state` after each event, and the fields that it `changed`.",
            ),
            Parameter(name="from", kind="integer", minimum=1, help="From this version on."),
            Parameter(name="to", kind="integer", minimum=1, help="Up to this version."),
            _LIMIT,
        ),
        answers={200: RouteResponse("Its events, oldest first.", "EntityHistory"), **_NEEDS_CODE},
    ),
    Route(
        method="GET",
        path="/v1/entities/{type}/{id:path}/state",
        role=Role.READER,
        tag="entities",
        summary="The state of an entity: now, at a version, or at a time",
        handler=get_state,
        parameters=(
            _TYPE,
            _ID,
            Parameter(name="version", kind="integer", minimum=0, help="After so many events."),
            Parameter(name="time", kind="time", help="After the events up to this time."),
        ),
        answers={200: RouteResponse("Its state.", "EntityState"), **_NEEDS_CODE},
    ),
)
