"""The coordinator of queues: requests in, decisions of the pure machines made durable, replies out."""

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress

from headrace.broker.coordinators.queues.store import QueueStore
from headrace.broker.coordinators.queues.table import QueuePartition, queue_partition
from headrace.broker.limits import FallenGroups, GroupPosition
from headrace.broker.log import Topics, WorkerThreads
from headrace.clock import Clock
from headrace.errors import DiskError, RequestError, RetriableError
from headrace.groups import Code, OffsetCommitted
from headrace.groups import share as machine
from headrace.groups.consumer import KnownTopics
from headrace.groups.share import (
    Ack,
    Sessions,
    ShareConfigRemoved,
    ShareConfigSaved,
    ShareGroup,
    ShareGroupRemoved,
    ShareGroupSaved,
    ShareHeartbeat,
    SharePartition,
    ShareReply,
    ShareSession,
)
from headrace.storage import PartitionLog, Topic

__all__ = ["QueueCoordinator"]


class QueueCoordinator:
    """Queues of one broker. Event loop only.

    A method returns when what it answers is on disk. It raises RetriableError
    (COORDINATOR_NOT_AVAILABLE) when that failed. `groups` has the ids of consumer groups:
    those are no queues.
    """

    def __init__(
        self,
        store: QueueStore,
        topics: Topics,
        fallen: FallenGroups,
        threads: WorkerThreads,
        clock: Clock,
        *,
        groups: Container[str],
    ) -> None:
        self.settings = store.settings
        self.store = store
        self.table = store.table
        self.sessions = Sessions(store.settings.group_share_max_sessions)
        self._journal = store.journal
        self._topics = topics
        self._fallen = fallen
        self._threads = threads
        self._clock = clock
        self._groups = groups
        self._undecided: dict[QueuePartition, DiskError] = {}  # where a queue could not begin as yet, and why
        topics.on_change.append(self._topic_changed)

    def check_available(self) -> None:
        """Raises RetriableError while queues cannot be served."""
        self._journal.check_available()

    async def wait_synced(self) -> None:
        """Returns when everything decided so far is on disk; RetriableError if that failed."""
        await self._journal.settled(None)

    # --- members ------------------------------------------------------------------------------

    async def heartbeat(self, group_id: str, request: ShareHeartbeat, catalog: KnownTopics) -> ShareReply:
        """Everything that a member asks for; a queue begins with its first member."""
        self._journal.check_available()
        group = self.table.groups.get(group_id)
        refusal = self._refusal(group_id, group, request)
        if refusal is not None:
            return refusal
        await self._prepare_all(group_id, request, catalog)
        self._journal.check_available()
        group = self.table.groups.get(group_id) or ShareGroup(group_id=group_id)
        config = self.table.config(group_id)
        decision = machine.heartbeat(
            group, request, catalog, config, max_size=self.settings.group_max_size, now_ms=self.store.now_ms
        )
        if decision.state is not group:
            self.store.take_group(decision)
        reply: ShareReply = await self._journal.settled(decision.reply)
        return reply

    def _refusal(self, group_id: str, group: ShareGroup | None, request: ShareHeartbeat) -> ShareReply | None:
        if not group_id:
            return ShareReply(error=Code.INVALID_REQUEST, message="the group id must not be empty")
        if group is not None:
            return None
        if group_id in self._groups:
            message = f"the group {group_id} is a consumer group; choose another name for the queue"
            return ShareReply(error=Code.GROUP_ID_NOT_FOUND, message=message)
        if request.epoch != 0:
            message = f"the group {group_id} does not exist; join with epoch 0"
            return ShareReply(error=Code.GROUP_ID_NOT_FOUND, message=message)
        if len(self.table.groups) >= self.settings.group_max_count:
            message = f"there are {len(self.table.groups)} queues; group_max_count allows no more"
            return ShareReply(error=Code.POLICY_VIOLATION, message=message)
        return None

    def may_begin(self, group_id: str) -> bool:
        """Whether a queue of this name could be made."""
        is_free = group_id not in self._groups
        return bool(group_id) and is_free and len(self.table.groups) < self.settings.group_max_count

    # --- where a queue begins -----------------------------------------------------------------

    async def _prepare_all(self, group_id: str, request: ShareHeartbeat, catalog: KnownTopics) -> None:
        for name in sorted(request.topic_names or ()):
            topic = self._topics.named(name) if name in catalog.topics else None
            if topic is not None:
                await self.prepare(group_id, topic)

    async def prepare(self, group_id: str, topic: Topic) -> None:
        """Decides where the queue begins in the partitions of a topic, unless that was decided.

        A partition that was added to a topic that the queue reads begins at its first record.
        One that cannot be searched by time is left out, and keeps no other from beginning:
        `check_begun` says why, and the next call tries again. A restart before that forgets
        the time, and the queue begins there at the first record.
        """
        logs = dict(enumerate(topic.partitions))
        missing = [index for index in logs if (group_id, topic.id, index) not in self.table.partitions]
        if not missing:
            return
        is_new = len(missing) == len(logs)
        timed = [index for index in missing if is_new or (group_id, topic.id, index) in self._undecided]
        starts = {index: await self._start(group_id, logs[index]) for index in timed}
        self._journal.check_available()
        new = []
        for index in missing:
            place, start = (group_id, topic.id, index), starts.get(index, logs[index].start_offset)
            if isinstance(start, DiskError):
                self._undecided[place] = start
            elif place not in self.table.partitions:
                new.append(
                    SharePartition(group_id=group_id, topic_id=topic.id, partition=index, start_offset=start)
                )
        self.store.add_partitions(new)
        for each in new:
            self._undecided.pop(queue_partition(each), None)

    def check_begun(self, place: QueuePartition) -> None:
        """Raises DiskError where it cannot be found out at which record the queue begins."""
        error = self._undecided.get(place)
        if error is not None and place not in self.table.partitions:
            raise error

    async def _start(self, group_id: str, log: PartitionLog) -> int | DiskError:
        config, end = self.table.config(group_id), log.high_watermark
        if config.reset == "earliest":
            return log.start_offset
        if config.reset_age_ms is None:
            return end
        since_ms = self._clock.now_ms() - config.reset_age_ms
        try:
            found = await self._threads.run(log.offset_for_time, since_ms)
        except DiskError as error:
            return error
        return found.offset if found is not None else end

    def _topic_changed(self, _: str) -> None:
        """Forgets what could not be decided about topics that are gone."""
        for place in tuple(self._undecided):
            if self._topics.with_id(place[1]) is None:
                del self._undecided[place]

    # --- acknowledgements ---------------------------------------------------------------------

    def acknowledge(self, session: ShareSession, place: QueuePartition, acks: Sequence[Ack] | None) -> Code:
        """Takes acknowledgements of one partition in; `wait_synced` until they are on disk."""
        partition = self.table.partitions.get(place)
        if partition is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        if acks is None:
            return Code.INVALID_REQUEST
        config = self.table.config(session.group_id)
        decision = machine.acknowledge(partition, session.member_id, acks, config, self.store.now_ms)
        if not decision.reply:
            self.store.take_partition(decision)
        code: Code = decision.reply
        return code

    def release(self, session: ShareSession, *, delivered: bool) -> None:
        """Ends the leases of a member whose session ended."""
        for place in session.partitions:
            partition = self.table.partitions.get((session.group_id, *place))
            if partition is not None:
                config = self.table.config(session.group_id)
                decision = machine.release(partition, session.member_id, config, delivered=delivered)
                if decision.reply:
                    self.store.take_partition(decision)

    def disconnected(self, connection: int) -> None:
        """A connection is gone: what its members had is delivered to others. The deliveries count."""
        for session in self.sessions.disconnected(connection):
            if self._journal.is_trusted:
                with suppress(RetriableError):  # unavailable from here on; the leases end in time
                    self.release(session, delivered=True)

    # --- administration -----------------------------------------------------------------------

    async def groups(self) -> tuple[ShareGroup, ...]:
        """Every queue."""
        self._journal.check_available()
        return await self._journal.settled(tuple(self.table.groups.values()))

    async def group(self, group_id: str) -> ShareGroup | None:
        """One queue, if it is there."""
        self._journal.check_available()
        return await self._journal.settled(self.table.groups.get(group_id))

    async def partitions(self, group_id: str) -> dict[QueuePartition, SharePartition]:
        """What a queue knows of partitions."""
        self._journal.check_available()
        found = {(p.group_id, p.topic_id, p.partition): p for p in self.table.of_group(group_id)}
        return await self._journal.settled(found)

    async def positions(self) -> list[GroupPosition]:
        """Where each queue is, as consumer groups are where they committed."""
        self._journal.check_available()
        found = []
        for (group_id, topic_id, index), partition in self.table.partitions.items():
            topic, group = self._topics.with_id(topic_id), self.table.groups.get(group_id)
            if topic is not None and group is not None:
                active = bool(group.members)
                found.append(GroupPosition(group_id, topic.name, index, partition.start_offset, active))
        return found

    def note_cut(self, topic: Topic, partition: SharePartition) -> None:
        """Records that a queue had not read are gone: counts the fall before the queue goes on behind it."""
        at = _as_offset(topic, partition)
        self._fallen.before_commit({(topic.name, partition.partition): at}, [at])

    async def delete(self, group_id: str) -> Code:
        """Removes a queue without members, with all that it knew."""
        self._journal.check_available()
        group = self.table.groups.get(group_id)
        if group is None:
            return Code.GROUP_ID_NOT_FOUND
        if group.members:
            return Code.NON_EMPTY_GROUP
        self.store.remove_partitions(list(await self.partitions(group_id)))
        self.store.apply(ShareGroupRemoved(group_id=group_id))
        return await self._journal.settled(Code.NONE)

    async def alter_offsets(self, group_id: str, offsets: Mapping[QueuePartition, int]) -> None:
        """The queue, which has no members, begins again at the offsets."""
        self._journal.check_available()
        if group_id not in self.table.groups:
            self.store.apply(ShareGroupSaved(group_id=group_id, epoch=0))
        new = [
            SharePartition(group_id=group_id, topic_id=topic_id, partition=index, start_offset=offset)
            for (_, topic_id, index), offset in offsets.items()
        ]
        self.store.add_partitions(new)
        await self._journal.settled(None)

    async def delete_offsets(self, places: Iterable[QueuePartition]) -> None:
        """The queue forgets where it was."""
        self._journal.check_available()
        self.store.remove_partitions([place for place in places if place in self.table.partitions])
        await self._journal.settled(None)

    async def configure(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Puts other settings of a group in force; RequestError if they cannot be."""
        machine.check_overrides(overrides)
        if not group_id:
            raise RequestError("the group id must not be empty", code=Code.INVALID_REQUEST)
        self._journal.check_available()
        event = (
            ShareConfigSaved(group_id=group_id, overrides=dict(overrides))
            if overrides
            else ShareConfigRemoved(group_id=group_id)
        )
        self.store.apply(event)
        await self._journal.settled(None)


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
