"""Membership of groups: find the coordinator, join, sync, heartbeat, leave; both protocols."""

import contextlib
import dataclasses
import re
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

from headrace.broker.access import Operation, Resource, is_allowed
from headrace.broker.apis.metadata import advertised
from headrace.broker.coordinators import GroupCoordinator, new_member_id
from headrace.broker.settings import BrokerSettings
from headrace.errors import RetriableError
from headrace.groups import Code, Partitions
from headrace.groups.classic import (
    JoinReply,
    JoinRequest,
    LeaveRequest,
    MemberRequest,
    SyncReply,
    SyncRequest,
)
from headrace.groups.consumer import ConsumerHeartbeat, ConsumerReply
from headrace.wire import Request

__all__ = ["GroupApis"]

T = TypeVar("T")

GROUP, TRANSACTION, SHARE = 0, 1, 2
LEAVE_FOR_NOW = -2  # the smallest epoch that means something
_SHARE_KEY = re.compile(r".+:[\w-]{22}:\d{1,9}", re.ASCII | re.DOTALL)


async def _or(attempt: Awaitable[T], unavailable: T) -> T:
    """The reply, or the given one when it could not be made durable."""
    try:
        return await attempt
    except RetriableError:
        return unavailable


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupApis:
    """Membership of consumer groups."""

    settings: BrokerSettings
    groups: GroupCoordinator

    # --- who coordinates --------------------------------------------------------------------------

    async def find_coordinator(self, request: Request) -> dict[str, Any]:
        """Always this broker, for groups and transactions alike."""
        body = request.body
        if request.api_version < 4:
            return self._coordinator(request, body.key)
        return {
            "coordinators": [{"key": key, **self._coordinator(request, key)} for key in body.coordinator_keys]
        }

    def _coordinator(self, request: Request, key: str) -> dict[str, Any]:
        key_type = request.body.key_type
        message = None
        if key_type not in (GROUP, TRANSACTION, SHARE):
            message = f"there is no coordinator of type {key_type}; 0 is a group, 1 a transaction, 2 a queue"
        elif key_type == SHARE and not _SHARE_KEY.fullmatch(key):
            message = "a queue's state is named by group:topic id:partition"
        if message is not None:
            return {
                "error_code": int(Code.INVALID_REQUEST),
                "error_message": message,
                "node_id": -1,
                "host": "",
                "port": -1,
            }
        host, port = advertised(self.settings, request)
        return {
            "error_code": 0,
            "error_message": None,
            "node_id": self.settings.node_id,
            "host": host,
            "port": port,
        }

    # --- the classic protocol ---------------------------------------------------------------------

    async def join_group(self, request: Request) -> dict[str, Any]:
        """Waits until the rebalance completes; version 4 and later first learn their member id."""
        body = request.body
        client_id = request.client_id or ""
        rebalance_ms = body.rebalance_timeout if request.api_version >= 1 else body.session_timeout
        wanted = JoinRequest(
            ticket=0,
            member_id=body.member_id,
            new_member_id=new_member_id(body.group_instance_id or client_id),
            instance_id=body.group_instance_id,
            client_id=client_id,
            client_host=f"/{request.client_host}",
            session_timeout_ms=body.session_timeout,
            rebalance_timeout_ms=max(rebalance_ms, 0),
            protocol_type=body.protocol_type,
            protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in body.protocols),
            knows_member_id_required=request.api_version >= 4,
            knows_skip_assignment=request.api_version >= 9,
        )
        unavailable = JoinReply(error=Code.COORDINATOR_NOT_AVAILABLE, member_id=body.member_id)
        reply = await _or(self.groups.join(body.group_id, wanted), unavailable)
        if not reply.error and await self._is_dismissed(request, reply.member_id):
            reply = JoinReply(error=Code.GROUP_AUTHORIZATION_FAILED, member_id=body.member_id)
        return _joined(reply, request.api_version)

    async def sync_group(self, request: Request) -> dict[str, Any]:
        """Waits until the leader has brought the assignment."""
        body = request.body
        wanted = SyncRequest(
            ticket=0,
            member=_member(body),
            protocol_type=body.protocol_type,
            protocol_name=body.protocol_name,
            assignments={given.member_id: bytes(given.assignment) for given in body.assignments},
        )
        unavailable = SyncReply(error=Code.COORDINATOR_NOT_AVAILABLE)
        reply = await _or(self.groups.sync(body.group_id, wanted), unavailable)
        if not reply.error and await self._is_dismissed(request, body.member_id):
            reply = SyncReply(error=Code.GROUP_AUTHORIZATION_FAILED)
        return {
            "error_code": int(reply.error),
            "protocol_type": reply.protocol_type,
            "protocol_name": reply.protocol_name,
            "assignment": reply.assignment,
        }

    async def _is_dismissed(self, request: Request, member_id: str) -> bool:
        """Whether a member that has waited may no longer read as the group; it is out of the group then.

        The guard decided before the wait. What it waited for tells of the other members, and
        as one of them it would hold up the group until its session ends.
        """
        body = request.body
        if is_allowed(request.session, Operation.READ, Resource.GROUP, body.group_id):
            return False
        member = LeaveRequest(member_id=member_id, instance_id=body.group_instance_id)
        with contextlib.suppress(RetriableError):  # its session ends in time
            await self.groups.leave(body.group_id, [member])
        return True

    async def heartbeat(self, request: Request) -> dict[str, Any]:
        """Keeps a member's session alive."""
        if not request.body.group_id:
            return {"error_code": int(Code.INVALID_GROUP_ID)}
        attempt = self.groups.heartbeat(request.body.group_id, _member(request.body))
        return {"error_code": int(await _or(attempt, Code.COORDINATOR_NOT_AVAILABLE))}

    async def leave_group(self, request: Request) -> dict[str, Any]:
        """One member before version 3, any number since."""
        body = request.body
        if request.api_version < 3:
            leavers = [LeaveRequest(member_id=body.member_id)]
        else:
            leavers = [
                LeaveRequest(member_id=m.member_id, instance_id=m.group_instance_id) for m in body.members
            ]
        try:
            codes = await self.groups.leave(body.group_id, leavers)
        except RetriableError:
            return {"error_code": int(Code.COORDINATOR_NOT_AVAILABLE)}
        if request.api_version < 3:
            return {"error_code": int(codes[0])}
        members = [
            {"member_id": leaver.member_id, "group_instance_id": leaver.instance_id, "error_code": int(code)}
            for leaver, code in zip(leavers, codes, strict=True)
        ]
        return {"error_code": 0, "members": members}

    # --- the server-side protocol -----------------------------------------------------------------

    async def consumer_group_heartbeat(self, request: Request) -> dict[str, Any]:
        """Joins, stays, reconciles and leaves."""
        body = request.body
        if body.member_epoch < LEAVE_FOR_NOW:
            return {"error_code": int(Code.INVALID_REQUEST), "error_message": "there is no such member epoch"}
        names = body.subscribed_topic_names
        wanted = ConsumerHeartbeat(
            member_id=body.member_id,
            epoch=body.member_epoch,
            instance_id=body.instance_id,
            rack_id=body.rack_id,
            client_id=request.client_id or "",
            client_host=f"/{request.client_host}",
            user=request.session.principal if request.session is not None else None,
            rebalance_timeout_ms=body.rebalance_timeout,
            topic_names=None if names is None else frozenset(names),
            topic_regex=body.subscribed_topic_regex,
            assignor=body.server_assignor,
            owned=_owned(body.topic_partitions),
            new_member_id=new_member_id(request.client_id or "") if request.api_version == 0 else None,
        )
        unavailable = ConsumerReply(error=Code.COORDINATOR_NOT_AVAILABLE, member_id=body.member_id)
        reply = await _or(self.groups.consumer_heartbeat(body.group_id, wanted), unavailable)
        interval = self.groups.settings.group_consumer_heartbeat_interval_ms
        return {
            "error_code": int(reply.error),
            "error_message": reply.message,
            "member_id": reply.member_id,
            "member_epoch": reply.epoch,
            "heartbeat_interval": 0 if reply.error else interval,
            "assignment": None
            if reply.assignment is None
            else {"topic_partitions": _listed(reply.assignment)},
        }


def _joined(reply: JoinReply, version: int) -> dict[str, Any]:
    missing = "" if version < 7 else None
    return {
        "error_code": int(reply.error),
        "generation_id": reply.generation,
        "protocol_type": reply.protocol_type,
        "protocol_name": missing if reply.protocol_name is None else reply.protocol_name,
        "leader": reply.leader,
        "skip_assignment": reply.skip_assignment,
        "member_id": reply.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in reply.members
        ],
    }


def _member(body: Any) -> MemberRequest:
    return MemberRequest(
        member_id=body.member_id, generation=body.generation_id, instance_id=body.group_instance_id
    )


def _owned(topics: Iterable[Any] | None) -> Partitions | None:
    if topics is None:
        return None
    return frozenset((topic.topic_id, index) for topic in topics for index in topic.partitions)


def _listed(partitions: Partitions) -> list[dict[str, Any]]:
    topics: dict[Any, list[int]] = {}
    for topic_id, index in sorted(partitions):
        topics.setdefault(topic_id, []).append(index)
    return [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topics.items()]
