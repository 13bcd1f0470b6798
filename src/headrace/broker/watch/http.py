"""A small HTTP endpoint: GET /metrics and GET /health, nothing else.

Plain asyncio, because it answers two questions and a framework would double the
broker's start-up. One request a connection, a bounded head, a deadline; it
shares the broker's event loop, so collecting runs on a worker thread.
"""

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

from headrace.addresses import host_and_port
from headrace.broker.services import Services
from headrace.broker.watch.gauges import collect
from headrace.broker.watch.health import health
from headrace.errors import ConfigError
from headrace.metrics import CONTENT_TYPE, render

__all__ = ["metrics_endpoint"]

logger = logging.getLogger(__name__)

MOST_HEAD_BYTES = 8 * 1024
MOST_CONNECTIONS = 32
DEADLINE_S = 10


@asynccontextmanager
async def metrics_endpoint(
    services: Services, connection_count: Callable[[], int]
) -> AsyncIterator[int | None]:
    """Listens on `metrics_listen` for the length of the block; its port, None when it is not set."""
    listen = services.settings.metrics_listen
    if not listen:
        yield None
        return
    endpoint = _Endpoint(services, connection_count)
    host, port = host_and_port("metrics_listen", listen)
    try:
        server = await asyncio.start_server(endpoint.serve, host, port, limit=MOST_HEAD_BYTES)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        raise ConfigError(
            f"cannot listen on {listen} ({reason}); stop what uses it or choose another --metrics-listen"
        ) from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await endpoint.close()


class _Endpoint:
    """Answers requests, each on a connection of its own; too many at once are refused."""

    def __init__(self, services: Services, connection_count: Callable[[], int]) -> None:
        self._services = services
        self._connection_count = connection_count
        self._serving: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Ends what is under way."""
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio serves each connection in a task"
        if len(self._serving) >= MOST_CONNECTIONS:
            writer.close()
            return
        self._serving.add(task)
        try:
            async with asyncio.timeout(DEADLINE_S):
                await self._answer(reader, writer)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # a client that stalls, leaves or sends no HTTP gets no answer
        except Exception:
            logger.exception("a request for metrics or health failed")
        finally:
            self._serving.discard(task)
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        method, _, rest = head.split(b"\r\n", 1)[0].partition(b" ")
        path = rest.split(b" ", 1)[0].split(b"?", 1)[0]
        status, kind, body = await self._content(method, path)
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}",
            f"Content-Type: {kind}",
            f"Content-Length: {len(body)}",
            "Cache-Control: no-store",
            "Connection: close",
        ]
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("Allow: GET, HEAD")
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if method == b"HEAD" else body))
        await writer.drain()

    async def _content(self, method: bytes, path: bytes) -> tuple[HTTPStatus, str, bytes]:
        plain = "text/plain; charset=utf-8"
        if method not in (b"GET", b"HEAD"):
            return HTTPStatus.METHOD_NOT_ALLOWED, plain, b"use GET\n"
        if path == b"/metrics":
            return HTTPStatus.OK, CONTENT_TYPE, (await self._metrics()).encode()
        if path == b"/health":
            found = await health(self._services)
            status = HTTPStatus.OK if found.is_healthy else HTTPStatus.SERVICE_UNAVAILABLE
            return status, "application/json", json.dumps(found.as_json(), indent=1).encode() + b"\n"
        return HTTPStatus.NOT_FOUND, plain, b"there are /metrics and /health\n"

    async def _metrics(self) -> str:
        services, connections = self._services, self._connection_count()
        return await services.threads.run(lambda: render(collect(services, connections=connections)))
