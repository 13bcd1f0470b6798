"""The broker: opens its services, listens, and stops cleanly."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from headrace.addresses import host_and_port, is_loopback
from headrace.broker.access import server_context
from headrace.broker.connection.connection import ServedConnection
from headrace.broker.connection.connections import Connections
from headrace.broker.connection.shared import shared_by_connections
from headrace.broker.services import Services, open_services
from headrace.broker.settings import BrokerSettings
from headrace.broker.watch.http import metrics_endpoint
from headrace.clock import Clock, SystemClock
from headrace.errors import ConfigError
from headrace.groups import GroupSettings
from headrace.storage import Disk

__all__ = ["Broker"]

logger = logging.getLogger(__name__)

BACKLOG = 2048


class Broker:
    """Serves Kafka's protocol from one data directory.

    `async with Broker(settings).serving() as broker:` listens until the block
    ends, then stops cleanly: no new requests, everything appended is synced,
    the directory is closed so that the next start has nothing to recover. Meanwhile
    `services` is what it consists of.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        group_settings: GroupSettings | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        self.settings = settings
        self.host, self.port = host_and_port("listen", settings.listen)
        self.metrics_port: int | None = None
        self.services: Services
        self._group_settings = group_settings or GroupSettings()
        self._clock = clock or SystemClock()
        self._disk = disk or Disk()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Broker"]:
        """Opens the directory, listens, and undoes both at the end of the block."""
        opened = open_services(self.settings, self._group_settings, self._clock, self._disk)
        async with opened as services:
            self.services = services
            connections = Connections(
                *(self.settings, self._clock, services.metrics, services.memory),
                on_gone=services.queues.disconnected,
            )
            shared = shared_by_connections(services, connections)
            listener = await self._listen(lambda: ServedConnection(shared))
            endpoint = metrics_endpoint(services, connections.__len__)
            async with endpoint as self.metrics_port, asyncio.TaskGroup() as tasks:
                connections.start(tasks)
                await listener.start_serving()
                background = [tasks.create_task(work()) for work in (connections.sweep, *services.background)]
                try:
                    yield self
                finally:
                    listener.close()
                    for task in background:
                        task.cancel()
                    connections.abort_all()
                    await services.events.close()

    async def _listen(self, factory: Callable[[], ServedConnection]) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                factory, self.host, self.port, backlog=BACKLOG, start_serving=False, **self._tls()
            )
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise ConfigError(
                f"cannot listen on {self.settings.listen} ({reason});"
                " stop what uses it or choose another --listen"
            ) from error
        self.port = server.sockets[0].getsockname()[1]
        return server

    def _tls(self) -> dict[str, Any]:
        """How connections are encrypted, in `create_server`'s words; raises ConfigError."""
        chosen = self.settings
        if not chosen.tls_certificate:
            if chosen.authenticate and not is_loopback(self.host):
                logger.warning("no tls_certificate: what clients and broker say can be read on the way")
            return {}
        context = server_context(chosen.tls_certificate, chosen.tls_key, chosen.tls_client_ca)
        return {"ssl": context, "ssl_handshake_timeout": chosen.receive_timeout_ms / 1000}
