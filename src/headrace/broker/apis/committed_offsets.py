"""Committed offsets of groups: commit, fetch, delete."""

import dataclasses
from typing import Any, TypeAlias

from headrace.broker.coordinators import GroupCoordinator, GroupEntry, PendingOffsets
from headrace.broker.log import Topics
from headrace.clock import Clock
from headrace.errors import RetriableError
from headrace.groups import Code, OffsetCommitted, OffsetCommitter, delete_refusal
from headrace.storage import Topic
from headrace.wire import Request

__all__ = ["CommittedOffsetApis", "commit_problem", "committed"]

UNSTABLE = Code.UNSTABLE_OFFSET_COMMIT
Offsets: TypeAlias = dict[tuple[str, int], OffsetCommitted | Code]
"""By topic and partition; a code where an open transaction may still change the offset."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffsetApis:
    """Committed offsets of consumer groups."""

    topics: Topics
    groups: GroupCoordinator
    pending_offsets: PendingOffsets
    clock: Clock

    # --- commit -----------------------------------------------------------------------------------

    async def offset_commit(self, request: Request) -> dict[str, Any]:
        """Stores the offsets that are valid; answers when they are on disk."""
        body = request.body
        by_id = request.api_version >= 10
        most_metadata = self.groups.settings.offset_metadata_max_bytes
        accepted: list[OffsetCommitted] = []
        codes: list[list[Code]] = []
        for asked in body.topics:
            topic = self.topics.with_id(asked.topic_id) if by_id else self.topics.named(asked.name)
            missing = Code.UNKNOWN_TOPIC_ID if by_id else Code.UNKNOWN_TOPIC_OR_PARTITION
            codes.append([])
            for partition in asked.partitions:
                code = missing if topic is None else commit_problem(topic, partition, most_metadata)
                codes[-1].append(code)
                if topic is not None and not code:
                    accepted.append(self._requested(request, topic, partition))
        error = await self._commit(request, accepted)
        return {
            "topics": [
                {**_topic_name(asked, by_id), "partitions": _outcomes(asked, found, error)}
                for asked, found in zip(body.topics, codes, strict=True)
            ]
        }

    def _requested(self, request: Request, topic: Topic, partition: Any) -> OffsetCommitted:
        retention_ms = request.body.retention_time if request.api_version <= 4 else -1
        leader_epoch = partition.committed_leader_epoch if request.api_version >= 6 else -1
        return committed(
            request.body.group_id,
            topic,
            partition,
            now_ms=self.clock.now_ms(),
            leader_epoch=leader_epoch,
            retention_ms=retention_ms,
        )

    async def _commit(self, request: Request, offsets: list[OffsetCommitted]) -> Code:
        body = request.body
        who = OffsetCommitter(
            member_id=body.member_id,
            instance_id=body.group_instance_id,
            generation=body.generation_id_or_member_epoch,
            knows_stale_epoch=request.api_version >= 9,
        )
        try:
            return await self.groups.commit(body.group_id, who, offsets)
        except RetriableError:
            return Code.COORDINATOR_NOT_AVAILABLE

    # --- fetch ------------------------------------------------------------------------------------

    async def offset_fetch(self, request: Request) -> dict[str, Any]:
        """One group before version 8, any number since; no topics named means all that have offsets.

        A request for stable offsets learns which of them an open transaction may still change.
        """
        body = request.body
        version = request.api_version
        stable = version >= 7 and body.require_stable
        if version >= 8:
            return {"groups": [await self._fetch_group(group, version, stable) for group in body.groups]}
        code, offsets = await self._offsets(body.group_id, None, -1, stable)
        topics = self._fetched(body.topics, offsets, code, version)
        return {"topics": topics, "error_code": int(code)}

    async def _offsets(
        self, group_id: str, member_id: str | None, epoch: int, stable: bool
    ) -> tuple[Code, Offsets]:
        try:
            code, offsets = await self.groups.fetch_offsets(group_id, member_id, epoch)
        except RetriableError:
            return Code.COORDINATOR_NOT_AVAILABLE, {}
        found: Offsets = {**offsets}
        if stable and not code:
            found.update(dict.fromkeys(self.pending_offsets.partitions(group_id), UNSTABLE))
        return code, found

    async def _fetch_group(self, group: Any, version: int, stable: bool) -> dict[str, Any]:
        member_id = group.member_id if version >= 9 else None
        epoch = group.member_epoch if version >= 9 else -1
        code, offsets = await self._offsets(group.group_id, member_id, epoch, stable)
        topics = [] if code else self._fetched(group.topics, offsets, code, version)
        return {"group_id": group.group_id, "topics": topics, "error_code": int(code)}

    def _fetched(
        self,
        asked: Any,
        offsets: Offsets,
        code: Code,
        version: int,
    ) -> list[dict[str, Any]]:
        if asked is None:
            return self._all(offsets, version)
        # Before version 2 there is no other place for the group's error than the partitions.
        error = code if version < 2 else Code.NONE
        found = []
        for topic in asked:
            name: str | None = topic.name
            if version >= 10:
                known = self.topics.with_id(topic.topic_id)
                name = known.name if known is not None else None
                error = Code.NONE if known is not None else Code.UNKNOWN_TOPIC_ID
            partitions = [
                _partition(index, offsets.get((name or "", index)), error)
                for index in topic.partition_indexes
            ]
            found.append({**_topic_name(topic, version >= 10), "partitions": partitions})
        return found

    def _all(self, offsets: Offsets, version: int) -> list[dict[str, Any]]:
        topics: dict[Any, list[dict[str, Any]]] = {}
        for name, index in sorted(offsets):
            topic = self.topics.named(name)
            if topic is not None:
                key = topic.id if version >= 10 else name
                topics.setdefault(key, []).append(_partition(index, offsets[name, index], Code.NONE))
        field = "topic_id" if version >= 10 else "name"
        return [{field: key, "partitions": partitions} for key, partitions in topics.items()]

    # --- delete -----------------------------------------------------------------------------------

    async def offset_delete(self, request: Request) -> dict[str, Any]:
        """Forgets offsets of topics that nobody in the group reads."""
        body = request.body
        try:
            entry = await self.groups.entry(body.group_id)
            if entry is None:
                return {"error_code": int(Code.GROUP_ID_NOT_FOUND)}
            refusals = {topic.name: self._delete_problem(entry, topic.name) for topic in body.topics}
            if Code.NON_EMPTY_GROUP in refusals.values():
                return {"error_code": int(Code.NON_EMPTY_GROUP)}
            going = [
                (topic.name, partition.partition_index)
                for topic in body.topics
                if not refusals[topic.name]
                for partition in topic.partitions
            ]
            error = await self.groups.delete_offsets(body.group_id, going)
        except RetriableError:
            return {"error_code": int(Code.COORDINATOR_NOT_AVAILABLE)}
        topics = [{"name": topic.name, "partitions": _deleted(topic, refusals)} for topic in body.topics]
        return {"error_code": int(error), "topics": topics}

    def _delete_problem(self, entry: GroupEntry, topic: str) -> Code:
        if self.topics.named(topic) is None:
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        return delete_refusal(entry.group, topic)


def commit_problem(topic: Topic, partition: Any, most_metadata_bytes: int) -> Code:
    """Why this offset cannot be stored, or NONE."""
    if not 0 <= partition.partition_index < len(topic.partitions):
        return Code.UNKNOWN_TOPIC_OR_PARTITION
    if len((partition.committed_metadata or "").encode()) > most_metadata_bytes:
        return Code.OFFSET_METADATA_TOO_LARGE
    return Code.NONE


def committed(
    group_id: str, topic: Topic, partition: Any, *, now_ms: int, leader_epoch: int, retention_ms: int = -1
) -> OffsetCommitted:
    """A partition of a commit request, as it is stored."""
    return OffsetCommitted(
        group_id=group_id,
        topic=topic.name,
        topic_id=topic.id,
        partition=partition.partition_index,
        offset=partition.committed_offset,
        leader_epoch=leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_ms=now_ms,
        expire_ms=now_ms + retention_ms if retention_ms >= 0 else None,
    )


def _topic_name(asked: Any, by_id: bool) -> dict[str, Any]:
    return {"topic_id": asked.topic_id} if by_id else {"name": asked.name}


def _outcomes(asked: Any, codes: list[Code], error: Code) -> list[dict[str, Any]]:
    return [
        {"partition_index": partition.partition_index, "error_code": int(error or code)}
        for partition, code in zip(asked.partitions, codes, strict=True)
    ]


def _partition(index: int, found: OffsetCommitted | Code | None, error: Code) -> dict[str, Any]:
    if isinstance(found, Code):
        return _partition(index, None, found)
    return {
        "partition_index": index,
        "committed_offset": -1 if found is None else found.offset,
        "committed_leader_epoch": -1 if found is None else found.leader_epoch,
        "metadata": "" if found is None else found.metadata,
        "error_code": int(error),
    }


def _deleted(topic: Any, refusals: dict[str, Code]) -> list[dict[str, Any]]:
    return [
        {"partition_index": partition.partition_index, "error_code": int(refusals[topic.name])}
        for partition in topic.partitions
    ]
