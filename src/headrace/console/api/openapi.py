"""The OpenAPI document, made from the table of routes. Pure."""

from collections.abc import Iterable
from typing import Any

from headrace import __version__
from headrace.console.api.parameters import Parameter
from headrace.console.api.routing import Route, RouteResponse
from headrace.console.api.schemas import ref
from headrace.console.problems import MEDIA_TYPE
from headrace.console.security import Role

__all__ = ["document"]

_TYPES = {
    "string": {"type": "string"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
}
_ALWAYS = {
    400: "The request is invalid.",
    401: "Authentication is required.",
    403: "This may not be done by this principal, or not from that page.",
    404: "Not found.",
    421: "The Host header does not name this console.",
    503: "The log is unreachable, or the console is overloaded; try again.",
}


_WITH_BODY = {
    408: "The body was not received in time.",
    413: "The body is too large.",
    415: "Unsupported content type.",
}


def document(routes: Iterable[Route], schemas: dict[str, Any]) -> dict[str, Any]:
    """OpenAPI 3.1 of all routes but the page's files."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if route.tag != "page":
            paths.setdefault(_path(route), {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headrace console",
            "version": __version__,
            "description": "Topics, groups, views and pipelines of one log; errors are RFC 9457 problems.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _path(route: Route) -> str:
    """Without the word that lets a part hold slashes, which they write as %2F."""
    return route.path.replace(":path}", "}")


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": f"{route.method.lower()}{''.join(_word(part) for part in _path(route).split('/'))}",
        "summary": route.summary,
        "description": f"Requires the role {route.role.name.lower()}." if route.role > Role.NOBODY else "",
        "tags": [route.tag],
        "parameters": [_parameter(each) for each in route.parameters],
        "responses": _responses(route),
    }
    if route.body is not None:
        content = {kind: {"schema": ref(route.body.schema)} for kind in route.body.media_types}
        operation["requestBody"] = {
            "required": route.body.required,
            "description": route.body.help,
            "content": content,
        }
    return operation


def _word(part: str) -> str:
    return "".join(each.capitalize() for each in part.strip("{}").replace(".", "-").split("-"))


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any] = dict(_TYPES[parameter.kind])
    limits = {"minimum": parameter.minimum, "maximum": parameter.maximum, "default": parameter.default}
    schema.update({name: value for name, value in limits.items() if value is not None})
    if parameter.choices:
        schema["enum"] = list(parameter.choices)
    if parameter.repeated:
        schema = {"type": "array", "items": schema}
    described = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required or parameter.place == "path",
        "description": parameter.help,
        "schema": schema,
    }
    return described if parameter.example is None else {**described, "example": parameter.example}


def _responses(route: Route) -> dict[str, Any]:
    usual = _ALWAYS if route.body is None else _ALWAYS | _WITH_BODY
    answers = {status: RouteResponse(text) for status, text in usual.items()} | dict(route.answers)
    return {str(status): _answer(status, each) for status, each in sorted(answers.items())}


def _answer(status: int, answer: RouteResponse) -> dict[str, Any]:
    """A failure without a shape of its own is a problem."""
    content: dict[str, Any] = {}
    if answer.schema is not None:
        content[answer.media_type] = {"schema": ref(answer.schema)}
    elif status >= 400:
        content[MEDIA_TYPE] = {"schema": ref("Problem")}
    content |= {kind: {"schema": ref(name)} for kind, name in answer.others.items()}
    return {"description": answer.help, **({"content": content} if content else {})}
