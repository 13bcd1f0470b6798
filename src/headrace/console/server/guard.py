"""The outermost layer: who asks, from which page, and the headers that every answer carries."""

from functools import partial
from time import perf_counter
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.console.context import ConsoleContext
from headrace.console.problems import Problem, problem_of, problem_response
from headrace.console.push import NO_CONNECTION, ConnectedReader
from headrace.console.security import SECURITY_HEADERS, Hosts, presented_token, refusal_by_origin
from headrace.errors import HeadraceError

__all__ = ["CONNECTION", "GuardMiddleware"]

# Where the scope of a request has its connection (`send_buffers.ClientConnection`).
CONNECTION = "headrace.connection"
_READS = ("GET", "HEAD", "OPTIONS")


class GuardMiddleware:
    """Refuses what no route may see, names the principal, adds the headers, counts."""

    def __init__(self, app: ASGIApp, *, context: ConsoleContext, hosts: Hosts) -> None:
        self._app = app
        self._context = context
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        began, state = perf_counter(), scope.setdefault("state", {})
        reader = self._context.send_buffers.open(scope.get(CONNECTION, NO_CONNECTION))
        seen = _Sending(send, reader, no_store=not scope["path"].startswith(("/static/", "/favicon")))
        problem = self._problem(HTTPConnection(scope), state, scope)
        try:
            if problem is None:
                await self._app(scope, receive, seen)
            else:
                await _refuse(problem, scope, receive, seen)
        finally:
            reader.close()
            took = None if seen.subscribed else perf_counter() - began
            method, route = scope.get("method", "WEBSOCKET"), state.get("route", "none")
            self._context.http.count(method, route, seen.status, took)

    def _problem(self, connection: HTTPConnection, state: dict[str, Any], scope: Scope) -> Problem | None:
        token, by_token = presented_token(connection.headers, connection.cookies)
        state["identify"] = partial(self._context.principal, token, by_token=by_token)
        try:
            state["principal"] = state["identify"]()
        except HeadraceError as error:
            return problem_of(error)
        websocket = scope["type"] == "websocket"
        return refusal_by_origin(
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
    """`send`, with the headers added, the status seen, and what is large in pieces."""

    def __init__(self, send: Send, reader: ConnectedReader, *, no_store: bool) -> None:
        self._send = send
        self._reader = reader
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
        elif message["type"] == "http.response.body" and message.get("body"):
            await self._reader.send(
                message["body"], partial(self._send_body, message.get("more_body", False))
            )
            return
        elif "fragment" in message:
            await self._reader.send(message["fragment"], partial(self._send_fragment, message["fin"]))
            return
        await self._send(message)

    async def _send_body(self, more: bool, piece: bytes | memoryview, is_last: bool) -> None:
        body = {"type": "http.response.body", "body": piece, "more_body": more or not is_last}
        await self._send(body)

    async def _send_fragment(self, fin: bool, piece: bytes | memoryview, is_last: bool) -> None:
        await self._send({"type": "websocket.send", "fragment": piece, "fin": fin and is_last})
