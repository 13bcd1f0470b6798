"""Commands for entities over HTTP: accepted with version, events and token, or refused with the reason."""

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from headrace.app.status import AppDescription
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
    nullable,
    object_of,
    string,
)
from headrace.console.problems import ProblemError
from headrace.console.security import Role
from headrace.nearest import no_such
from headrace.sourcing import Answer, Command, DescribedKind, FindKeys, Sealing, new_command_id

__all__ = ["ROUTES", "SCHEMAS", "command_paths"]

_LONGEST_WAIT_MS = 60_000


async def post_command(call: Call) -> Response:
    described = await call.context.workers.run(call.context.application.description)
    schema = _command_schema(described, call["type"], call["command"])
    assert described is not None
    sealing = _sealing(described, call["type"], call.context.application.keys)
    data = await call.context.workers.run(
        sealing.seal_command, call["id"], call["command"], call.json_object()
    )
    command = Command(
        entity=call["id"],
        name=call["command"],
        data=data,
        id=call["command_id"] or new_command_id(),
        schema=schema["version"],
        by=call.principal.name,
        cause=call["cause"] or "",
        correlation=call["correlation"] or "",
        expected=call["expected_version"],
    )
    call.notes.update(command=command.id)
    wait_s = call["wait_ms"] / 1000
    answer = await call.context.commands.send(described.app, call["type"], command, wait_s)
    opened = await call.context.workers.run(sealing.open_answer, answer)
    return json_response(_answered(opened).to_json())


def _answered(answer: Answer) -> Answer:
    """The answer to an accepted command; raises ProblemError for others."""
    told = {"command": answer.command, "version": answer.version, "repeated": answer.repeated}
    if answer.outcome == "conflict":
        raise ProblemError(
            409,
            answer.message or "",
            "read the entity again, and decide whether the command still makes sense",
            kind="version-conflict",
            members=told,
        )
    if answer.outcome == "rejected":
        step = "correct the command; the rule says why it was rejected"
        raise ProblemError(
            422, answer.message or "", step, kind="rejected", members={**told, "rule": answer.rule}
        )
    return answer


def _sealing(described: AppDescription, entity_type: str, keys: FindKeys) -> Sealing:
    """How this type's personal fields are sealed."""
    found = next(each for each in described.entities if each["type"] == entity_type)
    return Sealing(DescribedKind.of(found), keys)


def _command_schema(described: AppDescription | None, entity_type: str, name: str) -> Mapping[str, Any]:
    types = {} if described is None else {each["type"]: each["commands"] for each in described.entities}
    if entity_type not in types:
        raise ProblemError(404, no_such("entity type", entity_type[:100], types))
    if name not in types[entity_type]:
        raise ProblemError(404, no_such("command", name[:100], types[entity_type]))
    found: Mapping[str, Any] = types[entity_type][name]
    return found


def command_paths(described: AppDescription | None, generic: Mapping[str, Any]) -> dict[str, Any]:
    """A path of the OpenAPI document for every command of an application, from its types. Pure."""
    paths: dict[str, Any] = {}
    operation = generic["post"]
    kept = [each for each in operation["parameters"] if each["name"] not in ("type", "command")]
    for entity in () if described is None else described.entities:
        for name, each in entity["commands"].items():
            body = {"required": True, "content": {"application/json": {"schema": each["schema"]}}}
            paths[f"/v1/entities/{entity['type']}/{{id}}/commands/{name}"] = {
                "post": {
                    **operation,
                    "operationId": f"{entity['type']}{name}",
                    "summary": f"{name}, for an entity of type {entity['type']}",
                    "parameters": kept,
                    "requestBody": body,
                }
            }
    return paths


SCHEMAS: dict[str, Schema] = {
    "CommandFields": {"type": "object", "description": "The fields of the command."},
    "CommandAnswer": object_of(
        {
            "command": string("The id of the command."),
            "entity": string(),
            "outcome": string(enum=["accepted"]),
            "version": integer("The entity's version, after the command."),
            "events": array(object_of({"type": string(), "version": integer(), "data": ANYTHING})),
            "token": nullable(string("For reads of views, to wait until they reflect the events.")),
            "rule": nullable(string()),
            "message": nullable(string()),
            "repeated": {"type": "boolean", "description": "The command was answered before."},
        }
    ),
}

ROUTES = (
    Route(
        method="POST",
        path="/v1/entities/{type}/{id:path}/commands/{command}",
        role=Role.WRITER,
        handler=post_command,
        summary="Send a command to an entity, and wait for its answer",
        tag="entities",
        parameters=(
            Parameter(name="type", place="path", help="Type of the entity."),
            Parameter(name="id", place="path", help="Id of the entity."),
            Parameter(name="command", place="path", help="Name of the command."),
            Parameter(name="command_id", help="A command is carried out once for each id."),
            Parameter(
                name="expected_version",
                kind="integer",
                minimum=0,
                help="Carry the command out only if this is the entity's version.",
            ),
            Parameter(name="cause", help="What caused the command, for the history."),
            Parameter(name="correlation", help="What the command is part of, for the history."),
            Parameter(
                name="wait_ms",
                kind="integer",
                default=10_000,
                minimum=1,
                maximum=_LONGEST_WAIT_MS,
                help="How long to wait for the answer.",
            ),
        ),
        body=RouteBody("CommandFields", "The fields of the command."),
        answers={
            200: RouteResponse("The command was accepted; its events are on disk.", "CommandAnswer"),
            409: RouteResponse("The expected version is not current."),
            422: RouteResponse("The command was rejected; `rule` says why."),
        },
    ),
)
