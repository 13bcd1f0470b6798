"""Queues: membership, fetching with a lease, acknowledging. Share groups in Kafka's words."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.broker.apis.share_admin import HANDLERS as ADMIN_HANDLERS
from headrace.broker.quotas import CONSUMER
from headrace.broker.share_fetching import Answers, ShareFetch
from headrace.errors import RequestError, RetriableError
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
    ShareReply,
)
from headrace.wire import Api, Request, VersionRange

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = ["HANDLERS", "share_acknowledge", "share_fetch", "share_group_heartbeat"]

NO_LEADER = {"leader_id": -1, "leader_epoch": -1}


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
                answers = _merged(answers, await ShareFetch(broker, session, body).run())
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


HANDLERS: dict[int, tuple[Any, VersionRange]] = {
    Api.SHARE_GROUP_HEARTBEAT: (share_group_heartbeat, VersionRange(1, 1)),
    Api.SHARE_FETCH: (share_fetch, VersionRange(1, 2)),
    Api.SHARE_ACKNOWLEDGE: (share_acknowledge, VersionRange(1, 2)),
    **ADMIN_HANDLERS,
}
