"""Queues: membership, fetching with a lease, acknowledging. Share groups in Kafka's words."""

import dataclasses
from collections.abc import Iterable
from typing import Any
from uuid import UUID

from headrace.broker.coordinators import GroupCoordinator
from headrace.broker.coordinators.queues import Answers, QueueCoordinator, ShareFetch, check_may_read
from headrace.broker.limits import CONSUMER, Quotas
from headrace.broker.log import Topics, WorkerThreads
from headrace.broker.settings import BrokerSettings
from headrace.errors import RequestError, RetriableError
from headrace.groups import Code, TopicPartition
from headrace.groups import share as machine
from headrace.groups.share import (
    FINAL,
    INITIAL,
    Ack,
    AckType,
    ShareHeartbeat,
    ShareReply,
    ShareSession,
)
from headrace.wire import Api, Request

__all__ = ["QueueApis"]

NO_LEADER = {"leader_id": -1, "leader_epoch": -1}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueApis:
    """Queues: membership, fetching with a lease, acknowledging."""

    settings: BrokerSettings
    topics: Topics
    groups: GroupCoordinator
    queues: QueueCoordinator
    quotas: Quotas
    threads: WorkerThreads

    # --- members ----------------------------------------------------------------------------------

    async def share_group_heartbeat(self, request: Request) -> dict[str, Any]:
        """Joins, stays, learns what to read, and leaves."""
        body = request.body
        names = body.subscribed_topic_names
        wanted = ShareHeartbeat(
            member_id=body.member_id,
            epoch=body.member_epoch,
            rack_id=body.rack_id,
            client_id=request.client_id or "",
            client_host=f"/{request.client_host}",
            user=request.session.principal if request.session is not None else None,
            topic_names=None if names is None else frozenset(names),
        )
        try:
            reply = await self.queues.heartbeat(body.group_id, wanted, self.groups.catalog())
        except RetriableError as error:
            reply = ShareReply(
                error=Code.COORDINATOR_NOT_AVAILABLE, message=str(error), member_id=body.member_id
            )
        interval = self.queues.table.config(body.group_id).heartbeat_interval_ms
        return {
            "error_code": int(reply.error),
            "error_message": reply.message,
            "member_id": reply.member_id,
            "member_epoch": reply.epoch,
            "heartbeat_interval": 0 if reply.error else interval,
            "assignment": None
            if reply.assignment is None
            else {"topic_partitions": _grouped(reply.assignment)},
        }

    # --- sessions ---------------------------------------------------------------------------------

    def _session(self, request: Request) -> ShareSession:
        """The session that a request belongs to, or begins; RequestError if there is none."""
        body, queues = request.body, self.queues
        group_id, member_id, epoch = body.group_id or "", body.member_id or "", body.share_session_epoch
        whose = request.connection, request.session.principal if request.session is not None else None
        if not group_id or not member_id:
            raise RequestError("a group id and a member id are needed", code=Code.INVALID_REQUEST)
        if group_id not in queues.table:
            raise RequestError(f"there is no queue {group_id}; join it first", code=Code.GROUP_ID_NOT_FOUND)
        if epoch == INITIAL:
            if request.api_key == Api.SHARE_ACKNOWLEDGE:
                raise RequestError(
                    "a session begins with a fetch, not with an acknowledgement",
                    code=Code.INVALID_SHARE_SESSION_EPOCH,
                )
            found = queues.sessions.open(group_id, member_id, *whose)
        else:
            found = queues.sessions.find(group_id, member_id, epoch, *whose)
        if found is Code.GROUP_AUTHORIZATION_FAILED:
            raise RequestError(
                f"another user has a session as {member_id}; join as another member", code=found
            )
        if isinstance(found, Code):
            raise RequestError(f"the session of {member_id}: {found.name}, epoch {epoch}", code=found)
        if epoch > INITIAL:
            found.advance()
        return found

    def _end(self, session: ShareSession) -> None:
        self.queues.release(session, delivered=False)
        self.queues.sessions.close(session)

    # --- acknowledgements -------------------------------------------------------------------------

    async def share_acknowledge(self, request: Request) -> dict[str, Any]:
        """Says what became of records; answered when that is on disk."""
        body = request.body
        try:
            self.queues.check_available()
            session = self._session(request)
            answers = self._acknowledged(session, request)
            if body.share_session_epoch == FINAL:
                self._end(session)
            await self.queues.wait_synced()
        except (RequestError, RetriableError) as error:
            return _refused(error)
        lock_ms = self.queues.table.config(session.group_id).lock_duration_ms
        return {"responses": _responses(answers), "acquisition_lock_timeout": lock_ms}

    def _acknowledged(self, session: ShareSession, request: Request, field: str = "error_code") -> Answers:
        """Takes the acknowledgements of a request in; what to answer for each partition that had some."""
        answers: Answers = {}
        for topic in request.body.topics:
            for part in topic.partitions:
                if not part.acknowledgement_batches:
                    continue
                place = (topic.topic_id, part.partition_index)
                code = self._taken(session, place, part.acknowledgement_batches, request)
                answers[place] = {field: int(code), **_message(code, field)}
        return answers

    def _taken(
        self, session: ShareSession, place: TopicPartition, batches: Iterable[Any], request: Request
    ) -> Code:
        topic_id, index = place
        topic = self.topics.with_id(topic_id)
        if topic is None:
            return Code.UNKNOWN_TOPIC_ID
        try:
            check_may_read(request.session, topic)
        except RequestError as error:
            return Code(error.code)
        acks: list[Ack] = []
        for batch in batches:
            found = machine.spelled_out(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            if found is None:
                return Code.INVALID_REQUEST
            acks += found
        if any(ack.kind is AckType.RENEW for ack in acks):
            allowed = self.queues.table.config(session.group_id).renewals
            if not request.body.is_renew_ack or not allowed:
                return Code.INVALID_REQUEST
        return self.queues.acknowledge(session, (session.group_id, topic_id, index), acks)

    # --- fetching ---------------------------------------------------------------------------------

    async def share_fetch(self, request: Request) -> dict[str, Any]:
        """Takes acknowledgements in, then leases records to the member, if need be waiting for some."""
        body, queues = request.body, self.queues
        try:
            queues.check_available()
            if body.share_session_epoch == INITIAL and _has_acks(body):
                raise RequestError(
                    "the first fetch of a session acknowledges nothing", code=Code.INVALID_REQUEST
                )
            session = self._session(request)
            answers = self._acknowledged(session, request, "acknowledge_error_code")
            if body.share_session_epoch == FINAL:
                self._end(session)
            else:
                _change(session, body)
                if not body.is_renew_ack:
                    answers = _merged(answers, await self._fetched(session, request))
            await queues.wait_synced()
        except (RequestError, RetriableError) as error:
            return _refused(error)
        size = sum(len(answer.get("records", b"")) for answer in answers.values())
        return {
            "throttle_time": self.quotas.charge(CONSUMER, request.client_id, size),
            "responses": _responses(answers),
            "acquisition_lock_timeout": queues.table.config(session.group_id).lock_duration_ms,
        }

    async def _fetched(self, session: ShareSession, request: Request) -> Answers:
        return await ShareFetch(
            queues=self.queues,
            topics=self.topics,
            threads=self.threads,
            session=session,
            caller=request.session,
            body=request.body,
            most_wait_ms=self.settings.idle_timeout_ms,
            most_bytes=self.settings.fetch_max_bytes,
        ).run()


def _grouped(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics.items()]


def _refused(error: RequestError | RetriableError) -> dict[str, Any]:
    code = Code.COORDINATOR_NOT_AVAILABLE if isinstance(error, RetriableError) else error.code
    return {"error_code": int(code), "error_message": str(error), "responses": []}


def _message(code: Code, field: str) -> dict[str, str]:
    if not code:
        return {}
    name = "error_message" if field == "error_code" else "acknowledge_error_message"
    texts = {
        Code.INVALID_RECORD_STATE: "the member does not hold the record: its lease ended, or it is finished",
        Code.INVALID_REQUEST: "the acknowledgement is none that there is",
        Code.TOPIC_AUTHORIZATION_FAILED: "not allowed for this user",
    }
    return {name: texts.get(code, code.name)}


def _responses(answers: Answers) -> list[dict[str, Any]]:
    topics: dict[UUID, list[dict[str, Any]]] = {}
    for (topic_id, index), answer in answers.items():
        part = {"partition_index": index, "current_leader": NO_LEADER, **answer}
        topics.setdefault(topic_id, []).append(part)
    return [{"topic_id": topic_id, "partitions": parts} for topic_id, parts in topics.items()]


def _has_acks(body: Any) -> bool:
    return any(part.acknowledgement_batches for topic in body.topics for part in topic.partitions)


def _merged(answers: Answers, fetched: Answers) -> Answers:
    return {place: {**answers.get(place, {}), **fetched.get(place, {})} for place in {**answers, **fetched}}


def _change(session: ShareSession, body: Any) -> None:
    """What a request names is read from now on; what it forgets is not."""
    added = [(topic.topic_id, part.partition_index) for topic in body.topics for part in topic.partitions]
    forgotten = [
        (topic.topic_id, index) for topic in body.forgotten_topics_data for index in topic.partitions
    ]
    session.change(added, forgotten)
