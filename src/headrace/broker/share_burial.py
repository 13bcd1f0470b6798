"""Dead letters: records that a queue gave up are copied to its dead-letter topic, each once, then archived.

Three durable steps: the burial is noted (which records, as which batch of which
idempotent producer); the batch is appended and synced; the records are archived. A
crash repeats what comes after the last finished step, and the log takes the same
batch for the duplicate that it is. What cannot be written is tried again until it
can; its records stay given up meanwhile and are delivered to nobody.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from headrace.broker.share_shell import ShareShell
from headrace.broker.share_table import Place
from headrace.errors import CorruptionError, HeadraceError, RequestError
from headrace.groups import share as machine
from headrace.groups.share import Burial, Reason, Run, SharePartition, Span
from headrace.records import Record, decode_batch, encode_batch, read_header
from headrace.storage import PartitionLog, Topic

__all__ = ["DLQ_HEADERS", "Burials"]

logger = logging.getLogger(__name__)

RETRY_DELAY_S = 1.0
MOST_RECORDS = 500
MOST_BYTES = 1024 * 1024
PREFIX = "__dlq.errors."
DLQ_HEADERS = tuple(
    PREFIX + name for name in ("topic", "partition", "offset", "group", "delivery.count", "message")
)
_REASONS = {
    Reason.REJECTED: "rejected by its consumer",
    Reason.RELEASED: "the delivery limit is reached; its consumer released it",
    Reason.EXPIRED: "the delivery limit is reached; its lease ended without an acknowledgement",
}


class Burials(ShareShell):
    """Writes dead letters in the background. Event loop only."""

    async def _bury(self) -> None:
        """Buries whatever is given up, until cancelled."""
        failing = False
        while True:
            await self._digging.wait()
            self._digging.clear()
            for place in tuple(self._given_up):
                try:
                    self.check_available()
                    del self._given_up[place]
                    if await self._bury_some(place):
                        self._given_up[place] = None
                        self._digging.set()
                    failing = False
                except HeadraceError as error:
                    self._given_up[place] = None
                    self._digging.set()
                    if not failing:
                        logger.error(
                            "dead letters of %s cannot be written: %s; trying again", place[0], error
                        )
                    failing = True
                    await asyncio.sleep(RETRY_DELAY_S)

    async def _bury_some(self, place: Place) -> bool:
        """One burial, if there is something to bury; whether more is left."""
        partition = self.table.partitions.get(place)
        topic = self._broker.topics.with_id(place[1])
        if partition is None or topic is None:
            return False
        log = topic.partitions[partition.partition]
        chosen, letters = await self._broker.in_thread(_read, log, _chosen(partition))
        if partition.burial is None or partition.burial.count != len(letters):
            await self._begin(place, topic, chosen, letters)
        try:
            await self._carry_out(place, topic, letters)
        except RequestError as error:
            # The topic was made anew meanwhile, or its producers forgotten: as another producer, then.
            logger.warning("a dead letter of %s is written as by a new producer: %s", place[0], error)
            await self._begin(place, topic, chosen, letters)
            await self._carry_out(place, topic, letters)
        after = self.table.partitions.get(place)
        return after is not None and bool(machine.given_up(after))

    async def _carry_out(self, place: Place, topic: Topic, letters: Sequence[Record]) -> None:
        partition = self.table.partitions.get(place)
        if partition is None or partition.burial is None:
            return
        await self._write(topic, partition, letters)
        partition = self.table.partitions.get(place)
        if partition is not None and partition.burial is not None:
            self.take_partition(machine.finish_burial(partition))
            await self.settled(None)

    async def _target(self, group_id: str) -> Topic:
        """The dead-letter topic; made if it is missing, and then kept until somebody says otherwise."""
        name = self.table.config(group_id).dead_letter_topic
        topic = self._broker.topics.named(name)
        if topic is not None:
            return topic
        return await self._broker.topics.create(
            name, self._broker.settings.default_partitions, {"retention.ms": "-1"}
        )

    async def _begin(
        self, place: Place, topic: Topic, chosen: Sequence[Span], letters: Sequence[Record]
    ) -> None:
        """Notes what will be written; offsets without a record have nothing to bury."""
        target = await self._target(place[0])
        new_id = await self._new_producer_id(place)
        partition = self.table.partitions.get(place)
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
        self.take_partition(machine.begin_burial(partition, burial, missing))
        await self.settled(None)

    async def _new_producer_id(self, place: Place) -> int | None:
        """For the first burial of a partition, and for one that cannot be repeated as it was begun."""
        partition = self.table.partitions.get(place)
        if partition is not None and partition.burial is None and partition.producer_id >= 0:
            return None
        return await self._broker.in_thread(self._broker.directory.allocate_producer_ids, 1)

    async def _write(self, topic: Topic, partition: SharePartition, letters: Sequence[Record]) -> None:
        burial = partition.burial
        assert burial is not None
        graveyard = self._broker.partition(burial.topic, burial.partition)
        if graveyard is None:
            raise RequestError(f"there is no partition {burial.partition} of {burial.topic}", code=3)
        runs = machine.given_up(partition)
        buried = [_buried(record, topic.name, partition, runs) for record in letters]
        batch = encode_batch(
            buried, producer_id=burial.producer_id, producer_epoch=0, base_sequence=burial.sequence
        )
        graveyard.append(batch, now_ms=self._broker.clock.now_ms())
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


def _buried(record: Record, topic: str, partition: SharePartition, runs: Sequence[Run]) -> Record:
    """The record as its dead letter: its own key, value, time and headers, and where it comes from."""
    run = next((run for run in runs if run.first <= record.offset <= run.last), None)
    told = (
        topic,
        partition.partition,
        record.offset,
        partition.group_id,
        run.deliveries if run is not None else 0,
        _REASONS.get(run.reason, "given up") if run is not None else "given up",
    )
    headers = [(name, str(value).encode()) for name, value in zip(DLQ_HEADERS, told, strict=True)]
    kept = [header for header in record.headers if header[0] not in DLQ_HEADERS]
    return record._replace(headers=(*kept, *headers))
