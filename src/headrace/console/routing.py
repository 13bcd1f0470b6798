"""A route: what it is called, who may use it, what it takes, what it answers, and what it does.

Handlers are coroutines of a `Call`, whose parameters are parsed and checked already, and
return a response. What they raise becomes a problem in `app.py`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.websockets import WebSocket

from headrace.console.parameters import Parameter
from headrace.console.problems import ProblemError
from headrace.console.security import Principal, Role

if TYPE_CHECKING:
    from headrace.console.surroundings import Surroundings

__all__ = ["Answer", "Body", "Call", "Handler", "LivePart", "Route", "json_response"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request on its way through a handler.

    `given` has the parameters of path and query by name, defaults included. `body` is
    the whole body, bounded by `max_body_bytes`. `notes` is for what the audit record of
    a change should tell beyond its path: the handler adds to it, never secrets.
    """

    request: Request
    here: "Surroundings"
    principal: Principal
    given: Mapping[str, Any]
    body: bytes = b""
    notes: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.given[name]

    def json(self) -> Any:
        """The body as JSON; raises ProblemError with 415 or 400."""
        kind = self.request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json" and not kind.endswith("+json"):
            raise ProblemError(415, f"the body is {kind or 'of no stated type'}, not JSON")
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


Handler = Callable[[Call], Awaitable[Response]]
SocketHandler = Callable[[Call, WebSocket], Awaitable[None]]
LivePart = Callable[["Surroundings"], Awaitable[Any]]
"""What `GET /v1/live` sends each second under one name; see `table.py`."""


@dataclass(frozen=True, slots=True)
class Body:
    """What a route takes: the name of its schema, and further media types with theirs."""

    schema: str
    help: str = ""
    media_types: tuple[str, ...] = ("application/json",)
    required: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
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
    handler: Handler
    summary: str
    tag: str
    answers: Mapping[int, Answer]
    parameters: tuple[Parameter, ...] = ()
    others: bool = False
    body: Body | None = None
    socket: SocketHandler | None = None
    audited: bool = True

    @property
    def changes(self) -> bool:
        return self.method != "GET"


def json_response(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response with JSON that no cache keeps."""
    body = orjson.dumps(data, option=orjson.OPT_NON_STR_KEYS)
    return Response(body, status, headers=dict(headers or {}), media_type="application/json")
