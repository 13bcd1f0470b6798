"""A request on its way through a resource."""

import asyncio
from types import SimpleNamespace

from starlette.responses import Response

from headrace.console.api.routing import Route, RouteResponse
from headrace.console.security import NOBODY, Principal, Role
from headrace.console.server.app import RouteEndpoint


def asked_of(handler, identify):
    """The status that whoever is known as `identify` says now gets from a resource with this handler."""
    route = Route(
        method="GET",
        path="/slow",
        role=Role.READER,
        handler=handler,
        summary="",
        tag="test",
        answers={200: RouteResponse("")},
    )
    state = {"principal": identify(), "identify": identify}
    scope = {"type": "http", "method": "GET", "path": "/slow", "query_string": b"", "headers": []}
    sent = []

    async def send(message):
        sent.append(message)

    async def run():
        resource = RouteEndpoint(SimpleNamespace(), SimpleNamespace(), {"GET": route})
        await resource(scope | {"state": state, "path_params": {}}, None, send)

    asyncio.run(run())
    return sent[0]["status"]


def test_what_was_read_is_not_answered_to_whom_it_no_longer_belongs():
    """However long the read took, and wherever in it the token was removed."""
    known = [Principal("leaver", Role.READER)]

    async def read(_):
        return Response(b"secret")

    async def read_slowly(_):
        known[0] = NOBODY
        return Response(b"secret")

    assert asked_of(read, lambda: known[0]) == 200
    assert asked_of(read_slowly, lambda: known[0]) == 401
