"""Queues: membership, fetching with a lease, acknowledging. Share groups in Kafka's words."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.apis.share_admin import HANDLERS as ADMIN_HANDLERS
from headrace.broker.partition import Partition
from headrace.broker.quotas import CONSUMER
from headrace.broker.share_reading import read_chunk
from headrace.errors import CorruptionError, DiskError, RequestError, RetriableError
from headrace.groups import Code
from headrace.groups import share as machine
from headrace.groups.events import TopicPartition
from headrace.groups.share import (
    FINAL,
    INITIAL,
    Ack,
    AckType,
    Session,
    ShareHeartbeat,
    SharePartition,
    ShareReply,
    Taking,
)
from headrace.wire import Api, ErrorCode, Request, VersionRange

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["HANDLERS", "share_acknowledge", "share_fetch", "share_group_heartbeat"]

RECORD_LIMIT = 1
MOST_BYTES = 4 * 1024 * 1024
MOST_RECORDS = 10_000
NO_LEADER = {"leader_id": -1, "leader_epoch": -1}
Answers = dict[TopicPartition, dict[str, Any]]


# --- members ------------------------------------------------------------------------------------


async def share_group_heartbeat(broker: "Broker", request: Request) -> dict[str, Any]:
    """Joins, stays, learns what to read, and leaves."""
    body = request.body
    names = body.subscribed_topic_names
    wanted = ShareHeartbeat(
        member_id=body.member_id,
        epoch=body.member_epoch,
        rack_id=body.rack_id,
        client_id=request.client_id or "",
        client_host=f"/{request.client_host}",
        topic_names=None if names is None else frozenset(names),
    )
    try:
        reply = await broker.shares.heartbeat(body.group_id, wanted, broker.coordinator.catalog())
    except RetriableError as error:
        reply = ShareReply(error=Code.COORDINATOR_NOT_AVAILABLE, message=str(error), member_id=body.member_id)
    interval = broker.shares.table.config(body.group_id).heartbeat_interval_ms
    return {
        "error_code": int(reply.error),
        "error_message": reply.message,
        "member_id": reply.member_id,
        "member_epoch": reply.epoch,
        "heartbeat_interval": 0 if reply.error else interval,
        "assignment": None if reply.assignment is None else {"topic_partitions": _grouped(reply.assignment)},
    }


def _grouped(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics.items()]


# --- sessions -----------------------------------------------------------------------------------


def _session(broker: "Broker", request: Request) -> Session:
    """The session that a request belongs to, or begins; RequestError if there is none."""
    body, shares = request.body, broker.shares
    group_id, member_id, epoch = body.group_id or "", body.member_id or "", body.share_session_epoch
    if not group_id or not member_id:
        raise RequestError("a group id and a member id are needed", code=Code.INVALID_REQUEST)
    if not shares.has(group_id):
        raise RequestError(f"there is no queue {group_id}; join it first", code=Code.GROUP_ID_NOT_FOUND)
    if epoch == INITIAL:
        if request.api_key == Api.SHARE_ACKNOWLEDGE:
            raise RequestError(
                "a session begins with a fetch, not with an acknowledgement",
                code=Code.INVALID_SHARE_SESSION_EPOCH,
            )
        found = shares.sessions.open(group_id, member_id, request.connection)
    else:
        found = shares.sessions.find(group_id, member_id, epoch)
    if isinstance(found, Code):
        raise RequestError(f"the session of {member_id}: {found.name}, epoch {epoch}", code=found)
    if epoch > INITIAL:
        found.advance()
    return found


def _refused(error: RequestError | RetriableError) -> dict[str, Any]:
    code = Code.COORDINATOR_NOT_AVAILABLE if isinstance(error, RetriableError) else error.code
    return {"error_code": int(code), "error_message": str(error), "responses": []}


def _end(broker: "Broker", session: Session) -> None:
    broker.shares.release(session, delivered=False)
    broker.shares.sessions.close(session)


# --- acknowledgements ---------------------------------------------------------------------------


async def share_acknowledge(broker: "Broker", request: Request) -> dict[str, Any]:
    """Says what became of records; answered when that is on disk."""
    body = request.body
    try:
        broker.shares.check_available()
        session = _session(broker, request)
        answers = _acknowledged(broker, session, body)
        if body.share_session_epoch == FINAL:
            _end(broker, session)
        await broker.shares.settled(None)
    except (RequestError, RetriableError) as error:
        return _refused(error)
    lock_ms = broker.shares.table.config(session.group_id).lock_duration_ms
    return {"responses": _responses(answers), "acquisition_lock_timeout": lock_ms}


def _acknowledged(broker: "Broker", session: Session, body: Any, field: str = "error_code") -> Answers:
    """Takes the acknowledgements of a request in; what to answer for each partition that had some."""
    answers: Answers = {}
    for topic in body.topics:
        for part in topic.partitions:
            if not part.acknowledgement_batches:
                continue
            place = (topic.topic_id, part.partition_index)
            code = _taken(broker, session, place, part.acknowledgement_batches, body.is_renew_ack)
            answers[place] = {field: int(code), **_message(code, field)}
    return answers


def _taken(
    broker: "Broker", session: Session, place: TopicPartition, batches: Iterable[Any], is_renewal: bool
) -> Code:
    topic_id, index = place
    if topic_id is None or broker.topics.with_id(topic_id) is None:
        return Code.UNKNOWN_TOPIC_ID
    acks: list[Ack] = []
    for batch in batches:
        found = machine.spelled_out(batch.first_offset, batch.last_offset, batch.acknowledge_types)
        if found is None:
            return Code.INVALID_REQUEST
        acks += found
    if any(ack.kind is AckType.RENEW for ack in acks):
        allowed = broker.shares.table.config(session.group_id).renewals
        if not is_renewal or not allowed:
            return Code.INVALID_REQUEST
    return broker.shares.acknowledge(session, (session.group_id, topic_id, index), acks)


def _message(code: Code, field: str) -> dict[str, str]:
    if not code:
        return {}
    name = "error_message" if field == "error_code" else "acknowledge_error_message"
    texts = {
        Code.INVALID_RECORD_STATE: "the member does not hold the record: its lease ended, or it is finished",
        Code.INVALID_REQUEST: "the acknowledgement is none that there is",
    }
    return {name: texts.get(code, code.name)}


def _responses(answers: Answers) -> list[dict[str, Any]]:
    topics: dict[UUID, list[dict[str, Any]]] = {}
    for (topic_id, index), answer in answers.items():
        part = {"partition_index": index, "current_leader": NO_LEADER, **answer}
        topics.setdefault(topic_id, []).append(part)
    return [{"topic_id": topic_id, "partitions": parts} for topic_id, parts in topics.items()]


# --- fetching -----------------------------------------------------------------------------------


async def share_fetch(broker: "Broker", request: Request) -> dict[str, Any]:
    """Takes acknowledgements in, then leases records to the member, waiting for some if there are none."""
    body, shares = request.body, broker.shares
    try:
        shares.check_available()
        if body.share_session_epoch == INITIAL and _has_acks(body):
            raise RequestError("the first fetch of a session acknowledges nothing", code=Code.INVALID_REQUEST)
        session = _session(broker, request)
        answers = _acknowledged(broker, session, body, "acknowledge_error_code")
        if body.share_session_epoch == FINAL:
            _end(broker, session)
        else:
            _change(session, body)
            if not body.is_renew_ack and not request.refused:
                answers = _merged(answers, await _Fetch(broker, session, body).run())
        await shares.settled(None)
    except (RequestError, RetriableError) as error:
        return _refused(error)
    size = sum(len(answer.get("records", b"")) for answer in answers.values())
    return {
        "throttle_time": broker.quotas.charge(CONSUMER, request.client_id, size),
        "responses": _responses(answers),
        "acquisition_lock_timeout": shares.table.config(session.group_id).lock_duration_ms,
    }


def _has_acks(body: Any) -> bool:
    return any(part.acknowledgement_batches for topic in body.topics for part in topic.partitions)


def _merged(answers: Answers, fetched: Answers) -> Answers:
    return {place: {**answers.get(place, {}), **fetched.get(place, {})} for place in {**answers, **fetched}}


def _change(session: Session, body: Any) -> None:
    """What a request names is read from now on; what it forgets is not."""
    added = [(topic.topic_id, part.partition_index) for topic in body.topics for part in topic.partitions]
    forgotten = [
        (topic.topic_id, index) for topic in body.forgotten_topics_data for index in topic.partitions
    ]
    session.change(added, forgotten)


@dataclasses.dataclass(slots=True)
class _Fetch:
    """One fetch of a session: tries until something was acquired, something is wrong, or time is over."""

    broker: "Broker"
    session: Session
    body: Any
    more: asyncio.Event = dataclasses.field(default_factory=asyncio.Event)
    is_over: bool = False

    async def run(self) -> Answers:
        wait_ms = min(self.body.max_wait, self.broker.settings.idle_timeout_ms)
        timer = asyncio.get_running_loop().call_later(max(wait_ms, 0) / 1000, self._end)
        watched: list[Callable[[], None]] = []
        try:
            while True:
                self.more.clear()
                answers = await self._attempt()
                if answers or self.is_over or wait_ms <= 0:
                    return answers
                if not watched:
                    watched = self._watch()
                    continue  # once more: something may have come before we watched
                await self.more.wait()
        finally:
            timer.cancel()
            for forget in watched:
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
        chunk = await read_chunk(
            broker, partition, state.next_offset(), max_bytes, committed=config.read_committed
        )
        current = shares.table.partitions.get(where)
        if not chunk.batches or current is None:
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


HANDLERS: dict[int, tuple[Any, VersionRange]] = {
    Api.SHARE_GROUP_HEARTBEAT: (share_group_heartbeat, VersionRange(1, 1)),
    Api.SHARE_FETCH: (share_fetch, VersionRange(1, 2)),
    Api.SHARE_ACKNOWLEDGE: (share_acknowledge, VersionRange(1, 2)),
    **ADMIN_HANDLERS,
}
