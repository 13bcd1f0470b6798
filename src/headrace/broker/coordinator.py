"""The coordinator of groups: the shell around the pure machines of `groups`.

Theory of operation. Every decision is made on the event loop: it changes the
table at once, its events are appended as one batch, and its answers are sent
when that batch is synced. Later decisions may build on it meanwhile, because their
events come later in the same log: nobody is told anything that rests on what is
not on disk. If a sync fails, memory and disk differ: from then on every request is
answered COORDINATOR_NOT_AVAILABLE, everything parked too, until `run` has
replayed the topic again. After a failure that makes the topic read-only it stays so
until the broker is restarted.

A parked request (a join, a sync) waits on a future under its ticket. One task, `run`,
owns all deadlines.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.broker.coordinator_journal import Journal, unavailable
from headrace.broker.coordinator_table import Entry, GroupTable
from headrace.broker.topics import INTERNAL_TOPICS
from headrace.errors import CorruptionError, RetriableError
from headrace.groups import Answer, Code, Decision, GroupEvent, GroupSettings, TopicInfo, classic, consumer
from headrace.groups.classic import ClassicGroup, JoinReply, JoinRequest, SyncReply, SyncRequest
from headrace.groups.consumer import Catalog, ConsumerGroup, ConsumerHeartbeat, ConsumerReply
from headrace.groups.events import GroupRemoved, OffsetCommitted, OffsetRemoved
from headrace.groups.offsets import (
    Committer,
    commit_refusal,
    delete_refusal,
    expired_offsets,
    fetch_refusal,
    is_empty,
)

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["Coordinator"]

logger = logging.getLogger(__name__)

T = TypeVar("T")
RELOAD_DELAY_S = 1.0


class Coordinator:
    """Groups and committed offsets of one broker. Event loop only.

    Methods raise RetriableError (COORDINATOR_NOT_AVAILABLE) when what they
    decided could not be made durable.
    """

    def __init__(self, broker: "Broker", settings: GroupSettings) -> None:
        self.settings = settings
        self._broker = broker
        self._journal = Journal(broker)
        self._table = GroupTable()
        self._available = False
        self._tickets = itertools.count(1)
        self._parked: dict[int, asyncio.Future[Any]] = {}
        self._due: list[tuple[int, str]] = []
        self._wake = asyncio.Event()
        self._catalog: Catalog | None = None
        self._catalog_version = 0
        broker.topics.on_change.append(self._topic_changed)

    # --- life ---------------------------------------------------------------------------------

    async def load(self) -> None:
        """Replays the topic of groups. Damage in it leaves groups unavailable and is logged."""
        self._table, self._due = GroupTable(), []
        try:
            await self._journal.open(self._table.replay, skip_damage=self.settings.groups_skip_damage)
        except CorruptionError as error:
            logger.error(
                "groups are unavailable: %s (or start with groups_skip_damage and accept the loss)", error
            )
            return
        for entry in self._table:
            self._rouse(entry)
        self._available = True
        self._forget_offsets_of_deleted_topics()

    def _rouse(self, entry: Entry) -> None:
        now_ms = self._broker.clock.monotonic_ms()
        if isinstance(entry.group, ClassicGroup):
            entry.group = classic.woken(entry.group, now_ms)
        else:
            entry.group = consumer.woken(entry.group, self.settings, now_ms)
        self._schedule(entry)

    async def run(self) -> None:
        """Expires what is overdue, until cancelled; reloads after a failure."""
        next_check_ms = self._now_ms() + self.settings.offsets_retention_check_interval_ms
        while True:
            try:
                self._expire_groups()
                if self._now_ms() >= next_check_ms:
                    next_check_ms = self._now_ms() + self.settings.offsets_retention_check_interval_ms
                    self.forget_expired()
                await self._wait_until(min([next_check_ms, *(due for due, _ in self._due[:1])]))
                await self._reload_if_failed()
            except RetriableError as error:
                logger.error("%s", error)

    async def _wait_until(self, due_ms: int) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(max(due_ms - self._now_ms(), 0) / 1000):
                await self._wake.wait()
        except TimeoutError:
            pass

    async def _reload_if_failed(self) -> None:
        if self._journal.failed:
            self._stop_serving()
        if self._available or not self._journal.failed or self._journal.is_read_only:
            return
        await asyncio.sleep(RELOAD_DELAY_S)
        logger.warning("reading the topic of groups again after a failed write")
        await self.load()

    def _stop_serving(self) -> None:
        """Memory is ahead of the disk: answer nobody from it."""
        self._available = False
        self._due.clear()
        for future in self._parked.values():
            if not future.done():
                future.set_exception(unavailable("the topic of groups could not be written"))
        self._parked.clear()
        self._wake.set()

    # --- decisions ----------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return self._broker.clock.monotonic_ms()

    def _check_available(self) -> None:
        if self._journal.failed:
            self._stop_serving()
        if not self._available:
            raise unavailable("groups are unavailable: see the broker's log for the cause")

    def _persist(self, events: Iterable[GroupEvent]) -> None:
        events = tuple(events)
        if not events:
            return
        try:
            self._journal.append(events)
        except RetriableError:
            self._stop_serving()
            raise

    def _take(self, entry: Entry, decision: Decision[Any]) -> None:
        """Makes the decision hold: persisted first (queued), then in memory, then answered."""
        if decision.events:
            self._persist(decision.events)
            entry.changed_ms = self._broker.clock.now_ms()
        entry.group = decision.group
        self._table.put(entry)
        for answer in decision.answers:
            self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        # Whoever waits under the ticket waits for the sync before it passes the reply on.
        future = self._parked.pop(answer.ticket, None)
        if future is not None and not future.done():
            future.set_result(answer.reply)

    async def _settled(self, reply: T) -> T:
        """The reply, once nothing that it may rest on can be lost any more."""
        try:
            await self._journal.wait_synced()
        except RetriableError:
            self._stop_serving()
            raise
        return reply

    async def _parked_or(self, ticket: int, decision: Decision[Any]) -> Any:
        if decision.reply is not None:
            self._parked.pop(ticket, None)
            return await self._settled(decision.reply)
        return await self._settled(await self._parked_reply(ticket))

    async def _parked_reply(self, ticket: int) -> Any:
        future = self._futures.pop(ticket)
        try:
            return await future
        finally:
            self._parked.pop(ticket, None)

    # --- classic groups -----------------------------------------------------------------------
