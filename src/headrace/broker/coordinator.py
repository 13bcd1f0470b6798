"""The coordinator of groups: requests in, decisions of the pure machines made durable, replies out."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from headrace.broker.coordinator_pending import PendingOffsets
from headrace.broker.coordinator_table import Entry
from headrace.broker.topics import INTERNAL_TOPICS
from headrace.errors import RetriableError
from headrace.groups import Code, Decision, GroupSettings, TopicInfo, classic, consumer
from headrace.groups.classic import (
    ClassicGroup,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    MemberRequest,
    SyncReply,
    SyncRequest,
)
from headrace.groups.consumer import Catalog, ConsumerGroup, ConsumerHeartbeat, ConsumerReply
from headrace.groups.events import OffsetCommitted, OffsetRemoved
from headrace.groups.offsets import Committer, commit_refusal, fetch_refusal, is_empty

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["Coordinator", "new_member_id"]


class Coordinator(PendingOffsets):
    """Groups and committed offsets of one broker. Event loop only.

    A method returns when what it answers is on disk. It raises RetriableError
    (COORDINATOR_NOT_AVAILABLE) when that failed.
    """

    def __init__(self, broker: "Broker", settings: GroupSettings) -> None:
        super().__init__(broker, settings)
        self._catalog: Catalog | None = None
        self._catalog_version = 0
        broker.topics.on_change.append(self._topic_changed)

    # --- topics -------------------------------------------------------------------------------

    def _topic_changed(self, name: str) -> None:
        self._catalog = None
        if self._available and self._broker.topics.named(name) is None:
            with suppress(RetriableError):  # unavailable from here on; the reload forgets them
                self._forget_lost_topics()

    def catalog(self) -> Catalog:
        """The topics as groups see them."""
        if self._catalog is None:
            self._catalog_version += 1
            topics = {
                topic.name: TopicInfo(
                    topic_id=topic.id,
                    partitions=len(topic.partitions),
                    internal=topic.name in INTERNAL_TOPICS,
                )
                for topic in self._broker.topics.all()
            }
            self._catalog = Catalog(version=self._catalog_version, topics=topics)
        return self._catalog

    # --- classic groups -----------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """Waits until the rebalance that the member takes part in completes."""
        self.check_available()
        entry = self._classic_to_join(group_id, request)
        if isinstance(entry, Code):
            return JoinReply(error=entry, member_id=request.member_id)
        assert isinstance(entry.group, ClassicGroup)
        ticket = self.ticket()
        request = replace(request, ticket=ticket.number)
        decision = classic.join(entry.group, request, self.settings, self.now_ms)
        self.take(entry, decision)
        reply: JoinReply = await self.wait_reply(ticket, decision)
        return reply

    def _classic_to_join(self, group_id: str, request: JoinRequest) -> Entry | Code:
        """The group to join: there already, new, or an empty one that changes its protocol."""
        if not group_id:
            return Code.INVALID_GROUP_ID
        if self._broker.shares.has(group_id):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        entry = self._table.get(group_id)
        if entry is None:
            if request.member_id:
                return Code.UNKNOWN_MEMBER_ID
            full = len(self._table) >= self.settings.group_max_count
            return Code.POLICY_VIOLATION if full else Entry(ClassicGroup(group_id=group_id))
        if isinstance(entry.group, ClassicGroup):
            return entry
        if entry.group.members:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        # Generations go on where the epochs ended, so that they only grow.
        empty = ClassicGroup(group_id=group_id, generation=entry.group.epoch)
        return replace(entry, group=empty, scheduled_ms=None)

    def _classic(self, group_id: str) -> Entry | None:
        entry = self._table.get(group_id)
        return entry if entry is not None and isinstance(entry.group, ClassicGroup) else None

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """Waits until the leader has brought the assignment."""
        self.check_available()
        entry = self._classic(group_id)
        if entry is None:
            return SyncReply(error=Code.UNKNOWN_MEMBER_ID)
        assert isinstance(entry.group, ClassicGroup)
        ticket = self.ticket()
        decision = classic.sync(entry.group, replace(request, ticket=ticket.number), self.now_ms)
        self.take(entry, decision)
        reply: SyncReply = await self.wait_reply(ticket, decision)
        return reply

    async def heartbeat(self, group_id: str, request: MemberRequest) -> Code:
        """Keeps the member in; tells it to rejoin if need be."""
        self.check_available()
        entry = self._classic(group_id)
        if entry is None:
            return Code.UNKNOWN_MEMBER_ID
        assert isinstance(entry.group, ClassicGroup)
        decision = classic.heartbeat(entry.group, request, self.now_ms)
        self.take(entry, decision, sign_of_life=True)
        reply: Code = await self.settled(decision.reply)
        return reply

    async def leave(self, group_id: str, requests: Sequence[LeaveRequest]) -> Sequence[Code]:
        """One code for each who is to go."""
        self.check_available()
        entry = self._table.get(group_id)
        if entry is None:
            return [Code.UNKNOWN_MEMBER_ID] * len(requests)
        decision: Decision[Any]
        if isinstance(entry.group, ClassicGroup):
            decision = classic.leave(entry.group, requests, self.settings, self.now_ms)
        else:
            whom = [(request.member_id, request.instance_id) for request in requests]
            decision = consumer.dismiss(entry.group, whom)
        self.take(entry, decision)
        codes: Sequence[Code] = await self.settled(decision.reply)
        return codes

    # --- server-side groups -------------------------------------------------------------------

    async def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerReply:
        """Everything a member of a server-side group asks for."""
        self.check_available()
        entry = self._consumer_for(group_id, request)
        if not isinstance(entry, Entry):
            return entry
        assert isinstance(entry.group, ConsumerGroup)
        decision = consumer.heartbeat(entry.group, request, self.catalog(), self.settings, self.now_ms)
        self.take(entry, decision, sign_of_life=True)
        reply: ConsumerReply = await self.settled(decision.reply)
        return reply

    def _consumer_for(self, group_id: str, request: ConsumerHeartbeat) -> Entry | ConsumerReply:
        if not group_id:
            return ConsumerReply(error=Code.INVALID_REQUEST, message="the group id must not be empty")
        entry = self._table.get(group_id)
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            return entry
        if self._broker.shares.has(group_id):
            message = f"the group {group_id} is a share group; choose another name"
            return ConsumerReply(error=Code.GROUP_ID_NOT_FOUND, message=message)
        if request.epoch != 0 or (entry is not None and not is_empty(entry.group)):
            why = "is in use by the classic protocol" if entry is not None else "does not exist"
            return ConsumerReply(error=Code.GROUP_ID_NOT_FOUND, message=f"the group {group_id} {why}")
        if entry is None and len(self._table) >= self.settings.group_max_count:
            message = f"there are {len(self._table)} groups; the setting group_max_count allows no more"
            return ConsumerReply(error=Code.POLICY_VIOLATION, message=message)
        if entry is None:
            return Entry(ConsumerGroup(group_id=group_id))
        assert isinstance(entry.group, ClassicGroup)
        epoch = entry.group.generation
        empty = ConsumerGroup(group_id=group_id, epoch=epoch, target_epoch=epoch)
        return replace(entry, group=empty, scheduled_ms=None)

    # --- committed offsets --------------------------------------------------------------------

    async def commit(self, group_id: str, who: Committer, offsets: Iterable[OffsetCommitted]) -> Code:
        """Stores all of the offsets or none."""
        self.check_available()
        entry = self._table.get(group_id)
        error = commit_refusal(entry.group if entry else None, who)
        if entry is None and self._broker.shares.has(group_id):
            error = Code.GROUP_ID_NOT_FOUND
        if error:
            return await self.settled(error)
        if entry is None:
            if len(self._table) >= self.settings.group_max_count:
                return Code.POLICY_VIOLATION
            entry = Entry(ClassicGroup(group_id=group_id))
        committed = tuple(offsets)
        self._broker.lag_watch.before_commit(entry.offsets, committed)
        self.persist(committed)
        for offset in committed:
            entry.offsets[offset.topic, offset.partition] = offset
        if committed:
            self._table.put(entry)
        self._sign_of_life(entry, who.member_id)
        return await self.settled(Code.NONE)

    def _sign_of_life(self, entry: Entry, member_id: str) -> None:
        group = entry.group
        if isinstance(group, ClassicGroup):
            entry.group = classic.touch(group, member_id, self.now_ms)

    async def fetch_offsets(
        self, group_id: str, member_id: str | None = None, epoch: int = -1
    ) -> tuple[Code, dict[tuple[str, int], OffsetCommitted]]:
        """The group's committed offsets, by topic and partition; all of them synced."""
        self.check_available()
        entry = self._table.get(group_id)
        error = fetch_refusal(entry.group if entry else None, member_id, epoch)
        offsets = {} if entry is None or error else dict(entry.offsets)
        return await self.settled((error, offsets))

    async def delete_offsets(self, group_id: str, partitions: Iterable[tuple[str, int]]) -> Code:
        """Forgets offsets that `groups.offsets.delete_refusal` lets go."""
        self.check_available()
        entry = self._table.get(group_id)
        if entry is None:
            return Code.GROUP_ID_NOT_FOUND
        self.remove_offsets(
            OffsetRemoved(group_id=group_id, topic=topic, partition=index)
            for topic, index in partitions
            if (topic, index) in entry.offsets
        )
        return await self.settled(Code.NONE)

    # --- administration -----------------------------------------------------------------------

    async def entries(self) -> tuple[Entry, ...]:
        """Every group."""
        self.check_available()
        return await self.settled(tuple(self._table))

    def has(self, group_id: str) -> bool:
        """Whether the group id belongs to a group of consumers."""
        return self._table.get(group_id) is not None

    async def entry(self, group_id: str) -> Entry | None:
        """One group, if it is there."""
        self.check_available()
        return await self.settled(self._table.get(group_id))

    async def delete(self, group_id: str) -> Code:
        """Removes an empty group with its offsets."""
        self.check_available()
        entry = self._table.get(group_id)
        if entry is None:
            return Code.GROUP_ID_NOT_FOUND
        if not is_empty(entry.group):
            return Code.NON_EMPTY_GROUP
        self.remove_group(entry)
        return await self.settled(Code.NONE)


def new_member_id(prefix: str) -> str:
    """An id that nobody else has, beginning with something a person knows."""
    return f"{prefix or 'member'}-{uuid4()}"
