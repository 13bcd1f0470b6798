"""The shell around the pure machines of `groups.share`: decisions made durable, leases, readers that wait.

A decision counts at once, is appended to `__share_group_state`, and is answered when it is
synced (see `journaled`): a delivery is counted before the record leaves the broker, and
an acknowledgement is on disk before its consumer hears of it.
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.broker.coordinator_journal import Journal
from headrace.broker.journaled import Journaled
from headrace.broker.share_table import Place, ShareTable, place_of
from headrace.errors import CorruptionError, RetriableError
from headrace.groups import GroupSettings
from headrace.groups import share as machine
from headrace.groups.share import ShareDecision, ShareEvent, ShareGroup, SharePartition
from headrace.groups.share.events import SharePartitionRemoved
from headrace.groups.share.journal import decode, encode
from headrace.groups.share.sessions import Sessions

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["SHARE_TOPIC", "ShareShell"]

logger = logging.getLogger(__name__)

SHARE_TOPIC = "__share_group_state"
IDLE_MS = 60_000


class ShareShell(Journaled[ShareEvent]):
    """Holds every queue; ends leases and sessions in time. Event loop only."""

    def __init__(self, broker: "Broker", settings: GroupSettings) -> None:
        super().__init__(broker, Journal(broker, SHARE_TOPIC, "queues", encode=encode, decode=decode))
        self.settings = settings
        self.table = ShareTable(settings)
        self.sessions = Sessions(settings.group_share_max_sessions)
        self._readers: dict[Place, set[Callable[[], None]]] = {}
        self._due: list[tuple[int, int, str | Place]] = []
        self._scheduled: dict[str | Place, int] = {}
        self._given_up: dict[Place, None] = {}
        self._digging = asyncio.Event()
        broker.topics.on_change.append(self._topic_changed)

    # --- life ---------------------------------------------------------------------------------

    async def load(self) -> None:
        """Replays the topic of queues. Damage in it leaves queues unavailable and is logged."""
        self.table = ShareTable(self.settings)
        self._due, self._scheduled, self._given_up = [], {}, {}
        try:
            await self._journal.open(self.table.replay, skip_damage=self.settings.group_share_skip_damage)
        except CorruptionError as error:
            logger.error("queues are unavailable: %s; or set group_share_skip_damage", error)
            return
        self._available = True
        for group in tuple(self.table.groups.values()):
            self._hold_group(machine.rouse(group, self.table.config(group.group_id), self.now_ms))
        self._forget_lost_topics()
        for partition in tuple(self.table.partitions.values()):
            config = self.table.config(partition.group_id)
            self._hold_partition(machine.woken(partition, config, self.now_ms))

    async def _keep_time(self) -> None:
        """Ends what is overdue and reloads after a failure, until cancelled."""
        while True:
            due_ms = self._due[0][0] if self._due else self.now_ms + IDLE_MS
            await self._wait_until(due_ms)
            try:
                await self._reload_if_failed()
                if self._available:
                    self._expire()
            except RetriableError as error:
                logger.error("%s", error)

    def _give_up_waiting(self, error: RetriableError) -> None:  # noqa: ARG002 - whoever waits has a time limit
        self._due.clear()
        self._scheduled.clear()

    # --- decisions ----------------------------------------------------------------------------

    def take_group(self, decision: ShareDecision[ShareGroup]) -> None:
        """Makes a decision about members hold."""
        self.persist(decision.events)
        self._hold_group(decision.state)

    def take_partition(self, decision: ShareDecision[SharePartition]) -> None:
        """Makes a decision about a partition hold; wakes whom it gives something to read."""
        self.persist(decision.events)
        self._hold_partition(decision.state)

    def _hold_group(self, group: ShareGroup) -> None:
        self.table.groups[group.group_id] = group
        self._schedule(group.group_id, group.next_deadline_ms())

    def _hold_partition(self, partition: SharePartition) -> None:
        place = place_of(partition)
        before = self.table.partitions.get(place)
        self.table.partitions[place] = partition
        self._schedule(place, partition.next_deadline_ms())
        if partition.burial is not None or machine.given_up(partition):
            self._given_up[place] = None
            self._digging.set()
        if before is not None and (
            partition.next_offset() < before.end_offset or partition.in_flight < before.in_flight
        ):
            self._wake_readers(place)

    def on_available(self, place: Place, wake: Callable[[], None]) -> None:
        """Calls `wake` whenever the partition may have something to deliver again."""
        self._readers.setdefault(place, set()).add(wake)

    def forget(self, place: Place, wake: Callable[[], None]) -> None:
        readers = self._readers.get(place)
        if readers is not None:
            readers.discard(wake)
            if not readers:
                del self._readers[place]

    def _wake_readers(self, place: Place) -> None:
        for wake in tuple(self._readers.get(place, ())):
            wake()

    # --- time ---------------------------------------------------------------------------------

    def _schedule(self, what: str | Place, due_ms: int | None) -> None:
        known = self._scheduled.get(what)
        if due_ms is None or (known is not None and known <= due_ms):
            return
        self._scheduled[what] = due_ms
        heapq.heappush(self._due, (due_ms, hash(what), what))
        if self._due[0][2] == what:
            self._wake.set()

    def _expire(self) -> None:
        now_ms = self.now_ms
        while self._due and self._due[0][0] <= now_ms:
            due_ms, _, what = heapq.heappop(self._due)
            if self._scheduled.get(what) != due_ms:
                continue
            del self._scheduled[what]
            if isinstance(what, str):
                group = self.table.groups.get(what)
                if group is not None:
                    self.take_group(machine.expire_members(group, now_ms))
            elif what in self.table.partitions:
                self._expire_leases(self.table.partitions[what], now_ms)

    def _expire_leases(self, partition: SharePartition, now_ms: int) -> None:
        config = self.table.config(partition.group_id)
        group = self.table.groups.get(partition.group_id)

        def is_kept(member: str) -> bool:
            return config.lease_by_heartbeat and group is not None and member in group.members

        self.take_partition(machine.expire(partition, config, now_ms, is_kept=is_kept))

    # --- topics -------------------------------------------------------------------------------

    def _topic_changed(self, name: str) -> None:
        if self._available and self._broker.topics.named(name) is None:
            try:
                self._forget_lost_topics()
            except RetriableError as error:
                logger.error("%s", error)

    def _forget_lost_topics(self) -> None:
        topics = self._broker.topics
        lost = [place for place in self.table.partitions if topics.with_id(place[1]) is None]
        self.remove_partitions(lost)

    def remove_partitions(self, places: list[Place]) -> None:
        """Tombstones for what is known of partitions."""
        events = [
            SharePartitionRemoved(group_id=group_id, topic_id=topic_id, partition=index)
            for group_id, topic_id, index in places
        ]
        self.persist(events)
        for event in events:
            self.table.replay(event)
