"""The console as a process: one socket, signals, and an end that leaves no stream hanging.

A reader that takes nothing is cut by its connection's protocol, whatever it reads: no
handler waits for ever on one, and no buffer grows for it.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from headrace.addresses import host_and_port
from headrace.client.identity import Identity
from headrace.console.app import build_app
from headrace.console.security import Hosts
from headrace.console.settings import ConsoleSettings
from headrace.console.surroundings import Surroundings
from headrace.errors import ConfigError
from headrace.serving import log_to_stderr, new_loop, stop_when_told

__all__ = ["Listening", "run"]

_GRACE_S = 5
_HEAD_TIMEOUT_S = 30
_BACKLOG = 512


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a console can be reached."""

    host: str
    port: int

    @property
    def url(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}/"


def run(
    settings: ConsoleSettings,
    identity: Identity,
    *,
    on_listening: Callable[[Listening], None] | None = None,
) -> int:
    """Serves until SIGTERM, SIGINT or the end of input, then ends cleanly; the process's exit code.

    `identity` is who the console is towards the log.

    Raises ConfigError when it cannot listen, or the settings name what is not there.
    """
    log_to_stderr()
    for chatty in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    with _listen(settings.listen) as listener, asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(_serve(settings, identity, listener, on_listening))
    return 0


def _listen(text: str) -> socket.socket:
    host, port = host_and_port("listen", text)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(found[0], found[1])
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found[4])
        listener.listen(_BACKLOG)
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {text} ({error.strerror or error}); "
            "stop what uses it, or choose another --listen"
        ) from error
    listener.setblocking(False)
    return listener


async def _serve(
    settings: ConsoleSettings,
    identity: Identity,
    listener: socket.socket,
    on_listening: Callable[[Listening], None] | None,
) -> None:
    here = Surroundings.of(settings, identity)
    host, port = listener.getsockname()[:2]
    listen_host, _ = host_and_port("listen", settings.listen)
    app = build_app(here, Hosts.of(listen_host, settings.allow_host.split(",")))
    server = _Server(_config(app, settings))

    def stop() -> None:
        here.stop()
        server.should_exit = True

    stop_when_told(stop, until_stdin_closes=settings.until_stdin_closes)
    if on_listening is not None:
        on_listening(Listening(host, port))
    await server.serve(sockets=[listener])


def _config(app: Any, settings: ConsoleSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=_impatient(H11Protocol, settings.slow_reader_ms / 1000),
        ws=_impatient(WebSocketsSansIOProtocol, settings.slow_reader_ms / 1000),
        ws_max_size=64 * 1024,  # clients have nothing to say
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=settings.max_connections,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE_S,
    )


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers, which would end the process by the signal again."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _impatient(base: type[Any], patience_s: float) -> type[Any]:
    """A protocol that aborts its connection when nothing is taken for so long, or nothing is asked."""

    class Impatient(base):  # type: ignore[misc]
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            asyncio.get_running_loop().call_later(_HEAD_TIMEOUT_S, self._require_request)

        def _require_request(self) -> None:
            """Ends a connection that has not asked for anything yet; one that became a WebSocket has."""
            if getattr(self, "cycle", self) is None and self.transport.get_protocol() is self:
                self.transport.abort()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._timer = asyncio.get_running_loop().call_later(patience_s, self.transport.abort)

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

    return Impatient
