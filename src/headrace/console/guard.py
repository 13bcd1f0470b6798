"""The outermost layer: who asks, from which page, and the headers that every answer carries."""

from time import perf_counter
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.console.problems import Problem, problem_of, problem_response
from headrace.console.security import SECURITY_HEADERS, Hosts, presented_token, refusal_by_page
from headrace.console.surroundings import Surroundings
from headrace.errors import HeadraceError

__all__ = ["Guard"]

_READS = ("GET", "HEAD", "OPTIONS")


class Guard:
    """Refuses what no route may see, names the principal, adds the headers, counts."""

    def __init__(self, app: ASGIApp, *, here: Surroundings, hosts: Hosts) -> None:
        self._app = app
        self._here = here
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        began, state = perf_counter(), scope.setdefault("state", {})
        seen = _Sending(send, no_store=not scope["path"].startswith(("/static/", "/favicon")))
        problem = self._problem(HTTPConnection(scope), state, scope)
        try:
            if problem is None:
                await self._app(scope, receive, seen)
            else:
                await _refuse(problem, scope, receive, seen)
        finally:
            took = None if seen.subscribed else perf_counter() - began
            method, route = scope.get("method", "WEBSOCKET"), state.get("route", "none")
            self._here.http.count(method, route, seen.status, took)

    def _problem(self, connection: HTTPConnection, state: dict[str, Any], scope: Scope) -> Problem | None:
        token, by_token = presented_token(connection.headers, connection.cookies)
        try:
            state["principal"] = self._here.principal(token, by_token=by_token)
        except HeadraceError as error:
            return problem_of(error)
        websocket = scope["type"] == "websocket"
        return refusal_by_page(
            hosts=self._hosts,
            headers=connection.headers,
            principal=state["principal"],
            changes=not websocket and scope["method"] not in _READS,
            websocket=websocket,
        )


async def _refuse(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    response = problem_response(problem)
    if scope["type"] == "http":
        await response(scope, receive, send)
        return
    await receive()  # the handshake, which is answered with a plain response
    await response({**scope, "type": "websocket"}, receive, send)


class _Sending:
    """`send`, with the headers added and the status seen."""

    def __init__(self, send: Send, *, no_store: bool) -> None:
        self._send = send
        self._no_store = no_store
        self.status = 0
        self.subscribed = False

    async def __call__(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in SECURITY_HEADERS.items():
                headers[name] = value
            if self._no_store:
                headers.setdefault("Cache-Control", "no-store")
            self.subscribed = headers.get("content-type", "").startswith("text/event-stream")
        elif message["type"] == "websocket.accept":
            self.status, self.subscribed = 101, True
        await self._send(message)
