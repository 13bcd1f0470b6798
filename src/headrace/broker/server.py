"""The broker: one event loop that owns every partition, group and connection."""

import asyncio
import logging
import os
import select
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, TypeVar

from headrace.addresses import host_and_port, is_loopback
from headrace.broker.access import Authority, guarded, server_context, sifted
from headrace.broker.apis import HANDLERS
from headrace.broker.apis.cluster import unsupported_version
from headrace.broker.apis.fetch import Attempt, Poll, fetch_at_once
from headrace.broker.apis.produce import produce, produce_again, repeatable
from headrace.broker.begun import Begun
from headrace.broker.committer import Committer
from headrace.broker.connection import Connection
from headrace.broker.coordinator import Coordinator
from headrace.broker.events import Events
from headrace.broker.http import metrics_endpoint
from headrace.broker.inspection import Inspector
from headrace.broker.lag_watch import LagWatch
from headrace.broker.memory import MemoryBudget
from headrace.broker.metrics_broker import Metrics
from headrace.broker.overload import Overload
from headrace.broker.partition import Partition
from headrace.broker.quotas import PRODUCER, Quotas
from headrace.broker.replies import Answer, Reply
from headrace.broker.settings import BrokerSettings
from headrace.broker.share import Shares
from headrace.broker.topics import Topics
from headrace.broker.transactions import Transactions
from headrace.clock import Clock, SystemClock
from headrace.errors import ConfigError
from headrace.groups import GroupSettings
from headrace.kernels.batches import Window
from headrace.kernels.library import address_of
from headrace.kernels.requests import ROOM_BYTES
from headrace.serving import descriptor_of
from headrace.storage import CompactionLimits, DataDirectory, Disk, PartitionLog
from headrace.wire import Api, MalformedError, Request, decode_request, encode_response, name_of
from headrace.wire.framing import SMALL_FRAME_BYTES, FrameBuffers
from headrace.wire.repeats import FetchShape

__all__ = ["Broker"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

STALLED_MS = 250
WINDOW_PARTS = 4  # of `fetch_window_bytes`, which are sent in one go
STOPPING = "stopping"


class Broker:
    """Serves Kafka's protocol from one data directory.

    `async with Broker(settings).serving() as broker:` listens until the block
    ends, then stops cleanly: no new requests, everything appended is synced,
    the directory is closed so that the next start has nothing to recover.
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
        self.clock = clock or SystemClock()
        self._disk = disk or Disk()
        self.scratch = memoryview(bytearray(SMALL_FRAME_BYTES))
        self.scratch_at = address_of(self.scratch)
        part = settings.fetch_window_bytes
        self.wide_window = Window(memoryview(bytearray(WINDOW_PARTS * part)), part)
        self.window = self.wide_window.octets[:part]  # its beginning
        self.room = memoryview(bytearray(ROOM_BYTES))  # for answers that are sent where they are written
        self.room_at = address_of(self.room)
        self.loop_descriptor = -1  # readable when the event loop has something to do, or -1
        self._waiting = select.poll()
        self.metrics = Metrics()
        self.metrics_port: int | None = None
        self.access = Authority(enforced=settings.authenticate, super_users=settings.super_principals())
        self.request_memory = MemoryBudget(settings.request_memory_bytes)
        self.frame_buffers = FrameBuffers(settings.request_memory_bytes)
        self._committer = Committer(settings.commit_threads)
        self._administrator = ThreadPoolExecutor(1, "headrace-topics")
        self._readers = ThreadPoolExecutor(2, "headrace-read")
        self._housekeeper = ThreadPoolExecutor(1, "headrace-upkeep")  # so that no reader waits for it
        self.inspector = Inspector(settings.max_decompressed_bytes, check_all=settings.check_records)
        self._connections: set[Connection] = set()
        self._reclaiming: asyncio.TimerHandle | None = None
        self._group_settings = group_settings or GroupSettings()
        self._tasks: asyncio.TaskGroup
        self.directory: DataDirectory
        self.topics: Topics
        self.coordinator: Coordinator
        self.events: Events
        self.overload: Overload
        self.quotas: Quotas
        self.transactions: Transactions
        self.shares: Shares
        self.lag_watch: LagWatch
        self.host, self.port = host_and_port("listen", settings.listen)

    # --- life ---------------------------------------------------------------------------------

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["Broker"]:
        """Opens the directory, listens, and undoes both at the end of the block."""
        self.loop_descriptor = descriptor_of(asyncio.get_running_loop())
        if self.loop_descriptor >= 0:
            self._waiting.register(self.loop_descriptor, select.POLLIN)
        self.directory = await self._open_directory()
        try:
            await self.access.load(self.directory.path, self._disk)
            self.topics = Topics(self.directory, self._administrator, self._committer)
            self.coordinator = Coordinator(self, self._group_settings)
            self.events, self.overload, self.lag_watch = Events(self), Overload(self), LagWatch(self)
            self.quotas = Quotas(self, self._disk)
            await self.quotas.load()
            await self.coordinator.load()
            self.transactions = Transactions(self, self._group_settings)
            await self.transactions.load()
            self.shares = Shares(self, self._group_settings)
            await self.shares.load()
            listener = await self._listen()
            async with metrics_endpoint(self) as self.metrics_port, asyncio.TaskGroup() as self._tasks:
                await listener.start_serving()
                upkeep = [self._tasks.create_task(self._sweep()), self._tasks.create_task(self._upkeep())]
                runs = self.coordinator, self.transactions, self.shares, self.events, self.overload
                for work in (*runs, self.lag_watch):
                    upkeep.append(self._tasks.create_task(work.run()))
                try:
                    yield self
                finally:
                    listener.close()
                    for task in upkeep:
                        task.cancel()
                    for connection in tuple(self._connections):
                        connection.abort("the broker is stopping", kind=STOPPING)
                    await self.events.close()
        finally:
            await self._close()

    async def _open_directory(self) -> DataDirectory:
        observe = self.metrics.sync_seconds.observe
        try:
            return await self.in_thread(
                DataDirectory, Path(self.settings.data), disk=self._disk, on_sync=observe
            )
        except OSError as error:
            raise ConfigError(
                f"cannot open the data directory {self.settings.data} ({error.strerror or error});"
                " mend it or choose another --data"
            ) from error

    async def _listen(self) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        try:
            server = await loop.create_server(
                lambda: Connection(self),
                self.host,
                self.port,
                backlog=2048,
                start_serving=False,
                **self._tls(),
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

    async def _close(self) -> None:
        self.access.close()
        if hasattr(self, "topics"):
            await self.topics.wait_idle()
        await self.in_thread(self.directory.close)
        self._committer.close()
        self._administrator.shutdown()
        self._readers.shutdown()
        self._housekeeper.shutdown()
        self.inspector.close()

    def in_thread(self, call: Callable[..., T], *args: Any, **named: Any) -> "asyncio.Future[T]":
        """Runs something that blocks on a worker thread."""
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._readers, lambda: call(*args, **named))

    async def _sweep(self) -> None:
        """Closes connections that stall in the middle of a request or moved nothing for long."""
        while True:
            await asyncio.sleep(1)
            now_ms = self.clock.monotonic_ms()
            for connection in tuple(self._connections):
                if connection.waits_for_memory:
                    continue
                began_ms = connection.frame_began_ms
                if began_ms is not None and now_ms - began_ms > self.settings.receive_timeout_ms:
                    connection.abort("half a request and nothing more (receive_timeout_ms)", kind="stalled")
                elif now_ms - connection.moved_ms > self.settings.idle_timeout_ms:
                    connection.abort("idle (idle_timeout_ms)", kind="idle")

    def reclaim(self) -> None:
        """While somebody waits for memory, closes those who hold some and do not go on.

        Looks again until nobody waits: whoever holds memory now and sends nothing
        for a moment is the next to go.
        """
        if self._reclaiming is not None:
            self._reclaiming.cancel()
        if not self.request_memory.wanted:
            return
        now_ms = self.clock.monotonic_ms()
        for connection in tuple(self._connections):
            stalls = connection.holds_memory and now_ms - connection.moved_ms > STALLED_MS
            if stalls and not connection.waits_for_memory:
                connection.abort("a pause in a large request while others wait for memory", kind="stalled")
        loop = asyncio.get_running_loop()
        self._reclaiming = loop.call_later(STALLED_MS / 1000, self.reclaim)

    async def _upkeep(self) -> None:
        """Retention and compaction, partition by partition, away from the event loop."""
        while True:
            await asyncio.sleep(self.settings.upkeep_interval_ms / 1000)
            await self.keep_up()

    async def keep_up(self) -> None:
        """One round of retention and compaction over all partitions."""
        for topic in tuple(self.directory.topics.values()):
            for log in tuple(topic.partitions):
                try:
                    work = await asyncio.get_running_loop().run_in_executor(
                        self._housekeeper, _keep_up, log, self.clock.now_ms(), self.settings
                    )
                    self.metrics.count_upkeep(topic.name, *work)
                    if work[0]:
                        self.lag_watch.hurry()
                except Exception:
                    self.metrics.upkeep_failures.add(1, topic.name)
                    logger.exception("retention or compaction of a partition of %s failed", topic.name)

    @property
    def is_asked_for(self) -> bool:
        """Whether something waits for the event loop at this moment, as far as can be told."""
        return self.loop_descriptor < 0 or bool(self._waiting.poll(0))

    # --- connections --------------------------------------------------------------------------

    def admit(self, connection: Connection) -> bool:
        """Takes a connection in, unless there are too many."""
        self.metrics.connections_opened.add(1)
        if len(self._connections) >= self.settings.max_connections:
            return False
        self._connections.add(connection)
        connection.task = self._tasks.create_task(connection.serve())
        return True

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def dismiss(self, connection: Connection, reason: str) -> None:
        """Forgets a connection that ended."""
        self.metrics.connections_closed.add(1, reason)
        self._connections.discard(connection)
        if reason != STOPPING:  # members keep their leases over a restart
            self.shares.disconnected(id(connection))

    def expel(self, principal: str) -> None:
        """Closes the connections of a user who is no more."""
        for connection in tuple(self._connections):
            if connection.session is not None and connection.session.principal == principal:
                connection.abort("its user was removed", kind="login")

    def release_frame(self, frame: bytearray) -> None:
        """Gives back the memory that a large frame had reserved."""
        if len(frame) > SMALL_FRAME_BYTES:
            self.request_memory.release(len(frame))
            self.frame_buffers.give_back(frame)

    # --- requests -----------------------------------------------------------------------------

    def start_produce(self, connection: Connection, frame: bytearray, version: int) -> Answer | Begun[Answer]:
        """Appends what a produce request carries; its answer has no reply for acks=0.

        One that has to wait before it appends is awaited first.
        """
        last = connection.last_produce
        if last is not None and (parts := last.parts_of(self, frame, version)) is not None:
            throttle_ms = self._charge(connection, last.client_id, frame)
            return produce_again(self, last, parts, frame, throttle_ms)
        try:
            if version not in HANDLERS[Api.PRODUCE].versions:
                raise MalformedError(f"produce v{version} is not served")
            request = decode_request(
                frame, Api.PRODUCE, version, client_host=connection.client_host, session=connection.session
            )
        except MalformedError:
            self.release_frame(frame)
            raise
        if connection.session is not None:
            request = sifted(self, request)
        throttle_ms = self._charge(connection, request.client_id, frame)
        if throttle_ms:
            request = request._replace(throttle_ms=throttle_ms)
        connection.last_produce = repeatable(self, request, frame)
        return produce(self, request, frame)

    def _charge(self, connection: Connection, client_id: str | None, frame: bytearray) -> int:
        """Counts what a client produces; for how long it shall wait, in ms."""
        throttle_ms = self.quotas.charge(PRODUCER, client_id, len(frame))
        if throttle_ms:  # now, not with the answer: more requests may be on their way already
            connection.mute(throttle_ms)
        return throttle_ms

    async def answer(self, connection: Connection, frame: bytearray, api_key: int, version: int) -> Reply:
        """The answer to any request but produce."""
        handler = HANDLERS.get(api_key)
        if handler is None or version not in handler.versions:
            if api_key == Api.API_VERSIONS:
                return Reply(unsupported_version(self, _correlation_id(frame)))
            raise MalformedError(f"{name_of(api_key)} v{version} is not served")
        request = _request(connection, frame, api_key, version)
        if connection.session is None:
            answer = await handler.call(self, request)
        else:
            answer = await guarded(self, handler.call, request)
        if isinstance(answer, Reply):
            return answer
        self.metrics.count_errors(api_key, answer)
        return Reply(encode_response(api_key, version, request.correlation_id, answer))

    def start_fetch(
        self, connection: Connection, frame: bytearray, version: int, tell: Callable[[], None]
    ) -> Reply | Poll | None:
        """The answer to a fetch, or the wait for it; None if it is to be answered as any other request."""
        attempt = connection.last_fetch
        if attempt is None or not attempt.is_asked_again(frame, version, _correlation_id(frame)):
            if version not in HANDLERS[Api.FETCH].versions:
                return None
            request = _request(connection, frame, Api.FETCH, version)
            if request.body.session_epoch > 0:
                return None
            attempt = connection.last_fetch = Attempt(self, request, FetchShape.of(frame, version))
        return fetch_at_once(attempt, tell)

    def advertised(self, request: Request) -> tuple[str, int]:
        """The address that a client is told to use: what is configured, or where it reached us."""
        if self.settings.advertise:
            return host_and_port("advertise", self.settings.advertise)
        return request.local_address

    def partition(self, topic: str, index: int) -> Partition | None:
        """A partition by name and number, if it is there."""
        return self.topics.partition(topic, index)


def _request(connection: Connection, frame: bytearray, api_key: int, version: int) -> Request:
    return decode_request(
        frame,
        api_key,
        version,
        client_host=connection.client_host,
        local_address=connection.local_address,
        session=connection.session,
        connection=id(connection),
    )


def _keep_up(log: PartitionLog, now_ms: int, settings: BrokerSettings) -> tuple[int, int, float]:
    """Whichever the topic is configured for: segments deleted, bytes saved, seconds; worker thread."""
    began = perf_counter()
    log.forget_idle_producers(now_ms, settings.producer_id_expiration_ms)
    deleted = len(log.apply_retention(now_ms))
    limits = CompactionLimits(
        map_bytes=settings.compaction_map_bytes, read_bytes=settings.compaction_read_bytes
    )
    return deleted, log.compact(now_ms, limits), perf_counter() - began


def _correlation_id(frame: bytearray) -> int:
    return int.from_bytes(frame[4:8], "big", signed=True)
