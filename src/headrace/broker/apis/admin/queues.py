"""Queues as administrators see them: describe, and where they are."""

import dataclasses
from typing import Any

from headrace.broker.coordinators import GroupCoordinator
from headrace.broker.coordinators.queues import QueueCoordinator
from headrace.broker.log import Topics
from headrace.errors import RetriableError
from headrace.groups import Code
from headrace.groups.share import ShareMember, SharePartition, ShareState, assignment
from headrace.storage import Topic
from headrace.wire import Request

__all__ = ["QueueAdminApis"]

READ, DELETE, DESCRIBE = 1 << 3, 1 << 6, 1 << 8
NOT_ASKED = -(2**31)
ASSIGNOR = "simple"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class QueueAdminApis:
    """Queues as administrators see them."""

    topics: Topics
    groups: GroupCoordinator
    queues: QueueCoordinator

    # --- members ----------------------------------------------------------------------------------

    async def share_group_describe(self, request: Request) -> dict[str, Any]:
        """Queues with their members and what each of them reads."""
        return {"groups": [await self._described(request, group_id) for group_id in request.body.group_ids]}

    async def _described(self, request: Request, group_id: str) -> dict[str, Any]:
        code, group = Code.GROUP_ID_NOT_FOUND, None
        try:
            group = await self.queues.group(group_id)
        except RetriableError:
            code = Code.COORDINATOR_NOT_AVAILABLE
        if group is None:
            return {
                "group_id": group_id,
                "error_code": int(code),
                "error_message": f"there is no share group {group_id}",
                "group_state": ShareState.DEAD.value,
            }
        asked = request.body.include_authorized_operations
        return {
            "error_code": 0,
            "group_id": group_id,
            "group_state": group.state.value,
            "group_epoch": group.epoch,
            "assignment_epoch": group.epoch,
            "assignor_name": ASSIGNOR,
            "members": [self._member(member) for member in group.members.values()],
            "authorized_operations": READ | DELETE | DESCRIBE if asked else NOT_ASKED,
        }

    def _member(self, member: ShareMember) -> dict[str, Any]:
        topics: dict[Any, list[int]] = {}
        for topic_id, index in sorted(assignment(member, self.groups.catalog())):
            topics.setdefault(topic_id, []).append(index)
        named = {topic_id: self.topics.with_id(topic_id) for topic_id in topics}
        return {
            "member_id": member.member_id,
            "rack_id": member.rack_id,
            "member_epoch": member.epoch,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": sorted(member.topic_names),
            "assignment": {
                "topic_partitions": [
                    {"topic_id": topic_id, "topic_name": topic.name, "partitions": topics[topic_id]}
                    for topic_id, topic in named.items()
                    if topic is not None
                ]
            },
        }

    # --- offsets ----------------------------------------------------------------------------------

    async def describe_share_group_offsets(self, request: Request) -> dict[str, Any]:
        """Where queues begin in partitions, and how much is left behind that."""
        return {"groups": [await self._located(group) for group in request.body.groups]}

    async def _located(self, asked: Any) -> dict[str, Any]:
        group_id = asked.group_id
        try:
            if await self.queues.group(group_id) is None:
                return _no_group(group_id)
            found = await self.queues.partitions(group_id)
        except RetriableError as error:
            code = int(Code.COORDINATOR_NOT_AVAILABLE)
            return {"group_id": group_id, "topics": [], "error_code": code, "error_message": str(error)}
        known = {(topic_id, index): partition for (_, topic_id, index), partition in found.items()}
        if asked.topics is None:
            wanted: dict[str, list[int]] = {}
            for topic_id, index in sorted(known):
                topic = self.topics.with_id(topic_id)
                if topic is not None:
                    wanted.setdefault(topic.name, []).append(index)
        else:
            wanted = {topic.topic_name: list(topic.partitions) for topic in asked.topics}
        topics = [self._located_topic(name, indexes, known) for name, indexes in wanted.items()]
        return {"group_id": group_id, "topics": topics, "error_code": 0}

    def _located_topic(
        self, name: str, indexes: list[int], known: dict[Any, SharePartition]
    ) -> dict[str, Any]:
        topic = self.topics.named(name)
        parts = []
        for index in indexes:
            partition = known.get((topic.id, index)) if topic is not None else None
            part: dict[str, Any] = {
                "partition_index": index,
                "start_offset": -1,
                "leader_epoch": 0,
                "lag": -1,
            }
            if topic is not None and partition is not None:
                part["start_offset"] = partition.start_offset
                part["lag"] = _lag(topic, partition)
            parts.append(part)
        return {"topic_name": name, "topic_id": topic.id if topic is not None else None, "partitions": parts}

    async def alter_share_group_offsets(self, request: Request) -> dict[str, Any]:
        """A queue without members, or a new one, begins there; what was in flight is forgotten."""
        body = request.body
        try:
            refusal = await self._changeable(body.group_id, must_exist=False)
            if refusal is not None:
                return refusal
            offsets: dict[tuple[str, Any, int], int] = {}
            responses = []
            for asked in body.topics:
                topic = self.topics.named(asked.topic_name)
                parts = []
                for part in asked.partitions:
                    index = part.partition_index
                    is_there = topic is not None and 0 <= index < len(topic.partitions)
                    if topic is not None and is_there:
                        log = topic.partitions[index]
                        wanted = min(max(part.start_offset, log.start_offset), log.high_watermark)
                        offsets[body.group_id, topic.id, index] = wanted
                    code = Code.NONE if is_there else Code.UNKNOWN_TOPIC_OR_PARTITION
                    parts.append({"partition_index": index, "error_code": int(code)})
                topic_id = topic.id if topic is not None else None
                responses.append({"topic_name": asked.topic_name, "topic_id": topic_id, "partitions": parts})
            await self.queues.alter_offsets(body.group_id, offsets)
        except RetriableError as error:
            return _unavailable(error)
        return {"error_code": 0, "responses": responses}

    async def delete_share_group_offsets(self, request: Request) -> dict[str, Any]:
        """A queue without members forgets where it was in topics."""
        body = request.body
        try:
            refusal = await self._changeable(body.group_id)
            if refusal is not None:
                return refusal
            known = await self.queues.partitions(body.group_id)
            responses, going = [], []
            for asked in body.topics:
                topic = self.topics.named(asked.topic_name)
                places = [place for place in known if topic is not None and place[1] == topic.id]
                going += places
                code = Code.NONE if topic is not None else Code.UNKNOWN_TOPIC_OR_PARTITION
                topic_id = topic.id if topic is not None else None
                responses.append(
                    {"topic_name": asked.topic_name, "topic_id": topic_id, "error_code": int(code)}
                )
            await self.queues.delete_offsets(going)
        except RetriableError as error:
            return _unavailable(error)
        return {"error_code": 0, "responses": responses}

    async def _changeable(self, group_id: str, *, must_exist: bool = True) -> dict[str, Any] | None:
        """Why the offsets of a group cannot be changed; None if they can."""
        group = await self.queues.group(group_id)
        if group is None and not must_exist and self.queues.may_begin(group_id):
            return None
        if group is None:
            message = f"there is no share group {group_id}"
            return {"error_code": int(Code.GROUP_ID_NOT_FOUND), "error_message": message, "responses": []}
        if group.members:
            message = f"the group {group_id} has members; stop them first"
            return {"error_code": int(Code.NON_EMPTY_GROUP), "error_message": message, "responses": []}
        return None


def _no_group(group_id: str) -> dict[str, Any]:
    message = f"there is no share group {group_id}"
    code = int(Code.GROUP_ID_NOT_FOUND)
    return {"group_id": group_id, "topics": [], "error_code": code, "error_message": message}


def _lag(topic: Topic, partition: SharePartition) -> int:
    """Records that are not finished."""
    log = topic.partitions[partition.partition]
    start = max(partition.start_offset, log.start_offset)
    return max(0, log.high_watermark - start - partition.finished)


def _unavailable(error: RetriableError) -> dict[str, Any]:
    return {
        "error_code": int(Code.COORDINATOR_NOT_AVAILABLE),
        "error_message": str(error),
        "responses": [],
    }
