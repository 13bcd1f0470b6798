"""The administration of topics, and what they take on disk."""

import dataclasses
import shutil
from collections import Counter
from collections.abc import Awaitable
from typing import Any

from headrace.broker.access import ClientSession, Operation, Resource
from headrace.broker.apis.admin.configs import config_rows
from headrace.broker.log import INTERNAL_TOPICS, Topics
from headrace.broker.settings import BrokerSettings
from headrace.errors import HeadraceError, RequestError
from headrace.storage import TopicConfig, check_topic_name
from headrace.wire import ErrorCode, Request

__all__ = ["TopicApis"]

MOST_PARTITIONS = 10_000
TWICE = {"error_code": int(ErrorCode.invalid_request), "error_message": "it is in the request more than once"}


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TopicApis:
    """Topics: created, deleted, given more partitions."""

    settings: BrokerSettings
    topics: Topics

    async def create_topics(self, request: Request) -> dict[str, Any]:
        """Creates each topic, or says why not; one that is named twice is not created."""
        asked = Counter(topic.name for topic in request.body.topics)
        answers = {}
        for topic in request.body.topics:
            if asked[topic.name] > 1:
                answers[topic.name] = {"name": topic.name, **TWICE}
            else:
                answers[topic.name] = await self._create(topic, request)
        return {"topics": list(answers.values())}

    async def _create(self, wanted: Any, request: Request) -> dict[str, Any]:
        answer: dict[str, Any] = {"name": wanted.name}
        try:
            partitions = self._partition_count(wanted)
            overrides = _overrides(wanted)
            check_topic_name(wanted.name)
            config = TopicConfig.from_overrides(overrides)
            self._check_is_new(wanted.name, request.session)
            answer.update(num_partitions=partitions, replication_factor=1, configs=_shown(config, overrides))
            if not request.body.validate_only:
                topic = await self.topics.create(wanted.name, partitions, overrides)
                answer["topic_id"] = topic.id
        except HeadraceError as error:
            answer.update(_refusal(error))
        return answer

    def _check_is_new(self, name: str, caller: ClientSession | None) -> None:
        """Names that differ in dots and underscores only are one name to metrics: Kafka refuses them too.

        The other name is not given away to a user who may not see that topic.
        """
        if self.topics.named(name) is not None:
            raise RequestError(f"topic {name} already exists", code=ErrorCode.topic_already_exists)
        if "." in name or "_" in name:
            plain = name.replace(".", "_")
            for topic in self.topics.all():
                if topic.name.replace(".", "_") == plain:
                    seen = caller is None or caller.sees(Operation.DESCRIBE, Resource.TOPIC, topic.name)
                    raise RequestError(
                        f"{name} and {topic.name if seen else 'another topic'} differ in dots and underscores"
                        " only; choose another name",
                        code=ErrorCode.invalid_topic_exception,
                    )

    def _partition_count(self, wanted: Any) -> int:
        if wanted.assignments and (wanted.num_partitions != -1 or wanted.replication_factor != -1):
            raise RequestError(
                "with replicas assigned by hand, both counts must be -1", code=ErrorCode.invalid_request
            )
        if wanted.replication_factor not in (-1, 1) and not wanted.assignments:
            raise RequestError(
                f"replication factor {wanted.replication_factor}: this log has one node; ask for 1",
                code=ErrorCode.invalid_replication_factor,
            )
        count: int = len(wanted.assignments) or wanted.num_partitions
        if wanted.assignments and {each.partition_index for each in wanted.assignments} != set(range(count)):
            raise RequestError(
                "partitions are numbered from 0 without gaps", code=ErrorCode.invalid_replica_assignment
            )
        self._check_replicas(wanted.assignments)
        if count == -1:
            return self.settings.default_partitions
        if not 1 <= count <= MOST_PARTITIONS:
            raise RequestError(
                f"{count} partitions; a topic has 1 to {MOST_PARTITIONS}", code=ErrorCode.invalid_partitions
            )
        return count

    def _check_replicas(self, assignments: Any) -> None:
        if any(tuple(replicas.broker_ids) != (self.settings.node_id,) for replicas in assignments):
            raise RequestError("replicas can be on this node only", code=ErrorCode.invalid_replica_assignment)

    async def delete_topics(self, request: Request) -> dict[str, Any]:
        """Deletes topics by name or by id; one that is named twice, or both ways, stays."""
        body = request.body
        wanted = [(topic.name, topic.topic_id) for topic in body.topics] or [
            (name, None) for name in body.topic_names
        ]
        asked = Counter(topic.name for each in wanted if (topic := self.topics.find(*each)) is not None)
        answers = {}
        for name, topic_id in wanted:
            topic = self.topics.find(name, topic_id)
            key = topic.name if topic is not None else (name, topic_id)
            if topic is not None and (asked[topic.name] > 1 or (name is not None and topic_id is not None)):
                answers[key] = {"name": name, "topic_id": topic_id, **TWICE}
            else:
                answers[key] = await self._delete(name, topic_id)
        return {"responses": list(answers.values())}

    async def _delete(self, name: str | None, topic_id: Any) -> dict[str, Any]:
        topic = self.topics.find(name, topic_id)
        answer: dict[str, Any] = {"name": name, "topic_id": topic_id}
        if topic is None:
            code = (
                ErrorCode.unknown_topic_id if topic_id is not None else ErrorCode.unknown_topic_or_partition
            )
            return {
                **answer,
                "error_code": int(code),
                "error_message": f"there is no topic {name or topic_id}",
            }
        answer = {"name": topic.name, "topic_id": topic.id}
        if topic.name in INTERNAL_TOPICS:
            error = RequestError(f"{topic.name} is the broker's own", code=ErrorCode.invalid_topic_exception)
            return {**answer, **_refusal(error)}
        return {**answer, **await _outcome(self.topics.delete(topic.name))}

    async def create_partitions(self, request: Request) -> dict[str, Any]:
        """Adds partitions; records already there stay where they are."""
        asked = Counter(wanted.name for wanted in request.body.topics)
        results: dict[str, dict[str, Any]] = {}
        for wanted in request.body.topics:
            answer: dict[str, Any] = {"name": wanted.name}
            results[wanted.name] = answer
            if asked[wanted.name] > 1:
                answer.update(TWICE)
                continue
            try:
                self._check_more_partitions(wanted)
            except RequestError as error:
                answer.update(_refusal(error))
                continue
            if not request.body.validate_only:
                answer.update(await _outcome(self.topics.add_partitions(wanted.name, wanted.count)))
        return {"results": list(results.values())}

    def _check_more_partitions(self, wanted: Any) -> None:
        topic = self.topics.named(wanted.name)
        if topic is None:
            raise RequestError("there is no such topic", code=ErrorCode.unknown_topic_or_partition)
        present = len(topic.partitions)
        if not present < wanted.count <= MOST_PARTITIONS:
            raise RequestError(
                f"{topic.name} has {present} partitions and can only get more",
                code=ErrorCode.invalid_partitions,
            )
        if wanted.assignments is not None and len(wanted.assignments) != wanted.count - present:
            raise RequestError(
                f"{len(wanted.assignments)} assignments for {wanted.count - present} new partitions",
                code=ErrorCode.invalid_replica_assignment,
            )
        self._check_replicas(wanted.assignments or ())

    async def describe_log_dirs(self, request: Request) -> dict[str, Any]:
        """Bytes on disk per partition."""
        wanted = request.body.topics
        chosen = None if wanted is None else {topic.topic: set(topic.partitions) for topic in wanted}
        disk = shutil.disk_usage(self.settings.data)
        topics = []
        for topic in self.topics.all():
            if chosen is not None and topic.name not in chosen:
                continue
            sizes = [
                {"partition_index": index, "partition_size": log.size_bytes}
                for index, log in enumerate(topic.partitions)
                if chosen is None or index in chosen[topic.name]
            ]
            topics.append({"name": topic.name, "partitions": sizes})
        result = {
            "log_dir": self.settings.data,
            "topics": topics,
            "total_bytes": disk.total,
            "usable_bytes": disk.free,
        }
        return {"results": [result]}


def _overrides(wanted: Any) -> dict[str, str]:
    missing = next((config.name for config in wanted.configs if config.value is None), None)
    if missing is not None:
        raise RequestError(f"{missing} has no value", code=ErrorCode.invalid_config)
    return {config.name: config.value for config in wanted.configs}


def _shown(config: TopicConfig, overrides: dict[str, str]) -> list[dict[str, Any]]:
    kept = ("name", "value", "config_source")
    return [{key: row[key] for key in kept} for row in config_rows(config, overrides)]


async def _outcome(change: Awaitable[None]) -> dict[str, Any]:
    try:
        await change
    except HeadraceError as error:
        return _refusal(error)
    return {"error_code": 0}


def _refusal(error: HeadraceError) -> dict[str, Any]:
    return {"error_code": _code(error), "error_message": str(error)}


def _code(error: HeadraceError) -> int:
    return int(error.code if isinstance(error, RequestError) else ErrorCode.kafka_storage_error)
