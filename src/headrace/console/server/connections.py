"""The protocols of a console's connections: uvicorn's, which cut readers that take nothing.

So no handler waits for ever on a reader, and no buffer grows for one.
"""

import asyncio
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import InvalidState

from headrace.console.context import ConsoleContext
from headrace.console.push import ClientConnection
from headrace.console.server.guard import CONNECTION

__all__ = ["FragmentingWebSocket", "bounded"]

_HEAD_TIMEOUT_S = 30


class FragmentingWebSocket(WebSocketsSansIOProtocol):
    """Takes a text message in fragments too, each a frame (`fragment`, and `fin` for the last)."""

    async def send(self, message: Any) -> None:
        if "fragment" not in message:
            await super().send(message)
            return
        await self.writable.wait()
        if self.disconnected or self.close_sent:
            raise ClientDisconnected
        write = self.conn.send_continuation if self.conn.expect_continuation_frame else self.conn.send_text
        try:
            write(message["fragment"], fin=message["fin"])
        except InvalidState:
            raise ClientDisconnected from None
        self.transport.write(b"".join(self.conn.data_to_send()))


def bounded(base: type[Any], context: ConsoleContext) -> type[Any]:
    """A protocol that aborts its connection when nothing is taken for so long, or nothing is asked.

    It buffers half of `reader_buffer_bytes` before it lets writers wait, and they write at
    most as much at once; the scope of a request has its connection (`send_buffers.ClientConnection`).
    """
    patience_s = context.settings.slow_reader_ms / 1000

    class Bounded(base):  # type: ignore[misc]
        app: ASGIApp
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            transport.set_write_buffer_limits(high=context.send_buffers.piece_bytes)
            self.app = _with_connection(
                self.app, ClientConnection(transport.get_write_buffer_size, transport.abort)
            )
            asyncio.get_running_loop().call_later(_HEAD_TIMEOUT_S, self._require_request)

        def _require_request(self) -> None:
            """Ends a connection that has not asked for anything yet; one that became a WebSocket has."""
            if getattr(self, "cycle", self) is None and self.transport.get_protocol() is self:
                self.transport.abort()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._timer = asyncio.get_running_loop().call_later(patience_s, self._cut)

        def _cut(self) -> None:
            context.send_buffers.stalled()
            self.transport.abort()

        def resume_writing(self) -> None:
            super().resume_writing()
            self._forget()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._forget()

        def _forget(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Bounded


def _with_connection(app: ASGIApp, connection: ClientConnection) -> ASGIApp:
    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, CONNECTION: connection}, receive, send)

    return run
