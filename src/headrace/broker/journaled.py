"""What the coordinators of groups and of transactions share: state that is a log.

Every decision is made on the event loop: it counts at once, its events are appended
as one batch, and it is answered when that batch is synced. Later decisions may build
on it meanwhile, because their events come later in the same log: nobody is told
anything that rests on what is not on disk. If a sync fails, memory and disk differ:
from then on every request is answered COORDINATOR_NOT_AVAILABLE until the topic has
been replayed. After a failure that makes it read-only it stays so until the broker is
restarted.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from headrace.broker.coordinator_journal import Journal, unavailable
from headrace.errors import RetriableError

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["RELOAD_DELAY_S", "Journaled"]

logger = logging.getLogger(__name__)

E = TypeVar("E")
T = TypeVar("T")
RELOAD_DELAY_S = 1.0


class Journaled(Generic[E]):
    """Keeps decisions durable; subclasses hold the state. Event loop only."""

    def __init__(self, broker: "Broker", journal: Journal[E]) -> None:
        self._broker = broker
        self._journal = journal
        self._available = False
        self._wake = asyncio.Event()

    async def load(self) -> None:
        """Replays the topic; sets `_available` unless it is damaged."""
        raise NotImplementedError

    def _give_up_waiting(self, error: RetriableError) -> None:
        """Fails whatever waits for a decision that will not come."""
        raise NotImplementedError

    @property
    def now_ms(self) -> int:
        """The time that deadlines are measured in."""
        return self._broker.clock.monotonic_ms()

    def check_available(self) -> None:
        """Raises RetriableError while what is in memory is not to be trusted."""
        if self._journal.failed and self._available:
            self._stop_serving()
        if not self._available:
            raise unavailable(f"{self._journal.what} are unavailable: the broker's log names the cause")

    def persist(self, events: Iterable[E]) -> None:
        """Appends events that belong together."""
        events = tuple(events)
        if not events:
            return
        try:
            self._journal.append(events)
        except RetriableError:
            self._stop_serving()
            raise

    async def settled(self, reply: T) -> T:
        """The reply, once nothing that it may rest on can be lost any more."""
        try:
            await self._journal.wait_synced()
        except RetriableError:
            self._wake.set()  # `run` reloads
            raise
        return reply

    def _stop_serving(self) -> None:
        """Memory is ahead of the disk: nobody is answered from it any more."""
        self._available = False
        self._give_up_waiting(unavailable(f"the topic of {self._journal.what} could not be written"))
        self._wake.set()

    async def _wait_until(self, due_ms: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(due_ms - self.now_ms, 0) / 1000):
                await self._wake.wait()
        self._wake.clear()

    async def _reload_if_failed(self) -> None:
        if not self._journal.failed:
            return
        if self._available:
            self._stop_serving()
        if not self._journal.is_read_only:
            await asyncio.sleep(RELOAD_DELAY_S)
            logger.warning("reading the topic of %s again after a failed write", self._journal.what)
            await self.load()
