"""Metadata, and the administration of topics."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from headrace.broker.apis.cluster import EVERYTHING
from headrace.broker.topics import INTERNAL_TOPICS
from headrace.errors import HeadraceError, RequestError
from headrace.storage import Topic, TopicConfig, check_topic_name
from headrace.wire import ErrorCode, Request

if TYPE_CHECKING:
    from headrace.broker.server import Broker

__all__ = [
    "create_partitions",
    "create_topics",
    "delete_topics",
    "describe_topic_partitions",
    "metadata",
]

MOST_PARTITIONS = 10_000


# --- metadata ---------------------------------------------------------------------------------


async def metadata(broker: "Broker", request: Request) -> dict[str, Any]:
    """Who serves which partition: always us."""
    wanted = request.body.topics
    if wanted is None or (request.api_version == 0 and not wanted):
        topics = [_described(broker, topic) for topic in broker.topics.all()]
    else:
        topics = [await _wanted(broker, request, topic) for topic in wanted]
    host, port = broker.advertised(request)
    asked = request.body.include_cluster_authorized_operations
    return {
        **({"cluster_authorized_operations": EVERYTHING} if asked else {}),
        "brokers": [{"node_id": broker.settings.node_id, "host": host, "port": port}],
        "cluster_id": broker.directory.cluster_id,
        "controller_id": broker.settings.node_id,
        "topics": topics,
    }


async def _wanted(broker: "Broker", request: Request, wanted: Any) -> dict[str, Any]:
    topic = broker.topics.find(wanted.name, wanted.topic_id)
    if topic is not None:
        return _described(broker, topic)
    answer = {"name": wanted.name, "topic_id": wanted.topic_id}
    if wanted.topic_id is not None:
        return {**answer, "error_code": int(ErrorCode.unknown_topic_id)}
    try:
        check_topic_name(wanted.name or "")
        if not (request.body.allow_auto_topic_creation and broker.settings.auto_create_topics):
            return {**answer, "error_code": int(ErrorCode.unknown_topic_or_partition)}
        return _described(broker, await _auto_create(broker, wanted.name))
    except RequestError as error:
        return {**answer, "error_code": error.code}


async def _auto_create(broker: "Broker", name: str) -> Topic:
    try:
        return await broker.topics.create(name, broker.settings.default_partitions, {})
    except RequestError as error:
        topic = broker.topics.named(name)
        if error.code == ErrorCode.topic_already_exists and topic is not None:  # someone else was faster
            return topic
        raise


def _described(broker: "Broker", topic: Topic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "topic_id": topic.id,
        "is_internal": topic.name in INTERNAL_TOPICS,
        "partitions": [_partition(broker, index) for index in range(len(topic.partitions))],
    }


def _partition(broker: "Broker", index: int) -> dict[str, Any]:
    node = (broker.settings.node_id,)
    return {
        "partition_index": index,
        "leader_id": node[0],
        "leader_epoch": 0,
        "replica_nodes": node,
        "isr_nodes": node,
    }


async def describe_topic_partitions(broker: "Broker", request: Request) -> dict[str, Any]:
    """Topics and their partitions in pages of at most `response_partition_limit` partitions."""
    body = request.body
    names = sorted({topic.name for topic in body.topics}) or [topic.name for topic in broker.topics.all()]
    from_name, from_index = (body.cursor.topic_name, body.cursor.partition_index) if body.cursor else ("", 0)
    left, topics, cursor = min(max(body.response_partition_limit, 1), 2000), [], None
    for name in (name for name in names if name >= from_name):
        topic = broker.topics.named(name)
        if topic is None:
            topics.append({"name": name, "error_code": int(ErrorCode.unknown_topic_or_partition)})
            continue
        first = from_index if name == from_name else 0
        described = _described(broker, topic)
        page = described["partitions"][first : first + left]
        # Java's admin client takes null here for a mistake.
        partitions = [{**each, "eligible_leader_replicas": (), "last_known_elr": ()} for each in page]
        if partitions or not described["partitions"]:
            topics.append({**described, "partitions": partitions})
        left -= len(partitions)
        if first + len(partitions) < len(described["partitions"]):
            cursor = {"topic_name": name, "partition_index": first + len(partitions)}
            break
    return {"topics": topics, "next_cursor": cursor}


# --- administration ---------------------------------------------------------------------------


async def create_topics(broker: "Broker", request: Request) -> dict[str, Any]:
    """Creates each topic, or says why not."""
    return {
        "topics": [await _create(broker, topic, request.body.validate_only) for topic in request.body.topics]
    }


async def _create(broker: "Broker", wanted: Any, validate_only: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"name": wanted.name}
    try:
        partitions = _partition_count(broker, wanted)
        overrides = {config.name: config.value for config in wanted.configs if config.value is not None}
        check_topic_name(wanted.name)
        TopicConfig.from_overrides(overrides)
        if broker.topics.named(wanted.name) is not None:
            raise RequestError(f"topic {wanted.name} already exists", code=ErrorCode.topic_already_exists)
        answer.update(num_partitions=partitions, replication_factor=1)
        if not validate_only:
            topic = await broker.topics.create(wanted.name, partitions, overrides)
            answer["topic_id"] = topic.id
    except HeadraceError as error:
        answer.update(_refusal(error))
    return answer


def _partition_count(broker: "Broker", wanted: Any) -> int:
    if wanted.replication_factor not in (-1, 1) and not wanted.assignments:
        raise RequestError(
            f"replication factor {wanted.replication_factor}: this log has one node; ask for 1",
            code=ErrorCode.invalid_replication_factor,
        )
    count: int = len(wanted.assignments) or wanted.num_partitions
    if any(tuple(replicas.broker_ids) != (broker.settings.node_id,) for replicas in wanted.assignments):
        raise RequestError("replicas can be on this node only", code=ErrorCode.invalid_replica_assignment)
    if count == -1:
        return broker.settings.default_partitions
    if not 1 <= count <= MOST_PARTITIONS:
        raise RequestError(
            f"{count} partitions; a topic has 1 to {MOST_PARTITIONS}", code=ErrorCode.invalid_partitions
        )
    return count


async def delete_topics(broker: "Broker", request: Request) -> dict[str, Any]:
    """Deletes topics by name or by id."""
    body = request.body
    wanted = [(topic.name, topic.topic_id) for topic in body.topics] or [
        (name, None) for name in body.topic_names
    ]
    return {"responses": [await _delete(broker, name, topic_id) for name, topic_id in wanted]}


async def _delete(broker: "Broker", name: str | None, topic_id: Any) -> dict[str, Any]:
    topic = broker.topics.find(name, topic_id)
    answer: dict[str, Any] = {"name": name, "topic_id": topic_id}
    if topic is None:
        code = ErrorCode.unknown_topic_id if topic_id is not None else ErrorCode.unknown_topic_or_partition
        return {**answer, "error_code": int(code), "error_message": f"there is no topic {name or topic_id}"}
    answer = {"name": topic.name, "topic_id": topic.id}
    if topic.name in INTERNAL_TOPICS:
        error = RequestError(f"{topic.name} is the broker's own", code=ErrorCode.invalid_topic_exception)
        return {**answer, **_refusal(error)}
    return {**answer, **await _outcome(broker.topics.delete(topic.name))}


async def create_partitions(broker: "Broker", request: Request) -> dict[str, Any]:
    """Adds partitions; records already there stay where they are."""
    results = []
    for wanted in request.body.topics:
        answer: dict[str, Any] = {"name": wanted.name}
        topic = broker.topics.named(wanted.name)
        if topic is None:
            answer.update(
                error_code=int(ErrorCode.unknown_topic_or_partition), error_message="there is no such topic"
            )
        elif not len(topic.partitions) < wanted.count <= MOST_PARTITIONS:
            answer.update(
                error_code=int(ErrorCode.invalid_partitions),
                error_message=f"{topic.name} has {len(topic.partitions)} partitions and can only get more",
            )
        elif not request.body.validate_only:
            answer.update(await _outcome(broker.topics.add_partitions(topic.name, wanted.count)))
        results.append(answer)
    return {"results": results}


async def _outcome(change: Awaitable[None]) -> dict[str, Any]:
    try:
        await change
    except HeadraceError as error:
        return _refusal(error)
    return {"error_code": 0}


def _refusal(error: HeadraceError) -> dict[str, Any]:
    code = error.code if isinstance(error, RequestError) else ErrorCode.kafka_storage_error
    return {"error_code": int(code), "error_message": str(error)}
