"""Groups and committed offsets, kept durable: the shell around the pure machines of `groups`.

A decision is appended to `__consumer_offsets`, counts, and is answered when it is synced
(`journal`). A parked request (a join, a sync) waits on a future under its ticket. One
task, `run`, owns all deadlines.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Iterable
from typing import Any

from headrace.broker.coordinators.deadlines import Deadlines
from headrace.broker.coordinators.group_table import GroupEntry, GroupTable
from headrace.broker.coordinators.journal import Journal
from headrace.broker.log import Topics, WorkerThreads
from headrace.clock import Clock
from headrace.errors import RetriableError
from headrace.groups import (
    Decision,
    GroupEvent,
    GroupRemoved,
    GroupSettings,
    OffsetRemoved,
    PendingOffsetRemoved,
    classic,
    consumer,
    decode,
    encode,
    expired_offsets,
    is_empty,
)
from headrace.groups.classic import ClassicGroup

__all__ = ["OFFSETS_TOPIC", "GroupStore", "Ticket"]

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
_MINUTE_MS = 60_000


class Ticket:
    """A request that may have to wait, and the number under which it is answered."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


class GroupStore:
    """Makes decisions about groups durable, and answers in time. Event loop only."""

    def __init__(self, topics: Topics, threads: WorkerThreads, clock: Clock, settings: GroupSettings) -> None:
        self.settings = settings
        self.table = GroupTable()
        self.journal: Journal[GroupEvent] = Journal(
            topics,
            threads,
            clock,
            topic=OFFSETS_TOPIC,
            what="groups",
            encode=encode,
            decode=decode,
            on_failure=self._give_up,
        )
        self._topics = topics
        self._clock = clock
        self._deadlines: Deadlines[str] = Deadlines(clock)
        self._numbers = itertools.count(1)
        self._parked: dict[int, Ticket] = {}
        topics.on_change.append(self._topic_changed)

    @property
    def now_ms(self) -> int:
        """The time in which deadlines are measured."""
        return self._deadlines.now_ms

    # --- life ---------------------------------------------------------------------------------

    async def load(self) -> None:
        """Replays the topic of groups. Damage in it leaves groups unavailable and is logged."""
        self.table.clear()
        self._deadlines.clear()
        skip_damage = self.settings.groups_skip_damage
        replay = self.table.replay
        if not await self.journal.open(replay, skip_damage=skip_damage, setting="groups_skip_damage"):
            return
        for entry in self.table:
            self._wake(entry)
        self.journal.serve()
        self._forget_lost_topics()

    def _wake(self, entry: GroupEntry) -> None:
        if isinstance(entry.group, ClassicGroup):
            entry.group = classic.woken(entry.group, self.now_ms)
        else:
            entry.group = consumer.woken(entry.group, self.settings, self.now_ms)
        self._schedule(entry)

    async def run(self) -> None:
        """Expires what is overdue and reloads after a failure, until cancelled."""
        check_ms = self.now_ms + self.settings.offsets_retention_check_interval_ms
        while True:
            await self._deadlines.wait(check_ms)
            try:
                await self.journal.reload_if_failed(self.load)
                self._expire_groups()
                if self.now_ms >= check_ms:
                    check_ms = self.now_ms + self.settings.offsets_retention_check_interval_ms
                    self.forget_expired()
            except RetriableError as error:
                logger.error("%s", error)

    def _give_up(self, error: RetriableError) -> None:
        """Fails the requests that are parked; `run` reloads."""
        self._deadlines.clear()
        for ticket in self._parked.values():
            if not ticket.future.done():
                ticket.future.set_exception(error)
                ticket.future.exception()  # the client may be gone: mark it as seen
        self._parked.clear()
        self._deadlines.wake()

    # --- decisions ----------------------------------------------------------------------------

    def take(self, entry: GroupEntry, decision: Decision[Any], *, sign_of_life: bool = False) -> None:
        """Makes a decision hold: its events are queued, then it counts, then it is answered.

        A mere `sign_of_life` only moves deadlines away, so the timer need not look at them.
        """
        self.journal.append(decision.events)
        if decision.events:
            entry.changed_ms = self._clock.now_ms()
        entry.group = decision.group
        group_id = entry.group.group_id
        if entry.leaves_no_trace:
            self.table.drop(group_id)
        else:
            self.table.put(entry)
            if not sign_of_life or decision.events or group_id not in self._deadlines:
                self._schedule(entry)
        for answer in decision.answers:
            # The request that waits under the ticket awaits the sync before it passes the reply on.
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
        return await self.journal.settled(reply)

    # --- time ---------------------------------------------------------------------------------

    def _schedule(self, entry: GroupEntry) -> None:
        group = entry.group
        if isinstance(group, ClassicGroup):
            due_ms = classic.next_deadline_ms(group)
        else:
            due_ms = consumer.next_deadline_ms(group)
        self._deadlines.schedule(group.group_id, due_ms)

    def _expire_groups(self) -> None:
        for group_id in self._deadlines.due():
            entry = self.table.get(group_id)
            if entry is not None:
                self.take(entry, self._expired(entry, self.now_ms))

    def _expired(self, entry: GroupEntry, now_ms: int) -> Decision[Any]:
        group = entry.group
        if isinstance(group, ClassicGroup):
            return classic.expire(group, self.settings, now_ms)
        return consumer.expire(group, now_ms)

    # --- forgetting ---------------------------------------------------------------------------

    def forget_expired(self) -> None:
        """Forgets offsets whose retention is over, and empty groups that have none."""
        for entry in self.table:
            removed = expired_offsets(
                entry.group,
                entry.offsets,
                idle_since_ms=entry.changed_ms,
                retention_ms=self.settings.offsets_retention_minutes * _MINUTE_MS,
                now_ms=self._clock.now_ms(),
            )
            self.remove_offsets(removed)
            if not entry.keeps_offsets and is_empty(entry.group):
                self.remove_group(entry)

    def remove_offsets(self, removed: Iterable[OffsetRemoved]) -> None:
        """Tombstones for the offsets, and they are gone."""
        removed = tuple(removed)
        self.journal.append(removed)
        for event in removed:
            self.table.replay_offset(event)

    def remove_group(self, entry: GroupEntry) -> None:
        """Tombstones for a group and whatever offsets it has."""
        group_id = entry.group.group_id
        offsets = [
            OffsetRemoved(group_id=group_id, topic=topic, partition=index) for topic, index in entry.offsets
        ]
        pending = [
            PendingOffsetRemoved(group_id=group_id, producer_id=producer_id, topic=topic, partition=index)
            for producer_id, topic, index in entry.pending
        ]
        self.journal.append([*offsets, *pending, GroupRemoved(group_id=group_id)])
        self.table.drop(group_id)

    def _topic_changed(self, name: str) -> None:
        if self.journal.is_available and self._topics.named(name) is None:
            with contextlib.suppress(RetriableError):  # unavailable from here on; the reload forgets them
                self._forget_lost_topics()

    def _forget_lost_topics(self) -> None:
        """Forgets offsets of topics that are gone, also if one of the same name came after."""
        for entry in self.table:
            self.remove_offsets(
                OffsetRemoved(group_id=offset.group_id, topic=offset.topic, partition=offset.partition)
                for offset in tuple(entry.offsets.values())
                if self._topics.with_id(offset.topic_id) is None
            )
