"""What the service is and how it is: `/v1`, `/healthz`, `/openapi.json`, and who is asking."""

from typing import Any

from starlette.responses import Response

from headrace import __version__
from headrace.client.connect import explained
from headrace.console.api import (
    Call,
    Route,
    RouteBody,
    RouteResponse,
    Schema,
    json_response,
    mapping,
    nullable,
    object_of,
    string,
)
from headrace.console.context import ConsoleContext
from headrace.console.problems import ProblemError
from headrace.console.routes.entities import command_paths
from headrace.console.security import COOKIE, NOBODY, Role
from headrace.errors import HeadraceError

__all__ = ["ROUTES", "SCHEMAS"]

SESSION_S = 12 * 3600
_PROBE_TIMEOUT_S = 2.0


async def get_service(call: Call) -> Response:
    routes = call.request.app.state.routes
    return json_response(
        {
            "service": "headrace console",
            "version": __version__,
            "bootstrap": call.context.connection.bootstrap_servers,
            "paths": {f"{each.method} {each.path}": each.summary for each in routes if each.tag != "page"},
        }
    )


async def get_openapi(call: Call) -> Response:
    """The document of all routes, and of every command of the application's entities."""
    known = call.request.app.state.openapi
    described = await call.context.workers.run(call.context.application.description)
    generic = known["paths"]["/v1/entities/{type}/{id}/commands/{command}"]
    return json_response({**known, "paths": {**known["paths"], **command_paths(described, generic)}})


async def get_health(call: Call) -> Response:
    found = await call.context.workers.run(_health, call.context)
    return json_response(found, 200 if found["status"] == "ok" else 503)


def _health(context: ConsoleContext) -> dict[str, Any]:
    try:
        with explained("asking the log", context.connection.bootstrap_servers):
            context.clients.admin().list_topics(timeout=_PROBE_TIMEOUT_S)
        log = "ok"
    except HeadraceError:
        log = "unreachable"
    return {"status": "ok" if log == "ok" else "unhealthy", "log": log, "driver": _driver(context)}


def _driver(context: ConsoleContext) -> str | None:
    """Whether the application runs now: running or stopped; None where there is none."""
    from headrace.app.status import is_running

    if context.application.path is None:
        return None
    return "running" if is_running(context.application.path) else "stopped"


async def get_session(call: Call) -> Response:
    return json_response(_session(call))


def _session(call: Call) -> dict[str, Any]:
    return {
        "name": call.principal.name,
        "role": call.principal.role.name.lower(),
        "login": "none" if call.context.users is None else "needed" if call.principal is NOBODY else "done",
    }


async def post_login(call: Call) -> Response:
    """Sets a cookie that holds the token: nothing is kept here, and a removed token ends the session."""
    token = call.json_object().get("token")
    if call.context.users is None:
        raise ProblemError(
            409, "this console has no users, so no login is needed", "continue without logging in"
        )
    if not isinstance(token, str) or call.context.principal(token, by_token=False) is NOBODY:
        raise ProblemError(
            401, "the token is not valid", "check that you copied all of it, or ask for a new one"
        )
    principal = call.context.principal(token, by_token=False)
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


async def post_logout(_: Call) -> Response:
    response = json_response({"name": NOBODY.name, "role": "nobody", "login": "needed"})
    response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    return response


SCHEMAS: dict[str, Schema] = {
    "Service": object_of(
        {
            "service": string(),
            "version": string(),
            "bootstrap": string(),
            "paths": mapping(string(), "All paths, with a summary each."),
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
                "none: no login is needed, everyone may do anything; needed; done.",
                enum=["none", "needed", "done"],
            ),
        }
    ),
    "Login": object_of({"token": string("The token, as `headrace console token add` printed it.")}),
}

ROUTES = (
    Route(
        method="GET",
        path="/v1",
        role=Role.NOBODY,
        tag="service",
        summary="Overview of this API",
        handler=get_service,
        answers={200: RouteResponse("All paths, with a summary each.", "Service")},
    ),
    Route(
        method="GET",
        path="/openapi.json",
        role=Role.NOBODY,
        tag="service",
        summary="This API as an OpenAPI 3.1 document",
        handler=get_openapi,
        answers={200: RouteResponse("The document.", "Anything")},
    ),
    Route(
        method="GET",
        path="/healthz",
        role=Role.NOBODY,
        tag="service",
        summary="Whether the log responds, and whether the application is running",
        handler=get_health,
        answers={
            200: RouteResponse("The log is reachable.", "Health"),
            503: RouteResponse("The log is unreachable.", "Health"),
        },
    ),
    Route(
        method="GET",
        path="/v1/session",
        role=Role.NOBODY,
        tag="session",
        summary="The current user, and whether a login is needed",
        handler=get_session,
        answers={200: RouteResponse("The user and their role.", "Session")},
    ),
    Route(
        method="POST",
        path="/v1/login",
        role=Role.NOBODY,
        tag="session",
        summary="Log in a browser: sets a cookie",
        handler=post_login,
        body=RouteBody("Login"),
        answers={200: RouteResponse("Logged in.", "Session"), 409: RouteResponse("No login is needed.")},
    ),
    Route(
        method="POST",
        path="/v1/logout",
        role=Role.NOBODY,
        tag="session",
        summary="Log out: removes the cookie",
        handler=post_logout,
        answers={200: RouteResponse("Logged out.", "Session")},
        audited=False,
    ),
)
