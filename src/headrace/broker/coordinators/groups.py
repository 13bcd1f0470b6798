"""The coordinator of groups: requests in, decisions of the pure machines made durable, replies out."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from headrace.broker.access import Authority
from headrace.broker.coordinators.group_store import GroupStore
from headrace.broker.coordinators.group_table import GroupEntry
from headrace.broker.limits import ACTIVE_MS, FallenGroups, GroupPosition
from headrace.broker.log import INTERNAL_TOPICS, Topics
from headrace.clock import Clock
from headrace.groups import (
    Code,
    Decision,
    OffsetCommitted,
    OffsetCommitter,
    OffsetRemoved,
    TopicInfo,
    classic,
    commit_refusal,
    consumer,
    fetch_refusal,
    is_empty,
)
from headrace.groups.classic import (
    ClassicGroup,
    JoinReply,
    JoinRequest,
    LeaveRequest,
    MemberRequest,
    SyncReply,
    SyncRequest,
)
from headrace.groups.consumer import ConsumerGroup, ConsumerHeartbeat, ConsumerReply, KnownTopics

__all__ = ["GroupCoordinator", "new_member_id"]


class GroupCoordinator:
    """Groups and committed offsets of one broker. Event loop only.

    A method returns when what it answers is on disk. It raises RetriableError
    (COORDINATOR_NOT_AVAILABLE) when that failed. `queues` has the group ids that belong to
    queues: those are no consumer groups.
    """

    def __init__(
        self,
        store: GroupStore,
        topics: Topics,
        access: Authority,
        fallen: FallenGroups,
        clock: Clock,
        *,
        queues: Container[str],
    ) -> None:
        self.settings = store.settings
        self._store = store
        self._table = store.table
        self._journal = store.journal
        self._topics = topics
        self._access = access
        self._fallen = fallen
        self._clock = clock
        self._queues = queues
        self._catalog: KnownTopics | None = None
        self._catalog_version = 0
        self._catalog_permissions = 0  # their generation when it was made
        topics.on_change.append(self._topic_changed)

    def check_available(self) -> None:
        """Raises RetriableError while groups cannot be served."""
        self._journal.check_available()

    # --- topics -------------------------------------------------------------------------------

    def _topic_changed(self, _: str) -> None:
        self._catalog = None

    def catalog(self) -> KnownTopics:
        """The topics as groups see them."""
        permissions = self._access.generation
        if self._catalog is None or self._catalog_permissions != permissions:
            self._catalog_version += 1
            self._catalog_permissions = permissions
            topics = {
                topic.name: TopicInfo(
                    topic_id=topic.id,
                    partitions=len(topic.partitions),
                    internal=topic.name in INTERNAL_TOPICS,
                )
                for topic in self._topics.all()
            }
            visible_to = self._access.topics_seen(frozenset(topics))
            self._catalog = KnownTopics(version=self._catalog_version, topics=topics, visible_to=visible_to)
        return self._catalog

    # --- classic groups -----------------------------------------------------------------------

    async def join(self, group_id: str, request: JoinRequest) -> JoinReply:
        """Waits until the rebalance that the member takes part in completes."""
        self._journal.check_available()
        entry = self._classic_to_join(group_id, request)
        if isinstance(entry, Code):
            return JoinReply(error=entry, member_id=request.member_id)
        assert isinstance(entry.group, ClassicGroup)
        ticket = self._store.ticket()
        request = replace(request, ticket=ticket.number)
        decision = classic.join(entry.group, request, self.settings, self._store.now_ms)
        self._store.take(entry, decision)
        reply: JoinReply = await self._store.wait_reply(ticket, decision)
        return reply

    def _classic_to_join(self, group_id: str, request: JoinRequest) -> GroupEntry | Code:
        """The group to join: there already, new, or an empty one that changes its protocol."""
        if not group_id:
            return Code.INVALID_GROUP_ID
        if group_id in self._queues:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        entry = self._table.get(group_id)
        if entry is None:
            if request.member_id:
                return Code.UNKNOWN_MEMBER_ID
            full = len(self._table) >= self.settings.group_max_count
            return Code.POLICY_VIOLATION if full else GroupEntry(ClassicGroup(group_id=group_id))
        if isinstance(entry.group, ClassicGroup):
            return entry
        if entry.group.members:
            return Code.INCONSISTENT_GROUP_PROTOCOL
        # Generations go on where the epochs ended, so that they only grow.
        empty = ClassicGroup(group_id=group_id, generation=entry.group.epoch)
        return replace(entry, group=empty)

    def _classic(self, group_id: str) -> GroupEntry | None:
        entry = self._table.get(group_id)
        return entry if entry is not None and isinstance(entry.group, ClassicGroup) else None

    async def sync(self, group_id: str, request: SyncRequest) -> SyncReply:
        """Waits until the leader has brought the assignment."""
        self._journal.check_available()
        entry = self._classic(group_id)
        if entry is None:
            return SyncReply(error=Code.UNKNOWN_MEMBER_ID)
        assert isinstance(entry.group, ClassicGroup)
        ticket = self._store.ticket()
        decision = classic.sync(entry.group, replace(request, ticket=ticket.number), self._store.now_ms)
        self._store.take(entry, decision)
        reply: SyncReply = await self._store.wait_reply(ticket, decision)
        return reply

    async def heartbeat(self, group_id: str, request: MemberRequest) -> Code:
        """Keeps the member in; tells it to rejoin if need be."""
        self._journal.check_available()
        entry = self._classic(group_id)
        if entry is None:
            return Code.UNKNOWN_MEMBER_ID
        assert isinstance(entry.group, ClassicGroup)
        decision = classic.heartbeat(entry.group, request, self._store.now_ms)
        self._store.take(entry, decision, sign_of_life=True)
        reply: Code = await self._journal.settled(decision.reply)
        return reply

    async def leave(self, group_id: str, requests: Sequence[LeaveRequest]) -> Sequence[Code]:
        """One code for each who is to go."""
        self._journal.check_available()
        entry = self._table.get(group_id)
        if entry is None:
            return [Code.UNKNOWN_MEMBER_ID] * len(requests)
        decision: Decision[Any]
        if isinstance(entry.group, ClassicGroup):
            decision = classic.leave(entry.group, requests, self.settings, self._store.now_ms)
        else:
            whom = [(request.member_id, request.instance_id) for request in requests]
            decision = consumer.dismiss(entry.group, whom)
        self._store.take(entry, decision)
        codes: Sequence[Code] = await self._journal.settled(decision.reply)
        return codes

    # --- server-side groups -------------------------------------------------------------------

    async def consumer_heartbeat(self, group_id: str, request: ConsumerHeartbeat) -> ConsumerReply:
        """Everything a member of a server-side group asks for."""
        self._journal.check_available()
        entry = self._consumer_for(group_id, request)
        if not isinstance(entry, GroupEntry):
            return entry
        assert isinstance(entry.group, ConsumerGroup)
        decision = consumer.heartbeat(entry.group, request, self.catalog(), self.settings, self._store.now_ms)
        self._store.take(entry, decision, sign_of_life=True)
        reply: ConsumerReply = await self._journal.settled(decision.reply)
        return reply

    def _consumer_for(self, group_id: str, request: ConsumerHeartbeat) -> GroupEntry | ConsumerReply:
        if not group_id:
            return ConsumerReply(error=Code.INVALID_REQUEST, message="the group id must not be empty")
        entry = self._table.get(group_id)
        if entry is not None and isinstance(entry.group, ConsumerGroup):
            return entry
        if group_id in self._queues:
            message = f"the group {group_id} is a share group; choose another name"
            return ConsumerReply(error=Code.GROUP_ID_NOT_FOUND, message=message)
        if request.epoch != 0 or (entry is not None and not is_empty(entry.group)):
            why = "is in use by the classic protocol" if entry is not None else "does not exist"
            return ConsumerReply(error=Code.GROUP_ID_NOT_FOUND, message=f"the group {group_id} {why}")
        if entry is None and len(self._table) >= self.settings.group_max_count:
            message = f"there are {len(self._table)} groups; the setting group_max_count allows no more"
            return ConsumerReply(error=Code.POLICY_VIOLATION, message=message)
        if entry is None:
            return GroupEntry(ConsumerGroup(group_id=group_id))
        assert isinstance(entry.group, ClassicGroup)
        epoch = entry.group.generation
        empty = ConsumerGroup(group_id=group_id, epoch=epoch, target_epoch=epoch)
        return replace(entry, group=empty)

    # --- committed offsets --------------------------------------------------------------------

    async def commit(self, group_id: str, who: OffsetCommitter, offsets: Iterable[OffsetCommitted]) -> Code:
        """Stores all of the offsets or none."""
        self._journal.check_available()
        entry = self._table.get(group_id)
        error = commit_refusal(entry.group if entry else None, who)
        if entry is None and group_id in self._queues:
            error = Code.GROUP_ID_NOT_FOUND
        if error:
            return await self._journal.settled(error)
        if entry is None:
            if len(self._table) >= self.settings.group_max_count:
                return Code.POLICY_VIOLATION
            entry = GroupEntry(ClassicGroup(group_id=group_id))
        committed = tuple(offsets)
        self._fallen.before_commit(entry.offsets, committed)
        self._journal.append(committed)
        for offset in committed:
            entry.offsets[offset.topic, offset.partition] = offset
        if committed:
            self._table.put(entry)
        self._sign_of_life(entry, who.member_id)
        return await self._journal.settled(Code.NONE)

    def _sign_of_life(self, entry: GroupEntry, member_id: str) -> None:
        group = entry.group
        if isinstance(group, ClassicGroup):
            entry.group = classic.touch(group, member_id, self._store.now_ms)

    async def fetch_offsets(
        self, group_id: str, member_id: str | None = None, epoch: int = -1
    ) -> tuple[Code, dict[tuple[str, int], OffsetCommitted]]:
        """The group's committed offsets, by topic and partition; all of them synced."""
        self._journal.check_available()
        entry = self._table.get(group_id)
        error = fetch_refusal(entry.group if entry else None, member_id, epoch)
        offsets = {} if entry is None or error else dict(entry.offsets)
        return await self._journal.settled((error, offsets))

    async def delete_offsets(self, group_id: str, partitions: Iterable[tuple[str, int]]) -> Code:
        """Forgets offsets that `groups.offsets.delete_refusal` lets go."""
        self._journal.check_available()
        entry = self._table.get(group_id)
        if entry is None:
            return Code.GROUP_ID_NOT_FOUND
        self._store.remove_offsets(
            OffsetRemoved(group_id=group_id, topic=topic, partition=index)
            for topic, index in partitions
            if (topic, index) in entry.offsets
        )
        return await self._journal.settled(Code.NONE)

    # --- administration -----------------------------------------------------------------------

    async def entries(self) -> tuple[GroupEntry, ...]:
        """Every group."""
        self._journal.check_available()
        return await self._journal.settled(tuple(self._table))

    async def entry(self, group_id: str) -> GroupEntry | None:
        """One group, if it is there."""
        self._journal.check_available()
        return await self._journal.settled(self._table.get(group_id))

    async def positions(self) -> list[GroupPosition]:
        """Every committed offset of a partition that is there."""
        now_ms, found = self._clock.now_ms(), []
        for entry in await self.entries():
            has_members = not is_empty(entry.group)
            for (topic, index), committed in entry.offsets.items():
                if self._topics.partition(topic, index) is not None:
                    active = has_members or now_ms - committed.commit_ms < ACTIVE_MS
                    found.append(GroupPosition(entry.group.group_id, topic, index, committed.offset, active))
        return found

    async def delete(self, group_id: str) -> Code:
        """Removes an empty group with its offsets."""
        self._journal.check_available()
        entry = self._table.get(group_id)
        if entry is None:
            return Code.GROUP_ID_NOT_FOUND
        if not is_empty(entry.group):
            return Code.NON_EMPTY_GROUP
        self._store.remove_group(entry)
        return await self._journal.settled(Code.NONE)


def new_member_id(prefix: str) -> str:
    """An id that nobody else has, beginning with something a person knows."""
    return f"{prefix or 'member'}-{uuid4()}"
