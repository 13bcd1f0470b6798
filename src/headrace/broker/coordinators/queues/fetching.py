"""One fetch of a member of a queue: what each partition has for it, leased from then on."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any
from uuid import UUID

from headrace.broker.access import ClientSession as Caller
from headrace.broker.access import Operation, Resource, is_allowed
from headrace.broker.coordinators.queues.coordinator import QueueCoordinator
from headrace.broker.coordinators.queues.reading import Enough, read_chunk
from headrace.broker.log import Partition, Topics, WorkerThreads
from headrace.errors import CorruptionError, DiskError, RequestError
from headrace.groups import Code, TopicPartition
from headrace.groups import share as machine
from headrace.groups.share import SharePartition, ShareSession, Taking
from headrace.storage import Topic
from headrace.wire import ErrorCode

__all__ = ["Answers", "ShareFetch", "check_may_read"]

RECORD_LIMIT = 1
MOST_BYTES = 4 * 1024 * 1024
MOST_RECORDS = 10_000
Answers = dict[TopicPartition, dict[str, Any]]


def check_may_read(caller: Caller | None, topic: Topic) -> None:
    """Raises RequestError unless the caller may read the topic now."""
    if not is_allowed(caller, Operation.READ, Resource.TOPIC, topic.name):
        raise RequestError("not allowed for this user", code=Code.TOPIC_AUTHORIZATION_FAILED)


@dataclasses.dataclass(slots=True)
class ShareFetch:
    """One fetch of a session: tries until something was acquired, something is wrong, or time is over.

    A session names topics once, and a fetch may wait for long: whether the caller may read
    them is asked at each try, in the turn of the event loop in which records are acquired.
    """

    queues: QueueCoordinator
    topics: Topics
    threads: WorkerThreads
    session: ShareSession
    caller: Caller | None
    body: Any
    most_wait_ms: int
    most_bytes: int
    more: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    is_over: bool = False

    async def run(self) -> Answers:
        wait_ms = min(self.body.max_wait, self.most_wait_ms)
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
            topic = self.topics.with_id(topic_id)
            partition = self.topics.of(topic, index) if topic is not None else None
            if partition is None:
                continue
            place = (self.session.group_id, topic_id, index)
            partition.on_records(self.more.set)
            self.queues.store.on_available(place, self.more.set)
            undo.append(lambda partition=partition: partition.forget(self.more.set))  # type: ignore[misc]
            undo.append(lambda place=place: self.queues.store.forget(place, self.more.set))  # type: ignore[misc]
        return undo

    def _check_session(self) -> None:
        """Raises RequestError once the session has ended or its user may no longer read as the group."""
        session = self.session
        if not is_allowed(self.caller, Operation.READ, Resource.GROUP, session.group_id):
            raise RequestError("not allowed for this user", code=Code.GROUP_AUTHORIZATION_FAILED)
        if not self.queues.sessions.is_open(session):
            raise RequestError(
                f"the session of {session.member_id} ended meanwhile", code=Code.SHARE_SESSION_NOT_FOUND
            )

    async def _attempt(self) -> Answers:
        self._check_session()
        answers: Answers = {}
        records = (
            max(1, min(self.body.max_records, MOST_RECORDS)) if self.body.max_records > 0 else MOST_RECORDS
        )
        size = max(1, min(self.body.max_bytes, MOST_BYTES, self.most_bytes))
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
        queues, session = self.queues, self.session
        topic = self.topics.with_id(place[0])
        partition = self.topics.of(topic, place[1]) if topic is not None else None
        if topic is None or partition is None:
            return {
                "error_code": int(Code.UNKNOWN_TOPIC_ID if topic is None else Code.UNKNOWN_TOPIC_OR_PARTITION)
            }
        check_may_read(self.caller, topic)
        where = (session.group_id, *place)
        if where not in queues.table.partitions:
            await queues.prepare(session.group_id, topic)
            queues.check_begun(where)
        config = queues.table.config(session.group_id)
        state = self._cut(where, partition)
        if not _has_room(state, config.max_record_locks):
            return None
        begin = state.next_offset()
        enough = Enough(state.available(), max_records)
        chunk = await read_chunk(
            self.threads, partition, begin, max_bytes, enough, committed=config.read_committed
        )
        current = queues.table.partitions.get(where)
        if not chunk.batches or current is None:
            return None
        if current.end_offset < begin:  # somebody moved the queue back meanwhile
            self.more.set()
            return None
        queues.check_available()
        try:
            self._check_session()
        except RequestError:  # as the next attempt finds; what was acquired before is delivered
            self.more.set()
            return None
        check_may_read(self.caller, topic)
        taking = Taking(
            member=session.member_id,
            max_records=max_records,
            whole_batches=self.body.share_acquire_mode != RECORD_LIMIT,
            max_locks=config.max_record_locks,
            deadline_ms=queues.store.now_ms + config.lock_duration_ms,
        )
        batches = [(batch.span, batch.is_delivered) for batch in chunk.batches]
        decision = machine.acquire(current, batches, taking)
        if decision.state is not current:
            queues.store.take_partition(decision)
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
        queues = self.queues
        queues.check_available()
        state = queues.table.partitions.get(where)
        if state is None:
            raise RequestError("the partition is gone", code=Code.UNKNOWN_TOPIC_OR_PARTITION)
        if partition.log.start_offset > state.start_offset:
            topic = self.topics.with_id(where[1])
            if topic is not None:
                queues.note_cut(topic, state)
            queues.store.take_partition(machine.cut(state, partition.log.start_offset))
        return queues.table.partitions[where]


def _has_room(state: SharePartition, max_locks: int) -> bool:
    """Whether something could be delivered at all: given back, or new within the limit."""
    return state.next_offset() < state.end_offset or state.in_flight < max_locks


def _code(error: Exception) -> int:
    if isinstance(error, RequestError):
        return error.code
    return int(
        ErrorCode.corrupt_message if isinstance(error, CorruptionError) else ErrorCode.kafka_storage_error
    )
