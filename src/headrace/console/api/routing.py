"""A route: what it is called, who may use it, what it takes, what it answers, and what it does.

Handlers are coroutines of a `Call`, whose parameters are parsed and checked already, and
return a response. What they raise becomes a problem in `server/app.py`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from headrace.console.api.parameters import Parameter
from headrace.console.context import ConsoleContext
from headrace.console.problems import Problem, ProblemError
from headrace.console.security import Principal, Role

__all__ = ["Call", "LivePart", "Route", "RouteBody", "RouteHandler", "RouteResponse", "json_response"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request on its way through a handler.

    `given` has the parameters of path and query by name, defaults included. `body` is
    the whole body, bounded by `max_body_bytes`. `notes` is for what the audit record of
    a change should tell beyond its path: the handler adds to it, never secrets.
    `refusal` says why the caller may no longer do this, at the moment it is called;
    None as long as they may.
    """

    request: Request
    context: ConsoleContext
    principal: Principal
    given: Mapping[str, Any]
    refusal: Callable[[], Problem | None]
    body: bytes = b""
    notes: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    def check_still_allowed(self) -> None:
        """Raises ProblemError once the token was removed, or has a role that is not enough.

        For whatever outlives the moment in which the request was let in.
        """
        refusal = self.refusal()
        if refusal is not None:
            raise ProblemError.of(refusal)

    def json(self) -> Any:
        """The body as JSON; raises ProblemError with 415 or 400."""
        kind = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise ProblemError(415, f"the content type of the body is {kind or 'missing'}, not JSON")
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise ProblemError(400, f"the body is not JSON: {error}", kind="bad-body") from None

    def json_object(self) -> dict[str, Any]:
        """The body as a JSON object; raises ProblemError."""
        found = self.json()
        if not isinstance(found, dict):
            raise ProblemError(400, "the body must be a JSON object", kind="bad-body")
        return found

    def wants(self, media_type: str) -> bool:
        """Whether the Accept header names this very type."""
        accepted = self.request.headers.get("accept", "").lower().split(",")
        return any(each.partition(";")[0].strip() == media_type for each in accepted)


RouteHandler = Callable[[Call], Awaitable[Response]]
SocketHandler = Callable[[Call, WebSocket], Awaitable[None]]
LivePart = Callable[[ConsoleContext], Awaitable[Any]]
"""What `GET /v1/live` sends each second under one name; see `routes`."""


@dataclass(frozen=True, slots=True)
class RouteBody:
    """What a route takes: the name of its schema, and further media types with theirs."""

    schema: str
    help: str = ""
    media_types: tuple[str, ...] = ("application/json",)
    required: bool = True


@dataclass(frozen=True, slots=True)
class RouteResponse:
    """What a route answers with one status: in words, and the name of a schema by media type."""

    help: str
    schema: str | None = None
    media_type: str = "application/json"
    others: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One entry of the table.

    `others` lets the query have parameters of any name. `socket` serves the same path as
    a WebSocket. Every route that is no GET is a change and leaves an audit record,
    unless `audited` is False. `tag` is the chapter of the documentation.
    """

    method: str
    path: str
    role: Role
    handler: RouteHandler
    summary: str
    tag: str
    answers: Mapping[int, RouteResponse]
    parameters: tuple[Parameter, ...] = ()
    others: bool = False
    body: RouteBody | None = None
    socket: SocketHandler | None = None
    audited: bool = True

    @property
    def changes(self) -> bool:
        return self.method != "GET"


def json_response(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response with JSON that no cache keeps."""
    body = orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)
    return Response(body, status, headers=dict(headers or {}), media_type="application/json")
