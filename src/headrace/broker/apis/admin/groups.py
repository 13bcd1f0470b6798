"""Groups as administrators see them: list, describe, delete."""

import dataclasses
from typing import Any

from headrace.broker.coordinators import GroupCoordinator, GroupEntry
from headrace.broker.coordinators.queues import QueueCoordinator
from headrace.broker.log import Topics
from headrace.errors import RetriableError
from headrace.groups import Code, Partitions
from headrace.groups.classic import ClassicGroup, ClassicMember, ClassicState
from headrace.groups.consumer import ConsumerGroup, ConsumerMember, preferred_assignor
from headrace.groups.share import ShareGroup
from headrace.wire import Request

__all__ = ["GroupAdminApis"]

READ, DELETE, DESCRIBE = 1 << 3, 1 << 6, 1 << 8
NOT_ASKED = -(2**31)
CONSUMER_MEMBER = 1


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GroupAdminApis:
    """Groups of every kind: listed, described, deleted."""

    topics: Topics
    groups: GroupCoordinator
    queues: QueueCoordinator

    async def list_groups(self, request: Request) -> dict[str, Any]:
        """Every group, or those in the states and of the types asked for."""
        states = {state.lower() for state in request.body.states_filter}
        types = {kind.lower() for kind in request.body.types_filter}
        try:
            entries = await self.groups.entries()
            queues = await self.queues.groups()
        except RetriableError:
            return {"error_code": int(Code.COORDINATOR_NOT_AVAILABLE)}
        groups = [_listed(entry) for entry in entries] + [_listed_queue(queue) for queue in queues]
        return {
            "error_code": 0,
            "groups": [
                group
                for group in groups
                if (not states or group["group_state"].lower() in states)
                and (not types or group["group_type"].lower() in types)
            ],
        }

    async def _found(self, group_id: str) -> tuple[Code, GroupEntry | None]:
        try:
            return Code.NONE, await self.groups.entry(group_id)
        except RetriableError:
            return Code.COORDINATOR_NOT_AVAILABLE, None

    # --- classic ----------------------------------------------------------------------------------

    async def describe_groups(self, request: Request) -> dict[str, Any]:
        """Classic groups with their members' metadata and assignments."""
        return {"groups": [await self._described(request, group_id) for group_id in request.body.groups]}

    async def _described(self, request: Request, group_id: str) -> dict[str, Any]:
        code, entry = await self._found(group_id)
        if code:
            return {"group_id": group_id, "error_code": int(code), "group_state": ""}
        if entry is None or not isinstance(entry.group, ClassicGroup):
            return _absent(request, group_id)
        group = entry.group
        return {
            "error_code": 0,
            "group_id": group_id,
            "group_state": group.state.value,
            "protocol_type": group.protocol_type or "",
            "protocol_data": (group.protocol_name or "") if group.state is ClassicState.STABLE else "",
            "members": [_classic_member(group, member) for member in group.members.values()],
            "authorized_operations": _operations(request),
        }

    # --- server-side ------------------------------------------------------------------------------

    async def consumer_group_describe(self, request: Request) -> dict[str, Any]:
        """Server-side groups with what each member has and is to have."""
        return {"groups": [await self._explained(request, group_id) for group_id in request.body.group_ids]}

    async def _explained(self, request: Request, group_id: str) -> dict[str, Any]:
        code, entry = await self._found(group_id)
        if code or entry is None or not isinstance(entry.group, ConsumerGroup):
            return {
                "group_id": group_id,
                "error_code": int(code or Code.GROUP_ID_NOT_FOUND),
                "error_message": f"there is no consumer group {group_id} of the server-side protocol",
                "group_state": "",
            }
        group = entry.group
        return {
            "error_code": 0,
            "group_id": group_id,
            "group_state": group.state.value,
            "group_epoch": group.epoch,
            "assignment_epoch": group.target_epoch,
            "assignor_name": preferred_assignor(group),
            "members": [self._consumer_member(member) for member in group.members.values()],
            "authorized_operations": _operations(request),
        }

    def _consumer_member(self, member: ConsumerMember) -> dict[str, Any]:
        return {
            "member_id": member.member_id,
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "member_epoch": member.epoch,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": sorted(member.topic_names),
            "subscribed_topic_regex": member.topic_regex,
            "assignment": self._assignment(member.assigned),
            "target_assignment": self._assignment(member.target),
            "member_type": CONSUMER_MEMBER,
        }

    def _assignment(self, partitions: Partitions) -> dict[str, Any]:
        topics: dict[Any, list[int]] = {}
        for topic_id, index in sorted(partitions):
            topics.setdefault(topic_id, []).append(index)
        named = {topic_id: self.topics.with_id(topic_id) for topic_id in topics}
        return {
            "topic_partitions": [
                {"topic_id": topic_id, "topic_name": topic.name, "partitions": topics[topic_id]}
                for topic_id, topic in named.items()
                if topic is not None  # deleted: its members have not heard of it yet
            ]
        }

    # --- delete -----------------------------------------------------------------------------------

    async def delete_groups(self, request: Request) -> dict[str, Any]:
        """Empty groups go, with their offsets."""
        results = []
        for group_id in request.body.groups_names:
            try:
                owner = self.queues if group_id in self.queues.table else self.groups
                code = await owner.delete(group_id)
            except RetriableError:
                code = Code.COORDINATOR_NOT_AVAILABLE
            results.append({"group_id": group_id, "error_code": int(code)})
        return {"results": results}


def _listed(entry: GroupEntry) -> dict[str, str]:
    group = entry.group
    is_classic = isinstance(group, ClassicGroup)
    return {
        "group_id": group.group_id,
        "protocol_type": (group.protocol_type or "") if isinstance(group, ClassicGroup) else "consumer",
        "group_state": group.state.value,
        "group_type": "classic" if is_classic else "consumer",
    }


def _listed_queue(queue: ShareGroup) -> dict[str, str]:
    return {
        "group_id": queue.group_id,
        "protocol_type": "share",
        "group_state": queue.state.value,
        "group_type": "share",
    }


def _operations(request: Request) -> int:
    return READ | DELETE | DESCRIBE if request.body.include_authorized_operations else NOT_ASKED


def _absent(request: Request, group_id: str) -> dict[str, Any]:
    """Dead, which is how versions before 6 say that there is no such group."""
    answer: dict[str, Any] = {"group_id": group_id, "group_state": ClassicState.DEAD.value}
    answer["authorized_operations"] = _operations(request)
    if request.api_version < 6:
        return answer
    message = f"there is no classic group {group_id}"
    return {**answer, "error_code": int(Code.GROUP_ID_NOT_FOUND), "error_message": message}


def _classic_member(group: ClassicGroup, member: ClassicMember) -> dict[str, Any]:
    stable = group.state is ClassicState.STABLE
    return {
        "member_id": member.member_id,
        "group_instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata(group.protocol_name) if stable else b"",
        "member_assignment": member.assignment if stable else b"",
    }
