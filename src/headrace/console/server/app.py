"""The console as an ASGI application: the table of routes behind one guard.

A request passes the guard (host, origin, the header that other sites cannot send), then
its resource: role, parameters, body, handler. Whatever is raised on the way is answered
as a problem; what nobody expected is logged once, under a number that the answer names.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from headrace.console.api import COMMON, Call, Route, SocketHandler, document, parse_parameters
from headrace.console.context import ConsoleContext
from headrace.console.problems import Problem, ProblemError, problem_of, problem_response
from headrace.console.routes import LIVE, ROUTES, SCHEMAS
from headrace.console.security import refusal_by_role
from headrace.console.server.audit_log import AuditLog
from headrace.console.server.guard import GuardMiddleware
from headrace.errors import HeadraceError

__all__ = ["build_app"]

logger = logging.getLogger(__name__)

BODY_TIMEOUT_S = 30.0


def build_app(context: ConsoleContext, hosts: Any) -> Starlette:
    """The application; it closes `context` when it ends."""
    audit_log = AuditLog(context)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        summing = asyncio.create_task(audit_log.keep_summing_up())
        try:
            yield
        finally:
            summing.cancel()
            await asyncio.gather(summing, return_exceptions=True)
            await audit_log.sum_up_refusals(all_of_them=True)
            context.close()

    app = Starlette(
        routes=_routes(context, audit_log),
        lifespan=lifespan,
        exception_handlers={HTTPException: _unrouted},
    )
    app.state.routes = ROUTES
    app.state.live = LIVE
    app.state.openapi = document(ROUTES, COMMON | SCHEMAS)
    app.add_middleware(GuardMiddleware, context=context, hosts=hosts)
    return app


def _routes(context: ConsoleContext, audit_log: AuditLog) -> list[BaseRoute]:
    by_path: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {})[route.method] = route
    found: list[BaseRoute] = []
    for path, methods in by_path.items():
        found.append(StarletteRoute(path, RouteEndpoint(context, audit_log, methods)))
        found += [
            WebSocketRoute(path, RouteWebSocket(context, route, route.socket))
            for route in methods.values()
            if route.socket is not None
        ]
    return found


async def _unrouted(_: HTTPConnection, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return problem_response(Problem(status=status, detail="there is nothing at this path"))


class RouteEndpoint:
    """Everything at one path, by method. HEAD is for the page alone: the API's answers are not cached."""

    def __init__(self, context: ConsoleContext, audit_log: AuditLog, methods: Mapping[str, Route]) -> None:
        self._context = context
        self._audit_log = audit_log
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await self._respond(request)
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> Response:
        route = self._methods.get(request.method)
        if route is None and request.method == "HEAD":
            route = self._methods.get("GET")
            route = route if route is not None and route.tag == "page" else None
        if route is None:
            allowed = ", ".join(sorted(self._methods))
            problem = Problem(
                status=405, detail=f"{request.method} is not allowed here", headers={"Allow": allowed}
            )
            return problem_response(problem)
        request.state.route = route.path
        try:
            return await self._answer(request, route)
        except HeadraceError as error:
            return problem_response(problem_of(error))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception:
            return problem_response(_defect(f"{route.method} {route.path}"))

    async def _answer(self, request: Request, route: Route) -> Response:
        refusal = refusal_by_role(request.state.principal, route.role)
        if refusal is not None:
            return await self._refused(request, route, refusal)
        call = _checked_call(self._context, request, route)
        if route.body is not None:
            call = replace(call, body=await _body(request, self._context.settings.max_body_bytes))
            refusal = call.refusal()  # a body may be long on its way
            if refusal is not None:
                return await self._refused(request, route, refusal)
        if route.changes and route.audited:
            return await self._audited(call, route)
        response = await route.handler(call)
        if not route.changes:
            call.check_still_allowed()  # a read may wait for long, or in a queue
        return response

    async def _refused(self, request: Request, route: Route, refusal: Problem) -> Response:
        """Somebody without the role; that they tried to change something is worth a record."""
        if route.changes and route.audited:
            call = _call(self._context, request, route, dict(request.path_params))
            await self._audit_log.record(call, route, refusal.status)
        return problem_response(refusal)

    async def _audited(self, call: Call, route: Route) -> Response:
        """A change, and its record in the audit topic before it is answered."""
        try:
            response = await route.handler(call)
        except HeadraceError as error:
            await self._audit_log.record(call, route, problem_of(error).status)
            raise
        except Exception:
            await self._audit_log.record(call, route, 500)
            raise
        await self._audit_log.record(call, route, response.status_code)
        return response


class RouteWebSocket:
    """One path as a WebSocket; what cannot be served is refused before the handshake ends."""

    def __init__(self, context: ConsoleContext, route: Route, handler: SocketHandler) -> None:
        self._context = context
        self._route = route
        self._handler = handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        socket.state.route = self._route.path
        refusal = refusal_by_role(socket.state.principal, self._route.role)
        if refusal is not None:
            await _refuse(socket, refusal)
            return
        try:
            call = _checked_call(self._context, socket, self._route)
            await self._handler(call, socket)
        except HeadraceError as error:
            await _refuse(socket, problem_of(error))
        except (WebSocketDisconnect, ClientDisconnect):
            return
        except Exception:
            await _refuse(socket, _defect(f"the WebSocket {self._route.path}"))


async def _refuse(socket: WebSocket, problem: Problem) -> None:
    if socket.application_state.name == "CONNECTING":
        await socket.send_denial_response(problem_response(problem))
    elif socket.application_state.name == "CONNECTED":
        await socket.close(1011, problem.detail[:120])


def _checked_call(context: ConsoleContext, connection: Any, route: Route) -> Call:
    """The call with its parameters; raises ProblemError where they are wrong."""
    given = parse_parameters(route.parameters, connection.query_params.multi_items(), others=route.others)
    for each in route.parameters:
        if each.place == "path":
            given[each.name] = each.parse(connection.path_params[each.name])
    return _call(context, connection, route, given)


def _call(context: ConsoleContext, connection: Any, route: Route, given: Mapping[str, Any]) -> Call:
    state = connection.state
    return Call(
        request=connection,
        context=context,
        principal=state.principal,
        given=given,
        refusal=lambda: refusal_by_role(state.identify(), route.role),
    )


async def _body(request: Request, most: int) -> bytes:
    """The whole body; raises ProblemError when it is too large or too slow."""
    too_large = ProblemError(413, f"the body may have at most {most} bytes", "send less at once")
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > most:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        raise ProblemError(408, f"the body was not received within {BODY_TIMEOUT_S:.0f} s") from None
    return b"".join(parts)


def _defect(where: str) -> Problem:
    """What nobody expected: logged with a number, which is all that the answer tells."""
    incident = secrets.token_hex(4)
    logger.exception("incident %s in %s", incident, where)
    return Problem(status=500, detail=f"internal error; incident {incident}", members={"incident": incident})
