"""What the service is and how it is: `/v1`, `/healthz`, `/openapi.json`, and who is asking."""

from typing import Any

from starlette.responses import Response

from headrace import __version__
from headrace.client.failures import explained
from headrace.console.problems import ProblemError
from headrace.console.routing import Answer, Body, Call, Route, json_response
from headrace.console.schemas import Schema, mapping, nullable, object_of, string
from headrace.console.security import COOKIE, NOBODY, Role
from headrace.console.surroundings import Surroundings
from headrace.errors import HeadraceError

__all__ = ["ROUTES", "SCHEMAS"]

SESSION_S = 12 * 3600
_PROBE_TIMEOUT_S = 2.0


async def service(call: Call) -> Response:
    routes = call.request.app.state.routes
    return json_response(
        {
            "service": "headrace console",
            "version": __version__,
            "bootstrap": call.here.connection.bootstrap_servers,
            "paths": {f"{each.method} {each.path}": each.summary for each in routes if each.tag != "page"},
        }
    )


async def openapi(call: Call) -> Response:
    return json_response(call.request.app.state.openapi)


async def health(call: Call) -> Response:
    found = await call.here.workers.run(_health, call.here)
    return json_response(found, 200 if found["status"] == "ok" else 503)


def _health(here: Surroundings) -> dict[str, Any]:
    try:
        with explained("asking the log", here.connection.bootstrap_servers):
            here.admin().list_topics(timeout=_PROBE_TIMEOUT_S)
        log = "ok"
    except HeadraceError:
        log = "unreachable"
    return {"status": "ok" if log == "ok" else "unhealthy", "log": log, "driver": _driver(here)}


def _driver(here: Surroundings) -> str | None:
    """Whether the application runs now: running or stopped; None where there is none."""
    from headrace.app.status import is_running

    if here.data is None:
        return None
    return "running" if is_running(here.data) else "stopped"


async def session(call: Call) -> Response:
    return json_response(_session(call))


def _session(call: Call) -> dict[str, Any]:
    return {
        "name": call.principal.name,
        "role": call.principal.role.name.lower(),
        "login": "none" if call.here.users is None else "needed" if call.principal is NOBODY else "done",
    }


async def login(call: Call) -> Response:
    """Sets a cookie that holds the token: nothing is kept here, and a removed token ends the session."""
    token = call.json_object().get("token")
    if call.here.users is None:
        raise ProblemError(409, "this console has no users, and needs no login", "go on without")
    if not isinstance(token, str) or call.here.principal(token, by_token=False) is NOBODY:
        raise ProblemError(401, "this is nobody's token", "see that it is copied whole, or ask for a new one")
    principal = call.here.principal(token, by_token=False)
    call.notes["name"] = principal.name
    response = json_response({"name": principal.name, "role": principal.role.name.lower(), "login": "done"})
    response.set_cookie(
        COOKIE,
        token,
        max_age=SESSION_S,
        path="/",
        httponly=True,
        samesite="strict",
        secure=call.request.url.scheme == "https",
    )
    return response


async def logout(_: Call) -> Response:
    response = json_response({"name": NOBODY.name, "role": "nobody", "login": "needed"})
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


SCHEMAS: dict[str, Schema] = {
    "Service": object_of(
        {
            "service": string(),
            "version": string(),
            "bootstrap": string(),
            "paths": mapping(string(), "What there is, in a line each."),
        }
    ),
    "Health": object_of(
        {
            "status": string(enum=["ok", "unhealthy"]),
            "log": string(enum=["ok", "unreachable"]),
            "driver": nullable(string(enum=["running", "stopped"])),
        }
    ),
    "Session": object_of(
        {
            "name": string(),
            "role": string(enum=[role.name.lower() for role in Role]),
            "login": string(
                "none: everybody may do everything; needed; done.", enum=["none", "needed", "done"]
            ),
        }
    ),
    "Login": object_of({"token": string("As `headrace console token add` printed it.")}),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1",
        role=Role.NOBODY,
        tag="service",
        summary="What there is",
        handler=service,
        answers={200: Answer("Every path in a line.", "Service")},
    ),
    Route(
        method="GET",
        path="/openapi.json",
        role=Role.NOBODY,
        tag="service",
        summary="This API as an OpenAPI 3.1 document",
        handler=openapi,
        answers={200: Answer("The document.", "Anything")},
    ),
    Route(
        method="GET",
        path="/healthz",
        role=Role.NOBODY,
        tag="service",
        summary="Whether the log answers, and whether the application runs",
        handler=health,
        answers={200: Answer("The log answers.", "Health"), 503: Answer("It does not.", "Health")},
    ),
    Route(
        method="GET",
        path="/v1/session",
        role=Role.NOBODY,
        tag="session",
        summary="Who is asking, and whether a login is needed",
        handler=session,
        answers={200: Answer("Who.", "Session")},
    ),
    Route(
        method="POST",
        path="/v1/login",
        role=Role.NOBODY,
        tag="session",
        summary="Log a browser in: sets a cookie",
        handler=login,
        body=Body("Login"),
        answers={200: Answer("Logged in.", "Session"), 409: Answer("No login is needed.")},
    ),
    Route(
        method="POST",
        path="/v1/logout",
        role=Role.NOBODY,
        tag="session",
        summary="Forget the cookie",
        handler=logout,
        answers={200: Answer("Logged out.", "Session")},
        audited=False,
    ),
)
