"""The coordinator of queues: requests in, decisions of the pure machines made durable, replies out."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from headrace.broker.share_burial import Burials
from headrace.broker.share_table import Place
from headrace.errors import RequestError, RetriableError
from headrace.groups import Code
from headrace.groups import share as machine
from headrace.groups.consumer import Catalog
from headrace.groups.events import OffsetCommitted
from headrace.groups.share import Ack, Session, ShareGroup, ShareHeartbeat, SharePartition, ShareReply
from headrace.groups.share.events import (
    ShareConfigRemoved,
    ShareConfigSaved,
    ShareGroupRemoved,
    ShareGroupSaved,
    ShareMemberRemoved,
    SharePartitionSaved,
)
from headrace.storage import Topic

if TYPE_CHECKING:
    from headrace.broker.positions import Position

__all__ = ["Shares"]


class Shares(Burials):
    """Queues of one broker. Event loop only.

    A method returns when what it answers is on disk. It raises RetriableError
    (COORDINATOR_NOT_AVAILABLE) when that failed.
    """

    async def run(self) -> None:
        """Keeps time and buries, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_time())
            tasks.create_task(self._bury())

    # --- members ------------------------------------------------------------------------------

    async def heartbeat(self, group_id: str, request: ShareHeartbeat, catalog: Catalog) -> ShareReply:
        """Everything that a member asks for; a queue begins with its first member."""
        self.check_available()
        group = self.table.groups.get(group_id)
        refusal = self._refusal(group_id, group, request)
        if refusal is not None:
            return refusal
        await self._prepare_all(group_id, request, catalog)
        self.check_available()
        group = self.table.groups.get(group_id) or ShareGroup(group_id=group_id)
        config = self.table.config(group_id)
        decision = machine.heartbeat(
            group, request, catalog, config, max_size=self.settings.group_max_size, now_ms=self.now_ms
        )
        if decision.state is not group:
            self.take_group(decision)
        reply: ShareReply = await self.settled(decision.reply)
        return reply

    def _refusal(self, group_id: str, group: ShareGroup | None, request: ShareHeartbeat) -> ShareReply | None:
        if not group_id:
            return ShareReply(error=Code.INVALID_REQUEST, message="the group id must not be empty")
        if group is not None:
            return None
        if self._broker.coordinator.has(group_id):
            message = f"the group {group_id} is a consumer group; choose another name for the queue"
            return ShareReply(error=Code.GROUP_ID_NOT_FOUND, message=message)
        if request.epoch != 0:
            message = f"the group {group_id} does not exist; join with epoch 0"
            return ShareReply(error=Code.GROUP_ID_NOT_FOUND, message=message)
        if len(self.table.groups) >= self.settings.group_max_count:
            message = f"there are {len(self.table.groups)} queues; group_max_count allows no more"
            return ShareReply(error=Code.POLICY_VIOLATION, message=message)
        return None

    def has(self, group_id: str) -> bool:
        """Whether the group id belongs to a queue."""
        return group_id in self.table.groups

    def may_begin(self, group_id: str) -> bool:
        """Whether a queue of this name could be made."""
        is_free = not self._broker.coordinator.has(group_id)
        return bool(group_id) and is_free and len(self.table.groups) < self.settings.group_max_count

    # --- where a queue begins -----------------------------------------------------------------

    async def _prepare_all(self, group_id: str, request: ShareHeartbeat, catalog: Catalog) -> None:
        for name in sorted(request.topic_names or ()):
            topic = self._broker.topics.named(name) if name in catalog.topics else None
            if topic is not None:
                await self.prepare(group_id, topic)

    async def prepare(self, group_id: str, topic: Topic) -> None:
        """Decides where the queue begins in the partitions of a topic, unless that was decided.

        A partition that was added to a topic that the queue reads begins at its first record.
        """
        known = [
            index
            for index in range(len(topic.partitions))
            if (group_id, topic.id, index) in self.table.partitions
        ]
        if len(known) == len(topic.partitions):
            return
        starts = await self._starts(group_id, topic) if not known else {}
        self.check_available()
        new = [
            SharePartition(
                group_id=group_id,
                topic_id=topic.id,
                partition=index,
                start_offset=starts.get(index, log.start_offset),
            )
            for index, log in enumerate(tuple(topic.partitions))
            if (group_id, topic.id, index) not in self.table.partitions
        ]
        self.persist(SharePartitionSaved(partition=each) for each in new)
        for each in new:
            self._hold_partition(each)

    async def _starts(self, group_id: str, topic: Topic) -> dict[int, int]:
        config = self.table.config(group_id)
        logs = dict(enumerate(topic.partitions))
        if config.reset == "earliest":
            return {index: log.start_offset for index, log in logs.items()}
        ends = {index: log.high_watermark for index, log in logs.items()}
        if config.reset_age_ms is None:
            return ends
        since_ms = self._broker.clock.now_ms() - config.reset_age_ms
        found = {
            index: await self._broker.in_thread(log.offset_for_time, since_ms) for index, log in logs.items()
        }
        return {index: timed.offset if timed is not None else ends[index] for index, timed in found.items()}

    # --- acknowledgements ---------------------------------------------------------------------

    def acknowledge(self, session: Session, place: Place, acks: Sequence[Ack] | None) -> Code:
        """Takes acknowledgements of one partition in; `settled` tells when they are on disk."""
        partition = self.table.partitions.get(place)
        if partition is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        if acks is None:
            return Code.INVALID_REQUEST
        config = self.table.config(session.group_id)
        decision = machine.acknowledge(partition, session.member_id, acks, config, self.now_ms)
        if not decision.reply:
            self.take_partition(decision)
        code: Code = decision.reply
        return code

    def release(self, session: Session, *, delivered: bool) -> None:
        """Ends the leases of a member whose session ended."""
        for place in session.partitions:
            partition = self.table.partitions.get((session.group_id, *place))
            if partition is not None:
                config = self.table.config(session.group_id)
                decision = machine.release(partition, session.member_id, config, delivered=delivered)
                if decision.reply:
                    self.take_partition(decision)

    def disconnected(self, connection: int) -> None:
        """A connection is gone: what its members had is delivered to others. The deliveries count."""
        for session in self.sessions.disconnected(connection):
            if self._available and not self._journal.failed:
                with suppress(RetriableError):  # unavailable from here on; the leases end in time
                    self.release(session, delivered=True)

    # --- administration -----------------------------------------------------------------------

    async def groups(self) -> tuple[ShareGroup, ...]:
        """Every queue."""
        self.check_available()
        return await self.settled(tuple(self.table.groups.values()))

    async def group(self, group_id: str) -> ShareGroup | None:
        """One queue, if it is there."""
        self.check_available()
        return await self.settled(self.table.groups.get(group_id))

    async def partitions(self, group_id: str) -> dict[Place, SharePartition]:
        """What a queue knows of partitions."""
        self.check_available()
        found = {(p.group_id, p.topic_id, p.partition): p for p in self.table.of_group(group_id)}
        return await self.settled(found)

    async def positions(self) -> "list[Position]":
        """Where each queue is, as consumer groups are where they committed."""
        from headrace.broker.positions import Position

        self.check_available()
        found = []
        for (group_id, topic_id, index), partition in self.table.partitions.items():
            topic, group = self._broker.topics.with_id(topic_id), self.table.groups.get(group_id)
            if topic is not None and group is not None:
                active = bool(group.members)
                found.append(Position(group_id, topic.name, index, partition.start_offset, active))
        return found

    def note_cut(self, topic: Topic, partition: SharePartition) -> None:
        """Records that a queue had not read are gone: counts the fall before the queue goes on behind it."""
        at = _as_offset(topic, partition)
        self._broker.lag_watch.before_commit({(topic.name, partition.partition): at}, [at])

    async def delete(self, group_id: str) -> Code:
        """Removes a queue without members, with all that it knew."""
        self.check_available()
        group = self.table.groups.get(group_id)
        if group is None:
            return Code.GROUP_ID_NOT_FOUND
        if group.members:
            return Code.NON_EMPTY_GROUP
        self.remove_partitions(list(await self.partitions(group_id)))
        members = [ShareMemberRemoved(group_id=group_id, member_id=key) for key in group.members]
        self.persist([*members, ShareGroupRemoved(group_id=group_id)])
        self.table.replay(ShareGroupRemoved(group_id=group_id))
        return await self.settled(Code.NONE)

    async def alter_offsets(self, group_id: str, offsets: Mapping[Place, int]) -> None:
        """The queue, which has no members, begins anew at the offsets."""
        self.check_available()
        if group_id not in self.table.groups:
            self.persist([ShareGroupSaved(group_id=group_id, epoch=0)])
            self.table.replay(ShareGroupSaved(group_id=group_id, epoch=0))
        new = [
            SharePartition(group_id=group_id, topic_id=topic_id, partition=index, start_offset=offset)
            for (_, topic_id, index), offset in offsets.items()
        ]
        self.persist(SharePartitionSaved(partition=each) for each in new)
        for each in new:
            self._hold_partition(each)
        await self.settled(None)

    async def delete_offsets(self, places: Iterable[Place]) -> None:
        """The queue forgets where it was."""
        self.check_available()
        self.remove_partitions([place for place in places if place in self.table.partitions])
        await self.settled(None)

    async def configure(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Puts other settings of a group in force; RequestError if they cannot be."""
        machine.check_overrides(overrides)
        if not group_id:
            raise RequestError("the group id must not be empty", code=Code.INVALID_REQUEST)
        self.check_available()
        event = (
            ShareConfigSaved(group_id=group_id, overrides=dict(overrides))
            if overrides
            else ShareConfigRemoved(group_id=group_id)
        )
        self.persist([event])
        self.table.replay(event)
        await self.settled(None)


def _as_offset(topic: Topic, partition: SharePartition) -> OffsetCommitted:
    return OffsetCommitted(
        group_id=partition.group_id,
        topic=topic.name,
        topic_id=topic.id,
        partition=partition.partition,
        offset=partition.start_offset,
        leader_epoch=-1,
        metadata="",
        commit_ms=0,
        expire_ms=None,
    )
