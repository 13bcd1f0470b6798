"""The console as a process: one socket, signals, and an end that leaves no stream hanging."""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.addresses import host_and_port
from headrace.client.connect import Identity
from headrace.console.context import ConsoleContext
from headrace.console.security import Hosts
from headrace.console.server.app import build_app
from headrace.console.server.connections import FragmentingWebSocket, bounded
from headrace.console.settings import ConsoleSettings
from headrace.errors import ConfigError
from headrace.event_loop import log_to_stderr, new_loop, stop_on_signals
from headrace.interpreter import answer_promptly, freeze_start

__all__ = ["Listening", "run"]

_GRACE_S = 5
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
    answer_promptly()
    log_to_stderr()
    for chatty in ("uvicorn.error", "uvicorn.access"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    with (
        _listen(settings.listen, settings.reader_buffer_bytes) as listener,
        asyncio.Runner(loop_factory=new_loop) as runner,
    ):
        runner.run(_serve(settings, identity, listener, on_listening))
    return 0


def _listen(text: str, unsent_bytes: int) -> socket.socket:
    """A socket that listens; of what a reader does not take, the system keeps no more than `unsent_bytes`."""
    host, port = host_and_port("listen", text)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(found[0], found[1])
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # connections inherit it; without it, megabytes for each
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, unsent_bytes)
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
    context = ConsoleContext.of(settings, identity)
    host, port = listener.getsockname()[:2]
    listen_host, _ = host_and_port("listen", settings.listen)
    app = build_app(context, Hosts.of(listen_host, settings.allow_host.split(",")))
    server = _Server(_config(app, context))

    def stop() -> None:
        context.stop()
        server.should_exit = True
        asyncio.get_running_loop().call_later(_GRACE_S / 2, context.send_buffers.cut_all)

    stop_on_signals(stop, until_stdin_closes=settings.until_stdin_closes)
    if on_listening is not None:
        on_listening(Listening(host, port))
    freeze_start()
    await server.serve(sockets=[listener])


def _config(app: Any, context: ConsoleContext) -> uvicorn.Config:
    settings = context.settings
    return uvicorn.Config(
        app,
        http=bounded(H11Protocol, context),
        ws=bounded(FragmentingWebSocket, context),
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
