"""Queues, kept durable: the shell around the pure machines of `groups.share`.

A decision counts at once, is appended to `__share_group_state`, and is answered when it is
synced (`journal`): a delivery is counted before the record leaves the broker, and
an acknowledgement is on disk before its consumer hears of it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable

from headrace.broker.coordinators.deadlines import Deadlines
from headrace.broker.coordinators.journal import Journal
from headrace.broker.coordinators.queues.table import QueuePartition, QueueTable, queue_partition
from headrace.broker.log import Topics, WorkerThreads
from headrace.clock import Clock
from headrace.errors import RetriableError
from headrace.groups import GroupSettings
from headrace.groups import share as machine
from headrace.groups.share import (
    ShareDecision,
    ShareEvent,
    ShareGroup,
    SharePartition,
    SharePartitionRemoved,
    SharePartitionSaved,
    decode,
    encode,
)

__all__ = ["SHARE_TOPIC", "QueueStore"]

logger = logging.getLogger(__name__)

SHARE_TOPIC = "__share_group_state"
IDLE_MS = 60_000


class QueueStore:
    """Holds every queue; ends leases and memberships in time. Event loop only."""

    def __init__(self, topics: Topics, threads: WorkerThreads, clock: Clock, settings: GroupSettings) -> None:
        self.settings = settings
        self.table = QueueTable(settings)
        self.journal: Journal[ShareEvent] = Journal(
            topics,
            threads,
            clock,
            topic=SHARE_TOPIC,
            what="queues",
            encode=encode,
            decode=decode,
            on_failure=self._give_up,
        )
        # Partitions with records that are to become dead letters.
        self.given_up: dict[QueuePartition, None] = {}
        self.has_given_up = asyncio.Event()
        self._topics = topics
        self._deadlines: Deadlines[str | QueuePartition] = Deadlines(clock)
        self._readers: dict[QueuePartition, set[Callable[[], None]]] = {}
        topics.on_change.append(self._topic_changed)

    @property
    def now_ms(self) -> int:
        """The time in which leases are measured."""
        return self._deadlines.now_ms

    # --- life ---------------------------------------------------------------------------------

    async def load(self) -> None:
        """Replays the topic of queues. Damage in it leaves queues unavailable and is logged."""
        self.table.clear()
        self.given_up.clear()
        self._deadlines.clear()
        skip_damage = self.settings.group_share_skip_damage
        replay = self.table.replay
        if not await self.journal.open(replay, skip_damage=skip_damage, setting="group_share_skip_damage"):
            return
        self.journal.serve()
        for group in tuple(self.table.groups.values()):
            self._hold_group(machine.rouse(group, self.table.config(group.group_id), self.now_ms))
        self._forget_lost_topics()
        for partition in tuple(self.table.partitions.values()):
            config = self.table.config(partition.group_id)
            self._hold_partition(machine.woken(partition, config, self.now_ms))

    async def run(self) -> None:
        """Ends what is overdue and reloads after a failure, until cancelled."""
        while True:
            await self._deadlines.wait(self.now_ms + IDLE_MS)
            try:
                await self.journal.reload_if_failed(self.load)
                if self.journal.is_available:
                    self._expire()
            except RetriableError as error:
                logger.error("%s", error)

    def _give_up(self, _: RetriableError) -> None:
        """Requests that wait have a time limit; `run` reloads."""
        self._deadlines.clear()
        self._deadlines.wake()

    # --- decisions ----------------------------------------------------------------------------

    def take_group(self, decision: ShareDecision[ShareGroup]) -> None:
        """Makes a decision about members hold."""
        self.journal.append(decision.events)
        self._hold_group(decision.state)

    def take_partition(self, decision: ShareDecision[SharePartition]) -> None:
        """Makes a decision about a partition hold; wakes the fetches that it gives something to read."""
        self.journal.append(decision.events)
        self._hold_partition(decision.state)

    def add_partitions(self, partitions: Iterable[SharePartition]) -> None:
        """What queues know of partitions from now on, whatever they knew before."""
        new = tuple(partitions)
        self.journal.append(SharePartitionSaved(partition=each) for each in new)
        for each in new:
            self._hold_partition(each)

    def apply(self, *events: ShareEvent) -> None:
        """Makes events hold as they are, in one batch."""
        self.journal.append(events)
        for event in events:
            self.table.replay(event)

    def remove_partitions(self, places: Iterable[QueuePartition]) -> None:
        """Tombstones for what is known of partitions."""
        self.apply(
            *(
                SharePartitionRemoved(group_id=group_id, topic_id=topic_id, partition=index)
                for group_id, topic_id, index in places
            )
        )

    def _hold_group(self, group: ShareGroup) -> None:
        self.table.groups[group.group_id] = group
        self._deadlines.schedule(group.group_id, group.next_deadline_ms())

    def _hold_partition(self, partition: SharePartition) -> None:
        place = queue_partition(partition)
        before = self.table.partitions.get(place)
        self.table.partitions[place] = partition
        self._deadlines.schedule(place, partition.next_deadline_ms())
        if partition.burial is not None or machine.given_up(partition):
            self.given_up[place] = None
            self.has_given_up.set()
        if before is not None and (
            partition.next_offset() < before.end_offset or partition.in_flight < before.in_flight
        ):
            self._wake_readers(place)

    # --- fetches that wait --------------------------------------------------------------------

    def on_available(self, place: QueuePartition, wake: Callable[[], None]) -> None:
        """Calls `wake` whenever the partition may have something to deliver again."""
        self._readers.setdefault(place, set()).add(wake)

    def forget(self, place: QueuePartition, wake: Callable[[], None]) -> None:
        readers = self._readers.get(place)
        if readers is not None:
            readers.discard(wake)
            if not readers:
                del self._readers[place]

    def _wake_readers(self, place: QueuePartition) -> None:
        for wake in tuple(self._readers.get(place, ())):
            wake()

    # --- time ---------------------------------------------------------------------------------

    def _expire(self) -> None:
        now_ms = self.now_ms
        for key in self._deadlines.due():
            if isinstance(key, str):
                group = self.table.groups.get(key)
                if group is not None:
                    self.take_group(machine.expire_members(group, now_ms))
            elif key in self.table.partitions:
                self._expire_leases(self.table.partitions[key], now_ms)

    def _expire_leases(self, partition: SharePartition, now_ms: int) -> None:
        config = self.table.config(partition.group_id)
        group = self.table.groups.get(partition.group_id)

        def is_kept(member: str) -> bool:
            return config.lease_by_heartbeat and group is not None and member in group.members

        self.take_partition(machine.expire(partition, config, now_ms, is_kept=is_kept))

    # --- topics -------------------------------------------------------------------------------

    def _topic_changed(self, name: str) -> None:
        if self.journal.is_available and self._topics.named(name) is None:
            try:
                self._forget_lost_topics()
            except RetriableError as error:
                logger.error("%s", error)

    def _forget_lost_topics(self) -> None:
        self.remove_partitions(
            [place for place in self.table.partitions if self._topics.with_id(place[1]) is None]
        )
