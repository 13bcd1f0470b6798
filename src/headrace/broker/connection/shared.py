"""What all connections of a broker share: buffers, and the services that requests lead to."""

import asyncio
import dataclasses
import select

from headrace.broker.access import Authority
from headrace.broker.apis.dispatch import Dispatcher
from headrace.broker.apis.handlers import handlers
from headrace.broker.apis.records import Fetching, Produce
from headrace.broker.apis.sasl import SaslApis
from headrace.broker.connection.connections import Connections
from headrace.broker.limits import Quotas, RequestMemory
from headrace.broker.log import Inspector, Topics, WorkerThreads
from headrace.broker.metrics import Metrics
from headrace.broker.services import Services
from headrace.broker.settings import BrokerSettings
from headrace.clock import Clock
from headrace.event_loop import descriptor_of
from headrace.kernels import ROOM_BYTES, SendWindow, address_of
from headrace.wire import SMALL_FRAME_BYTES

__all__ = ["Buffers", "LoopLoad", "Shared", "shared_by_connections"]

WINDOW_PARTS = 4  # of `fetch_window_bytes`, which are sent in one go


class Buffers:
    """Memory that every connection uses for a moment, without waiting for anything meanwhile."""

    def __init__(self, window_bytes: int) -> None:
        self.scratch = memoryview(bytearray(SMALL_FRAME_BYTES))  # where requests are received
        self.scratch_at = address_of(self.scratch)
        self.wide_window = SendWindow(memoryview(bytearray(WINDOW_PARTS * window_bytes)), window_bytes)
        self.window = self.wide_window.octets[:window_bytes]  # its beginning
        self.room = memoryview(bytearray(ROOM_BYTES))  # for answers that are sent where they are written
        self.room_at = address_of(self.room)


class LoopLoad:
    """Whether something waits for the event loop. `descriptor` is readable then, or -1 if none tells."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.descriptor = descriptor_of(loop)
        self._poll = select.poll()
        if self.descriptor >= 0:
            self._poll.register(self.descriptor, select.POLLIN)

    @property
    def is_idle(self) -> bool:
        """Whether it is known that nothing waits."""
        return self.descriptor >= 0 and not self._poll.poll(0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """One for all connections of a broker."""

    settings: BrokerSettings
    clock: Clock
    metrics: Metrics
    memory: RequestMemory
    threads: WorkerThreads
    access: Authority
    topics: Topics
    quotas: Quotas
    inspector: Inspector
    sasl: SaslApis
    dispatcher: Dispatcher
    connections: Connections
    buffers: Buffers
    loop_load: LoopLoad


def shared_by_connections(services: Services, connections: Connections) -> Shared:
    """Puts the families of handlers together, and the buffers."""
    settings = services.settings
    fetching = Fetching(
        topics=services.topics,
        quotas=services.quotas,
        metrics=services.metrics,
        threads=services.threads,
        most_wait_ms=settings.idle_timeout_ms,
        most_bytes=settings.fetch_max_bytes,
    )
    produce = Produce(
        topics=services.topics,
        inspector=services.inspector,
        overload=services.overload,
        transactions=services.transactions,
        memory=services.memory,
        metrics=services.metrics,
        clock=services.clock,
    )
    sasl = SaslApis(access=services.access)
    dispatcher = Dispatcher(
        handlers(services, fetching, sasl, connections.expel),
        produce,
        fetching,
        topics=services.topics,
        quotas=services.quotas,
        memory=services.memory,
        metrics=services.metrics,
        auto_create_topics=settings.auto_create_topics,
    )
    return Shared(
        settings=settings,
        clock=services.clock,
        metrics=services.metrics,
        memory=services.memory,
        threads=services.threads,
        access=services.access,
        topics=services.topics,
        quotas=services.quotas,
        inspector=services.inspector,
        sasl=sasl,
        dispatcher=dispatcher,
        connections=connections,
        buffers=Buffers(settings.fetch_window_bytes),
        loop_load=LoopLoad(asyncio.get_running_loop()),
    )
