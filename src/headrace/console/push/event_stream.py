"""Events to subscribers: as server-sent events, or as messages of a WebSocket.

A subscription is an asynchronous iterator of `StreamEvent`s. It is pulled, never pushed: while
a reader does not take what it was sent, nothing more is read for it, and the connection
is cut after a while (`process.py`), or when too much is held for all (`send_buffers.py`).
Each event has an id from which to resume exactly. Its body is encoded once, and the same
bytes go to everybody; an event that was sent is let go of before the next one is awaited.

Whether the reader may still read is asked before each event, signs of life included: with
a token that was removed, or a role that is no longer enough, the stream ends with a problem.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from headrace.console.problems import problem_of
from headrace.errors import HeadraceError, RetriableError

__all__ = [
    "EVENT_STREAM",
    "HEARTBEAT",
    "EventStream",
    "StreamEvent",
    "Subscriptions",
    "resume_position",
    "send_events",
    "wait_pace",
]

EVENT_STREAM = "text/event-stream"
PACE_S = 0.05
_SMALL_BYTES = 4096
_RETRY = b"retry: 1000\n\n"  # how soon a browser comes back, in milliseconds
_SERVICE_RESTART = 1012

Check = Callable[[], None]
"""Raises HeadraceError once the reader may no longer read."""


@dataclass(frozen=True, slots=True)
class StreamEvent:
    """What happened: a name, a JSON object as bytes on one line, and the id to resume after it.

    Without a name it is a sign of life and nothing else.
    """

    name: str = ""
    body: bytes = b""
    id: str = ""

    def __post_init__(self) -> None:
        line = self.body.replace(b"\r", b" ").replace(b"\n", b" ")  # in JSON these are mere space
        object.__setattr__(self, "body", line.strip())

    @property
    def size(self) -> int:
        """Bytes that it takes, nearly."""
        return len(self.body)

    def text_parts(self) -> list[bytes | memoryview]:
        """In the format of server-sent events; the body is not copied."""
        if not self.name:
            return [b": still here\n\n"]
        place = f"id: {self.id}\n" if self.id else ""
        return [f"event: {self.name}\n{place}data: ".encode(), self.body, b"\n\n"]

    def message_parts(self) -> list[bytes | memoryview]:
        """As one JSON object for a WebSocket: its id, its name, and the members of its body, uncopied."""
        head = orjson.dumps({"id": self.id, "event": self.name})[:-1]
        return [head if self.body == b"{}" else head + b",", memoryview(self.body)[1:]]

    def as_text(self) -> bytes:
        return b"".join(self.text_parts())

    def as_message(self) -> str:
        return b"".join(self.message_parts()).decode()


HEARTBEAT = StreamEvent()


class EventStream(Response):
    """A response that sends events until they end, or the reader is gone."""

    media_type = EVENT_STREAM

    def __init__(self, subscriptions: "Subscriptions", events: Any, check: Check) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._subscription = subscriptions.new()
        self._check = check
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        with self._subscription:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await _until_gone(self._send_all(send), _http_end(receive))

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": _RETRY, "more_body": True})
        async with aclosing(_with_problems(self._events, self._check)) as events:
            async for event in events:
                parts = _joined(event.text_parts())
                del event
                while parts:
                    await send({"type": "http.response.body", "body": parts.pop(0), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def send_events(subscriptions: "Subscriptions", socket: WebSocket, events: Any, check: Check) -> None:
    """Sends events as messages until they end, or the reader is gone; nothing is expected from it."""
    with subscriptions.new():
        await socket.accept()
        await _until_gone(_send_messages(socket, events, check), _socket_end(socket))


async def _send_messages(socket: WebSocket, events: Any, check: Check) -> None:
    async with aclosing(_with_problems(events, check)) as ours:
        async for event in ours:
            if event.name:
                parts = _joined(event.message_parts())
                del event
                while parts:
                    fin = len(parts) == 1
                    await socket.send({"type": "websocket.send", "fragment": parts.pop(0), "fin": fin})
    await socket.close(_SERVICE_RESTART)


async def _with_problems(events: Any, check: Check) -> AsyncGenerator[StreamEvent, None]:
    """The events; a failure among them is the last one, since the status was sent long ago."""
    async with aclosing(events):
        try:
            async for event in events:
                check()
                yield event
                del event
        except HeadraceError as error:
            yield StreamEvent("problem", orjson.dumps(problem_of(error).to_json()))


def _joined(parts: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """The parts as one if they are small; large ones are left as they are, for all who are sent them."""
    return parts if sum(map(len, parts)) > _SMALL_BYTES else [b"".join(parts)]


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


class Subscriptions:
    """Counts the subscriptions that are open, of which there are at most so many; event loop only."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.open = 0

    def new(self) -> AbstractContextManager[None]:
        """Counts as one for the length of its block; raises RetriableError when there are too many."""
        if self.open >= self.most:
            raise RetriableError(
                f"there are already {self.open} open subscriptions (max_subscribers); try again later"
            )
        return self._counted()

    @contextmanager
    def _counted(self) -> Iterator[None]:
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


def resume_position(headers: Mapping[str, str], since: str | None) -> str | None:
    """Where the subscriber was: the header that browsers send wins over `since`, which was there before."""
    return headers.get("last-event-id") or since


async def wait_pace(began: float) -> None:
    """Returns when an event that began then may be followed by the next: about twenty a second."""
    left = began + PACE_S - asyncio.get_running_loop().time()
    if left > 0:
        await asyncio.sleep(left)
