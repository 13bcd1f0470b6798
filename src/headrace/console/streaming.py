"""Events to whoever subscribed: as server-sent events, or as messages of a WebSocket.

A subscription is an asynchronous iterator of `Event`s. It is pulled, never pushed: while
a reader does not take what it was sent, nothing more is read for it, and the connection
is cut after a while (`process.py`). Each event has an id from which to resume exactly.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from headrace.console.problems import problem_of
from headrace.console.routing import Call
from headrace.console.surroundings import Surroundings
from headrace.errors import HeadraceError, RetriableError

__all__ = ["HEARTBEAT", "MEDIA_TYPE", "Event", "EventStream", "resume_position", "send_events", "wait_pace"]

MEDIA_TYPE = "text/event-stream"
PACE_S = 0.05
_RETRY = b"retry: 1000\n\n"  # how soon a browser comes back, in milliseconds
_SERVICE_RESTART = 1012


@dataclass(frozen=True, slots=True)
class Event:
    """What happened: a name, a body of JSON as bytes, and the id to resume after it.

    Without a name it is a sign of life and nothing else.
    """

    name: str = ""
    body: bytes = b""
    id: str = ""

    def as_text(self) -> bytes:
        """In the format of server-sent events."""
        if not self.name:
            return b": still here\n\n"
        data = self.body.replace(b"\r", b" ").replace(b"\n", b" ")  # in JSON these are mere space
        place = f"id: {self.id}\n" if self.id else ""
        return f"event: {self.name}\n{place}".encode() + b"data: " + data + b"\n\n"

    def as_message(self) -> str:
        """As one JSON object for a WebSocket: its id, its name, and the members of its body."""
        members = self.body.strip().removeprefix(b"{")
        head = orjson.dumps({"id": self.id, "event": self.name})[:-1]
        return (head + (b"," if members != b"}" else b"") + members).decode()


HEARTBEAT = Event()


class EventStream(Response):
    """A response that sends events until they end, or the reader is gone."""

    media_type = MEDIA_TYPE

    def __init__(self, call: Call, events: Any) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._place = Subscription(call.here)
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        with self._place:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _until_gone(self._send_all(send), _http_end(receive))

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": _RETRY, "more_body": True})
        async with aclosing(_with_problems(self._events)) as events:
            async for event in events:
                await send({"type": "http.response.body", "body": event.as_text(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_events(call: Call, socket: WebSocket, events: Any) -> None:
    """Sends events as messages until they end, or the reader is gone; nothing is expected from it."""
    with Subscription(call.here):
        await socket.accept()
        await _until_gone(_send_messages(socket, events), _socket_end(socket))


async def _send_messages(socket: WebSocket, events: Any) -> None:
    async with aclosing(_with_problems(events)) as ours:
        async for event in ours:
            if event.name:
                await socket.send_text(event.as_message())
    await socket.close(_SERVICE_RESTART)


async def _with_problems(events: Any) -> AsyncGenerator[Event, None]:
    """The events; a failure among them is the last one, since the status was sent long ago."""
    async with aclosing(events):
        try:
            async for event in events:
                yield event
        except HeadraceError as error:
            yield Event("problem", orjson.dumps(problem_of(error).to_json()))


async def _until_gone(sending: Any, gone: Any) -> None:
    """Sends until it is done or the reader is gone, whichever comes first; raises what sending raised."""
    tasks = [asyncio.ensure_future(sending), asyncio.ensure_future(gone)]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in tasks:
            each.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    failure = outcomes[0]
    if isinstance(failure, Exception) and not isinstance(failure, WebSocketDisconnect | ClientDisconnect):
        raise failure


async def _http_end(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _socket_end(socket: WebSocket) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        pass


class Subscription:
    """Counts as one for the length of its block; raises RetriableError when there are too many."""

    def __init__(self, here: Surroundings) -> None:
        self._here = here
        if here.subscribers >= here.settings.max_subscribers:
            raise RetriableError(
                f"{here.subscribers} subscriptions are open already (max_subscribers); try again later"
            )

    def __enter__(self) -> None:
        self._here.subscribers += 1

    def __exit__(self, *_: object) -> None:
        self._here.subscribers -= 1


def resume_position(call: Call) -> str | None:
    """Where the subscriber was: the header that browsers send wins over `since`, which was there before."""
    headers: Mapping[str, str] = call.request.headers
    return headers.get("last-event-id") or call["since"]


async def wait_pace(began: float) -> None:
    """Returns when an event that began then may be followed by the next: about twenty a second."""
    left = began + PACE_S - asyncio.get_running_loop().time()
    if left > 0:
        await asyncio.sleep(left)
