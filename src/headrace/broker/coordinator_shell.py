"""The shell around the pure machines of `groups`: parked requests and deadlines (see `journaled`).

A parked request (a join, a sync) waits on a future under its ticket. One task, `run`,
owns all deadlines.
"""

import asyncio
import heapq
import itertools
import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.broker.coordinator_journal import Journal
from headrace.broker.coordinator_table import Entry, GroupTable
from headrace.broker.journaled import Journaled
from headrace.errors import CorruptionError, RetriableError
from headrace.groups import Decision, GroupEvent, GroupSettings, classic, consumer
from headrace.groups.classic import ClassicGroup
from headrace.groups.events import GroupRemoved, OffsetRemoved, PendingOffsetRemoved
from headrace.groups.journal import decode, encode
from headrace.groups.offsets import expired_offsets, is_empty

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["OFFSETS_TOPIC", "CoordinatorShell", "Ticket"]

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
_MINUTE_MS = 60_000


class Ticket:
    """A request that may have to wait, and the number under which it is answered."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class CoordinatorShell(Journaled[GroupEvent]):
    """Keeps decisions durable and answers in time. Event loop only."""

    def __init__(self, broker: "Broker", settings: GroupSettings) -> None:
        super().__init__(broker, Journal(broker, OFFSETS_TOPIC, "groups", encode=encode, decode=decode))
        self.settings = settings
        self._table = GroupTable()
        self._numbers = itertools.count(1)
        self._parked: dict[int, Ticket] = {}
        self._due: list[tuple[int, str]] = []

    # --- life ---------------------------------------------------------------------------------

    async def load(self) -> None:
        """Replays the topic of groups. Damage in it leaves groups unavailable and is logged."""
        self._table, self._due = GroupTable(), []
        try:
            await self._journal.open(self._table.replay, skip_damage=self.settings.groups_skip_damage)
        except CorruptionError as error:
            logger.error("groups are unavailable: %s; or set groups_skip_damage and accept the loss", error)
            return
        for entry in self._table:
            self._rouse(entry)
        self._available = True
        self._forget_lost_topics()

    def _rouse(self, entry: Entry) -> None:
        if isinstance(entry.group, ClassicGroup):
            entry.group = classic.woken(entry.group, self.now_ms)
        else:
            entry.group = consumer.woken(entry.group, self.settings, self.now_ms)
        self._schedule(entry)

    async def run(self) -> None:
        """Expires what is overdue and reloads after a failure, until cancelled."""
        check_ms = self.now_ms + self.settings.offsets_retention_check_interval_ms
        while True:
            due_ms = min([check_ms, *(deadline for deadline, _ in self._due[:1])])
            await self._wait_until(due_ms)
            try:
                await self._reload_if_failed()
                self._expire_groups()
                if self.now_ms >= check_ms:
                    check_ms = self.now_ms + self.settings.offsets_retention_check_interval_ms
                    self.forget_expired()
            except RetriableError as error:
                logger.error("%s", error)

    def _give_up_waiting(self, error: RetriableError) -> None:
        self._due.clear()
        for ticket in self._parked.values():
            if not ticket.future.done():
                ticket.future.set_exception(error)
                ticket.future.exception()  # the client may be gone: mark it as seen
        self._parked.clear()

    # --- decisions ----------------------------------------------------------------------------

    def take(self, entry: Entry, decision: Decision[Any], *, sign_of_life: bool = False) -> None:
        """Makes a decision hold: its events are queued, then it counts, then it is answered.

        A mere `sign_of_life` only moves deadlines away, so the timer need not look at them.
        """
        self.persist(decision.events)
        if decision.events:
            entry.changed_ms = self._broker.clock.now_ms()
        entry.group = decision.group
        if entry.leaves_no_trace:
            self._table.drop(entry.group.group_id)
        else:
            self._table.put(entry)
            if not sign_of_life or decision.events or entry.scheduled_ms is None:
                self._schedule(entry)
        for answer in decision.answers:
            # Whoever waits under the ticket waits for the sync before it passes the reply on.
            ticket = self._parked.pop(answer.ticket, None)
            if ticket is not None and not ticket.future.done():
                ticket.future.set_result(answer.reply)

    def ticket(self) -> Ticket:
        """A place for a request that may have to wait."""
        ticket = Ticket(next(self._numbers))
        self._parked[ticket.number] = ticket
        return ticket

    async def wait_reply(self, ticket: Ticket, decision: Decision[Any]) -> Any:
        """The reply that was given at once, or the one that the parked request gets."""
        try:
            reply = decision.reply if decision.reply is not None else await ticket.future
        finally:
            self._parked.pop(ticket.number, None)
        return await self.settled(reply)

    # --- time ---------------------------------------------------------------------------------

    def _schedule(self, entry: Entry) -> None:
        group = entry.group
        if isinstance(group, ClassicGroup):
            due_ms = classic.next_deadline_ms(group)
        else:
            due_ms = consumer.next_deadline_ms(group)
        if due_ms is None or (entry.scheduled_ms is not None and entry.scheduled_ms <= due_ms):
            return
        entry.scheduled_ms = due_ms
        heapq.heappush(self._due, (due_ms, group.group_id))
        if self._due[0][0] == due_ms:
            self._wake.set()

    def _expire_groups(self) -> None:
        now_ms = self.now_ms
        while self._due and self._due[0][0] <= now_ms:
            due_ms, group_id = heapq.heappop(self._due)
            entry = self._table.get(group_id)
            if entry is not None and entry.scheduled_ms == due_ms:
                entry.scheduled_ms = None
                self.take(entry, self._expired(entry, now_ms))

    def _expired(self, entry: Entry, now_ms: int) -> Decision[Any]:
        group = entry.group
        if isinstance(group, ClassicGroup):
            return classic.expire(group, self.settings, now_ms)
        return consumer.expire(group, now_ms)

    # --- forgetting ---------------------------------------------------------------------------

    def forget_expired(self) -> None:
        """Forgets offsets whose retention is over, and empty groups that have none."""
        for entry in self._table:
            removed = expired_offsets(
                entry.group,
                entry.offsets,
                idle_since_ms=entry.changed_ms,
                retention_ms=self.settings.offsets_retention_minutes * _MINUTE_MS,
                now_ms=self._broker.clock.now_ms(),
            )
            self.remove_offsets(removed)
            if not entry.keeps_offsets and is_empty(entry.group):
                self.remove_group(entry)

    def remove_offsets(self, removed: Iterable[OffsetRemoved]) -> None:
        """Tombstones for the offsets, and they are gone."""
        removed = tuple(removed)
        self.persist(removed)
        for event in removed:
            self._table.replay_offset(event)

    def remove_group(self, entry: Entry) -> None:
        """Tombstones for a group and whatever offsets it has."""
        group_id = entry.group.group_id
        offsets = [
            OffsetRemoved(group_id=group_id, topic=topic, partition=index) for topic, index in entry.offsets
        ]
        pending = [
            PendingOffsetRemoved(group_id=group_id, producer_id=producer_id, topic=topic, partition=index)
            for producer_id, topic, index in entry.pending
        ]
        self.persist([*offsets, *pending, GroupRemoved(group_id=group_id)])
        self._table.drop(group_id)

    def _forget_lost_topics(self) -> None:
        """Forgets offsets of topics that are gone, also if one of the same name came after."""
        topics = self._broker.topics
        for entry in self._table:
            self.remove_offsets(
                OffsetRemoved(group_id=offset.group_id, topic=offset.topic, partition=offset.partition)
                for offset in tuple(entry.offsets.values())
                if topics.with_id(offset.topic_id) is None
            )
