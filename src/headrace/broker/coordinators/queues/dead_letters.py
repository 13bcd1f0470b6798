"""Dead letters: records that a queue gave up are copied to its dead-letter topic, each once, then archived.

Three durable steps: the burial is noted (which records, as which batch of which
idempotent producer); the batch is appended and synced; the records are archived. A
crash repeats what comes after the last finished step, and the log takes the same
batch for the duplicate that it is. What cannot be written is tried again until it
can; its records stay given up meanwhile and are delivered to nobody.

Where there are permissions, the broker makes no topic on its own: a dead-letter topic that
is missing is made if one of the queue's members may create it.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace.broker.access import Authority, ClientSession, Operation, Resource
from headrace.broker.coordinators.queues.store import QueueStore
from headrace.broker.coordinators.queues.table import QueuePartition
from headrace.broker.log import Topics, WorkerThreads
from headrace.clock import Clock
from headrace.errors import CorruptionError, HeadraceError, RequestError
from headrace.groups import Code
from headrace.groups import share as machine
from headrace.groups.share import (
    DEAD_LETTER_PREFIX,
    DEAD_LETTER_TOPIC,
    Burial,
    GiveUpReason,
    RecordRun,
    SharePartition,
    Span,
)
from headrace.records import QUEUE_PREFIX, Record, decode_batch, encode_batch, read_header
from headrace.storage import DataDirectory, PartitionLog, Topic

__all__ = ["DLQ_HEADERS", "DeadLetters"]

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 1.0
MOST_RECORDS = 500
MOST_BYTES = 1024 * 1024
DLQ_HEADERS = tuple(
    QUEUE_PREFIX + name for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
)
_REASONS = {
    GiveUpReason.REJECTED: "rejected by its consumer",
    GiveUpReason.RELEASED: "the delivery limit is reached; its consumer released it",
    GiveUpReason.EXPIRED: "the delivery limit is reached; its lease ended without an acknowledgement",
}


class DeadLetters:
    """Writes dead letters in the background. Event loop only.

    `unwritten` names the queues whose dead letters cannot be written, and why.
    """

    def __init__(
        self,
        store: QueueStore,
        topics: Topics,
        directory: DataDirectory,
        access: Authority,
        threads: WorkerThreads,
        clock: Clock,
        *,
        default_partitions: int,
    ) -> None:
        self.unwritten: dict[str, str] = {}
        self._store = store
        self._table = store.table
        self._journal = store.journal
        self._topics = topics
        self._directory = directory
        self._access = access
        self._threads = threads
        self._clock = clock
        self._default_partitions = default_partitions

    async def run(self) -> None:
        """Buries whatever is given up, until cancelled. A queue that fails holds up no other."""
        given_up, event = self._store.given_up, self._store.has_given_up
        while True:
            await event.wait()
            event.clear()
            failed: dict[str, str] = {}
            for place in tuple(given_up):
                try:
                    self._journal.check_available()
                    given_up.pop(place, None)
                    if await self._bury_some(place):
                        given_up[place] = None
                        event.set()
                except HeadraceError as error:
                    given_up[place] = None
                    failed.setdefault(place[0], str(error))
            self._note_unwritten(failed)
            if failed:
                event.set()
                await asyncio.sleep(RETRY_DELAY_S)

    def _note_unwritten(self, failed: Mapping[str, str]) -> None:
        """Logs what is new about queues whose dead letters wait; `/health` names them, too."""
        for group_id, why in failed.items():
            if self.unwritten.get(group_id) != why:
                logger.error("dead letters of %s cannot be written: %s; trying again", group_id, why)
        self.unwritten = dict(failed)

    async def _bury_some(self, place: QueuePartition) -> bool:
        """One burial, if there is something to bury; whether more is left."""
        partition = self._table.partitions.get(place)
        topic = self._topics.with_id(place[1])
        if partition is None or topic is None:
            return False
        if partition.burial is None:
            await self._target(place[0])  # or what is read would be read for nothing
        log = topic.partitions[partition.partition]
        chosen, letters = await self._threads.run(_read, log, _chosen(partition))
        if partition.burial is None or partition.burial.count != len(letters):
            await self._begin(place, topic, chosen, letters)
        try:
            await self._carry_out(place, topic, letters)
        except RequestError as error:
            # The topic was made again meanwhile, or its producers forgotten: as another producer, then.
            logger.warning("a dead letter of %s is written as by a new producer: %s", place[0], error)
            await self._begin(place, topic, chosen, letters)
            await self._carry_out(place, topic, letters)
        after = self._table.partitions.get(place)
        return after is not None and bool(machine.given_up(after))

    async def _carry_out(self, place: QueuePartition, topic: Topic, letters: Sequence[Record]) -> None:
        partition = self._table.partitions.get(place)
        if partition is None or partition.burial is None:
            return
        await self._write(topic, partition, letters)
        partition = self._table.partitions.get(place)
        if partition is not None and partition.burial is not None:
            self._store.take_partition(machine.finish_burial(partition))
            await self._journal.settled(None)

    async def _target(self, group_id: str) -> Topic:
        """The dead-letter topic; made if it is missing, and then kept until somebody says otherwise.

        Raises RequestError where that would take a permission that no member of the queue has.
        """
        name = self._table.config(group_id).dead_letter_topic
        topic = self._topics.named(name)
        if topic is not None:
            self._check_may_bury_in(group_id, name)
            return topic
        if not self._has_member_who(group_id, lambda user: user.may_create(name, note=False)):
            raise RequestError(
                f"there is no topic {name}, and no member of the queue may create it; create the topic,"
                " or allow that to a user of the queue",
                code=Code.TOPIC_AUTHORIZATION_FAILED,
            )
        return await self.make_topic(name)

    async def make_topic(self, name: str) -> Topic:
        """A new topic that keeps its records; raises RequestError if there cannot be one of the name."""
        return await self._topics.create(name, self._default_partitions, {"retention.ms": "-1"})

    def _check_may_bury_in(self, group_id: str, name: str) -> None:
        """Raises RequestError if the topic may be that of another queue, too, and no member may write on it.

        A user who may read as a group may have the group's own topic written; for one that was
        chosen, permission was checked when it was chosen. But names of groups that no topic can
        have are shortened, so that several groups may come to share one topic.
        """
        overrides = self._table.overrides.get(group_id, {})
        if name == DEAD_LETTER_PREFIX + group_id or overrides.get(DEAD_LETTER_TOPIC):
            return
        if not self._has_member_who(group_id, lambda user: user.sees(Operation.WRITE, Resource.TOPIC, name)):
            raise RequestError(
                f"no member of the queue may write on {name}, which is not the topic of this queue alone;"
                f" allow that to a user of the queue, or set {DEAD_LETTER_TOPIC}",
                code=Code.TOPIC_AUTHORIZATION_FAILED,
            )

    def _has_member_who(self, group_id: str, may: Callable[[ClientSession], bool]) -> bool:
        access, group = self._access, self._table.groups.get(group_id)
        if not access.enforced:
            return True
        members = group.members.values() if group is not None else ()
        users = {(member.user, member.client_host) for member in members}
        return any(may(access.on_behalf_of(*each)) for each in users)

    async def _begin(
        self, place: QueuePartition, topic: Topic, chosen: Sequence[Span], letters: Sequence[Record]
    ) -> None:
        """Notes what will be written; offsets without a record have nothing to bury."""
        target = await self._target(place[0])
        new_id = await self._new_producer_id(place)
        partition = self._table.partitions.get(place)
        if partition is None:
            return
        is_own = target.id == topic.id  # a queue that reads its own dead letters: they are where they belong
        found = set() if is_own else {record.offset for record in letters}
        burial = Burial(
            topic=target.name,
            partition=place[2] % len(target.partitions),
            producer_id=partition.producer_id if new_id is None else new_id,
            sequence=partition.sequence if new_id is None else 0,
            spans=machine.spans_of(sorted(found)),
        )
        missing = machine.spans_of(offset for offset in _offsets(chosen) if offset not in found)
        self._store.take_partition(machine.begin_burial(partition, burial, missing))
        await self._journal.settled(None)

    async def _new_producer_id(self, place: QueuePartition) -> int | None:
        """For the first burial of a partition, and for one that cannot be repeated as it was begun."""
        partition = self._table.partitions.get(place)
        if partition is not None and partition.burial is None and partition.producer_id >= 0:
            return None
        return await self._threads.run(self._directory.allocate_producer_ids, 1)

    async def _write(self, topic: Topic, partition: SharePartition, letters: Sequence[Record]) -> None:
        burial = partition.burial
        assert burial is not None
        graveyard = self._topics.partition(burial.topic, burial.partition)
        if graveyard is None:
            raise RequestError(f"there is no partition {burial.partition} of {burial.topic}", code=3)
        runs = machine.given_up(partition)
        buried = [_buried(record, topic.name, partition, runs) for record in letters]
        batch = encode_batch(
            buried, producer_id=burial.producer_id, producer_epoch=0, base_sequence=burial.sequence
        )
        graveyard.append(batch, now_ms=self._clock.now_ms())
        await graveyard.synced()


def _chosen(partition: SharePartition) -> list[Span]:
    """What to bury next: the burial that was begun, or the first that were given up."""
    if partition.burial is not None:
        return list(partition.burial.spans)
    chosen, room = [], MOST_RECORDS
    for run in machine.given_up(partition):
        if room <= 0:
            break
        chosen.append(Span(run.first, min(run.last, run.first + room - 1)))
        room -= run.count
    return chosen


def _offsets(spans: Iterable[Span]) -> Iterable[int]:
    return (offset for span in spans for offset in range(span.first, span.last + 1))


def _read(log: PartitionLog, spans: Sequence[Span]) -> tuple[list[Span], list[Record]]:
    """As many of the spans as one batch shall hold, and their records that are still there.

    A record that cannot be read has no key and no value. Worker thread.
    """
    found: list[Record] = []
    size = 0
    for number, span in enumerate(spans):
        offset = max(span.first, log.start_offset)
        while offset <= span.last:
            records, following = _readable_at(log, offset)
            for record in records:
                if offset <= record.offset <= span.last:
                    found.append(record)
                    size += len(record.key or b"") + len(record.value or b"")
                    if size >= MOST_BYTES:
                        return [*spans[:number], Span(span.first, record.offset)], found
            offset = following
    return list(spans), found


def _readable_at(log: PartitionLog, offset: int) -> tuple[list[Record], int]:
    try:
        return _batch_at(log, offset)
    except CorruptionError as error:
        logger.error("offset %d of %s cannot be read: %s", offset, log.path, error)
        return [Record(offset, 0, None, None)], offset + 1


def _batch_at(log: PartitionLog, offset: int) -> tuple[list[Record], int]:
    """The records of the batch that holds an offset, and the offset behind it."""
    data = log.read(offset, 1)
    if not data:
        return [], log.high_watermark
    header = read_header(data)
    return decode_batch(data), max(header.next_offset, offset + 1)


def _buried(record: Record, topic: str, partition: SharePartition, runs: Sequence[RecordRun]) -> Record:
    """The record as its dead letter: its own key, value, time and headers, and where it comes from."""
    run = next((run for run in runs if run.first <= record.offset <= run.last), None)
    values = (
        topic,
        partition.partition,
        record.offset,
        partition.group_id,
        run.deliveries if run is not None else 0,
        _REASONS.get(run.reason, "given up") if run is not None else "given up",
    )
    headers = [(name, str(value).encode()) for name, value in zip(DLQ_HEADERS, values, strict=True)]
    kept = [header for header in record.headers if header[0] not in DLQ_HEADERS]
    return record._replace(headers=(*kept, *headers))
