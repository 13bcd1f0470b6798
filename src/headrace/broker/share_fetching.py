"""One fetch of a member of a queue: what each partition has for it, leased from then on."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.partition import Partition
from headrace.broker.share_reading import Enough, read_chunk
from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.groups import Code
from headrace.groups import share as machine
from headrace.groups.events import TopicPartition
from headrace.groups.share import Session, SharePartition, Taking
from headrace.wire import ErrorCode

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["Answers", "ShareFetch"]

RECORD_LIMIT = 1
MOST_BYTES = 4 * 1024 * 1024
MOST_RECORDS = 10_000
Answers = dict[TopicPartition, dict[str, Any]]


@dataclasses.dataclass(slots=True)
class ShareFetch:
    """One fetch of a session: tries until something was acquired, something is wrong, or time is over."""

    broker: "Broker"
    session: Session
    body: Any
    more: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    is_over: bool = False

    async def run(self) -> Answers:
        wait_ms = min(self.body.max_wait, self.broker.settings.idle_timeout_ms)
        timer = asyncio.get_running_loop().call_later(max(wait_ms, 0) / 1000, self._end)
        watched: list[Callable[[], None]] | None = None
        try:
            while True:
                self.more.clear()
                answers = await self._attempt()
                if answers or self.is_over or wait_ms <= 0:
                    return answers
                if watched is None:
                    watched = self._watch()
                    continue  # once more: something may have come before we watched
                await self.more.wait()
        finally:
            timer.cancel()
            for forget in watched or ():
                forget()

    def _end(self) -> None:
        self.is_over = True
        self.more.set()

    def _watch(self) -> list[Callable[[], None]]:
        """Wakes this fetch when records come, or come back; how to end that."""
        undo: list[Callable[[], None]] = []
        for topic_id, index in self.session.partitions:
            topic = self.broker.topics.with_id(topic_id)
            partition = self.broker.topics.of(topic, index) if topic is not None else None
            if partition is None:
                continue
            place = (self.session.group_id, topic_id, index)
            partition.on_records(self.more.set)
            self.broker.shares.on_available(place, self.more.set)
            undo.append(lambda partition=partition: partition.forget(self.more.set))  # type: ignore[misc]
            undo.append(lambda place=place: self.broker.shares.forget(place, self.more.set))  # type: ignore[misc]
        return undo

    async def _attempt(self) -> Answers:
        answers: Answers = {}
        records = (
            max(1, min(self.body.max_records, MOST_RECORDS)) if self.body.max_records > 0 else MOST_RECORDS
        )
        size = max(1, min(self.body.max_bytes, MOST_BYTES, self.broker.settings.fetch_max_bytes))
        for place in self.session.rotate():
            if records <= 0 or size <= 0:
                break
            try:
                answer = await self._deliver(place, records, size)
            except (RequestError, CorruptionError, DiskError) as error:
                answer = {"error_code": _code(error), "error_message": str(error)}
            if answer:
                answers[place] = answer
                size -= len(answer.get("records", b""))
                records -= sum(
                    got["last_offset"] - got["first_offset"] + 1 for got in answer.get("acquired_records", ())
                )
        return answers

    async def _deliver(
        self, place: TopicPartition, max_records: int, max_bytes: int
    ) -> dict[str, Any] | None:
        """What one partition has for the member, if anything; it is leased from now on."""
        broker, shares, session = self.broker, self.broker.shares, self.session
        topic = broker.topics.with_id(place[0])
        partition = broker.topics.of(topic, place[1]) if topic is not None else None
        if topic is None or partition is None:
            return {
                "error_code": int(Code.UNKNOWN_TOPIC_ID if topic is None else Code.UNKNOWN_TOPIC_OR_PARTITION)
            }
        where = (session.group_id, *place)
        if where not in shares.table.partitions:
            await shares.prepare(session.group_id, topic)
        config = shares.table.config(session.group_id)
        state = self._cut(where, partition)
        if not _has_room(state, config.max_record_locks):
            return None
        begin = state.next_offset()
        enough = Enough(state.available(), max_records)
        chunk = await read_chunk(broker, partition, begin, max_bytes, enough, committed=config.read_committed)
        current = shares.table.partitions.get(where)
        if not chunk.batches or current is None:
            return None
        if current.end_offset < begin:  # somebody moved the queue back meanwhile
            self.more.set()
            return None
        shares.check_available()
        taking = Taking(
            member=session.member_id,
            max_records=max_records,
            whole_batches=self.body.share_acquire_mode != RECORD_LIMIT,
            max_locks=config.max_record_locks,
            deadline_ms=shares.now_ms + config.lock_duration_ms,
        )
        batches = [(batch.span, batch.is_delivered) for batch in chunk.batches]
        decision = machine.acquire(current, batches, taking)
        if decision.state is not current:
            shares.take_partition(decision)
        if not decision.reply:
            if decision.events:
                self.more.set()  # only markers and the like: there may be records behind them
            return None
        data = chunk.of(decision.reply)
        partition.fetched_records += sum(got.last - got.first + 1 for got in decision.reply)
        partition.fetched_bytes += len(data)
        acquired = [
            {"first_offset": got.first, "last_offset": got.last, "delivery_count": got.deliveries}
            for got in decision.reply
        ]
        return {"records": data, "acquired_records": acquired}

    def _cut(self, where: tuple[str, UUID, int], partition: Partition) -> SharePartition:
        """The partition of the queue, without what the log no longer has."""
        shares = self.broker.shares
        shares.check_available()
        state = shares.table.partitions.get(where)
        if state is None:
            raise RequestError("the partition is gone", code=Code.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.log.start_offset > state.start_offset:
            topic = self.broker.topics.with_id(where[1])
            if topic is not None:
                shares.note_cut(topic, state)
            shares.take_partition(machine.cut(state, partition.log.start_offset))
        return shares.table.partitions[where]


def _has_room(state: SharePartition, max_locks: int) -> bool:
    """Whether something could be delivered at all: given back, or new within the limit."""
    return state.next_offset() < state.end_offset or state.in_flight < max_locks


def _code(error: Exception) -> int:
    if isinstance(error, RequestError):
        return error.code
    return int(
        ErrorCode.corrupt_message if isinstance(error, CorruptionError) else ErrorCode.kafka_storage_error
    )
