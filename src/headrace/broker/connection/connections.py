"""The connections that are open: how many, which of them stall, and how they end."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from headrace.broker.access import ClientSession
from headrace.broker.limits import RequestMemory
from headrace.broker.metrics import Metrics
from headrace.broker.settings import BrokerSettings
from headrace.clock import Clock

__all__ = ["Connections", "OpenConnection"]

STALLED_MS = 250
SWEEP_S = 1.0
STOPPING = "stopping"


class OpenConnection(Protocol):
    """A connection, as far as the others are concerned."""

    moved_ms: int
    frame_began_ms: int | None
    task: asyncio.Task[None] | None

    @property
    def number(self) -> int: ...

    @property
    def session(self) -> ClientSession | None: ...

    @property
    def holds_memory(self) -> bool: ...

    @property
    def waits_for_memory(self) -> bool: ...

    def serve(self) -> Coroutine[Any, Any, None]: ...

    def abort(self, reason: str, *, kind: str) -> None: ...


class Connections:
    """Takes connections in and closes those that do not go on. Event loop only.

    `on_gone` is called with the number of a connection that its client ended, or that was closed
    for what its client did; not when the broker stops.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        metrics: Metrics,
        memory: RequestMemory,
        *,
        on_gone: Callable[[int], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._memory = memory
        self._on_gone = on_gone
        self._open: set[OpenConnection] = set()
        self._reclaiming: asyncio.TimerHandle | None = None
        self._tasks: asyncio.TaskGroup

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Each connection gets a task of this group."""
        self._tasks = tasks

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: OpenConnection) -> bool:
        """Takes a connection in, unless there are too many."""
        self._metrics.connections_opened.add(1)
        if len(self._open) >= self._settings.max_connections:
            return False
        self._open.add(connection)
        connection.task = self._tasks.create_task(connection.serve())
        return True

    def dismiss(self, connection: OpenConnection, reason: str) -> None:
        """Forgets a connection that ended."""
        self._metrics.connections_closed.add(1, reason)
        self._open.discard(connection)
        if reason != STOPPING:  # members keep their leases over a restart
            self._on_gone(connection.number)

    def expel(self, principal: str) -> None:
        """Closes the connections of a user who was removed."""
        for connection in tuple(self._open):
            if connection.session is not None and connection.session.principal == principal:
                connection.abort("its user was removed", kind="login")

    def abort_all(self) -> None:
        """Closes every connection: the broker stops."""
        for connection in tuple(self._open):
            connection.abort("the broker is stopping", kind=STOPPING)

    async def sweep(self) -> None:
        """Closes connections that stall in the middle of a request or moved nothing for long."""
        while True:
            await asyncio.sleep(SWEEP_S)
            now_ms = self._clock.monotonic_ms()
            for connection in tuple(self._open):
                if connection.waits_for_memory:
                    continue
                began_ms = connection.frame_began_ms
                if began_ms is not None and now_ms - began_ms > self._settings.receive_timeout_ms:
                    connection.abort("half a request and nothing more (receive_timeout_ms)", kind="stalled")
                elif now_ms - connection.moved_ms > self._settings.idle_timeout_ms:
                    connection.abort("idle (idle_timeout_ms)", kind="idle")

    def reclaim(self) -> None:
        """While a request waits for memory, closes connections that hold some and do not go on.

        Looks again until none waits: a connection that holds memory then, and has sent
        nothing for a moment, is the next to go.
        """
        if self._reclaiming is not None:
            self._reclaiming.cancel()
        if not self._memory.wanted:
            return
        now_ms = self._clock.monotonic_ms()
        for connection in tuple(self._open):
            stalls = connection.holds_memory and now_ms - connection.moved_ms > STALLED_MS
            if stalls and not connection.waits_for_memory:
                connection.abort("a pause in a large request while others wait for memory", kind="stalled")
        loop = asyncio.get_running_loop()
        self._reclaiming = loop.call_later(STALLED_MS / 1000, self.reclaim)
