"""Metadata, and the administration of topics."""

from collections import Counter
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from headrace.broker.apis.cluster import EVERYTHING
from headrace.broker.apis.configs import config_rows
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
            topics.append({"name": name, "error_code": _why_unknown(name)})
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


def _why_unknown(name: str) -> int:
    try:
        check_topic_name(name)
    except RequestError as error:
        return error.code
    return int(ErrorCode.unknown_topic_or_partition)


# --- administration ---------------------------------------------------------------------------

TWICE = {"error_code": int(ErrorCode.invalid_request), "error_message": "it is in the request more than once"}


async def create_topics(broker: "Broker", request: Request) -> dict[str, Any]:
    """Creates each topic, or says why not; one that is named twice is not created."""
    asked = Counter(topic.name for topic in request.body.topics)
    answers = {}
    for topic in request.body.topics:
        if asked[topic.name] > 1:
            answers[topic.name] = {"name": topic.name, **TWICE}
        else:
            answers[topic.name] = await _create(broker, topic, request.body.validate_only)
    return {"topics": list(answers.values())}


async def _create(broker: "Broker", wanted: Any, validate_only: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"name": wanted.name}
    try:
        partitions = _partition_count(broker, wanted)
        overrides = _overrides(wanted)
        check_topic_name(wanted.name)
        config = TopicConfig.from_overrides(overrides)
        _check_is_new(broker, wanted.name)
        answer.update(num_partitions=partitions, replication_factor=1, configs=_shown(config, overrides))
        if not validate_only:
            topic = await broker.topics.create(wanted.name, partitions, overrides)
            answer["topic_id"] = topic.id
    except HeadraceError as error:
        answer.update(_refusal(error))
    return answer


def _overrides(wanted: Any) -> dict[str, str]:
    missing = next((config.name for config in wanted.configs if config.value is None), None)
    if missing is not None:
        raise RequestError(f"{missing} has no value", code=ErrorCode.invalid_config)
    return {config.name: config.value for config in wanted.configs}


def _shown(config: TopicConfig, overrides: dict[str, str]) -> list[dict[str, Any]]:
    kept = ("name", "value", "config_source")
    return [{key: row[key] for key in kept} for row in config_rows(config, overrides)]


def _check_is_new(broker: "Broker", name: str) -> None:
    """Names that differ in dots and underscores only are one name to metrics: Kafka refuses them too."""
    if broker.topics.named(name) is not None:
        raise RequestError(f"topic {name} already exists", code=ErrorCode.topic_already_exists)
    if "." in name or "_" in name:
        plain = name.replace(".", "_")
        for topic in broker.topics.all():
            if topic.name.replace(".", "_") == plain:
                raise RequestError(
                    f"{name} and {topic.name} differ in dots and underscores only; choose another name",
                    code=ErrorCode.invalid_topic_exception,
                )


def _partition_count(broker: "Broker", wanted: Any) -> int:
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
    _check_replicas(broker, wanted.assignments)
    if count == -1:
        return broker.settings.default_partitions
    if not 1 <= count <= MOST_PARTITIONS:
        raise RequestError(
            f"{count} partitions; a topic has 1 to {MOST_PARTITIONS}", code=ErrorCode.invalid_partitions
        )
    return count


def _check_replicas(broker: "Broker", assignments: Any) -> None:
    if any(tuple(replicas.broker_ids) != (broker.settings.node_id,) for replicas in assignments):
        raise RequestError("replicas can be on this node only", code=ErrorCode.invalid_replica_assignment)


async def delete_topics(broker: "Broker", request: Request) -> dict[str, Any]:
    """Deletes topics by name or by id; one that is named twice, or both ways, stays."""
    body = request.body
    wanted = [(topic.name, topic.topic_id) for topic in body.topics] or [
        (name, None) for name in body.topic_names
    ]
    asked = Counter(topic.name for each in wanted if (topic := broker.topics.find(*each)) is not None)
    answers = {}
    for name, topic_id in wanted:
        topic = broker.topics.find(name, topic_id)
        key = topic.name if topic is not None else (name, topic_id)
        if topic is not None and (asked[topic.name] > 1 or (name is not None and topic_id is not None)):
            answers[key] = {"name": name, "topic_id": topic_id, **TWICE}
        else:
            answers[key] = await _delete(broker, name, topic_id)
    return {"responses": list(answers.values())}


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
    asked = Counter(wanted.name for wanted in request.body.topics)
    results: dict[str, dict[str, Any]] = {}
    for wanted in request.body.topics:
        answer: dict[str, Any] = {"name": wanted.name}
        results[wanted.name] = answer
        if asked[wanted.name] > 1:
            answer.update(TWICE)
            continue
        try:
            _check_more_partitions(broker, wanted)
        except RequestError as error:
            answer.update(_refusal(error))
            continue
        if not request.body.validate_only:
            answer.update(await _outcome(broker.topics.add_partitions(wanted.name, wanted.count)))
    return {"results": list(results.values())}


def _check_more_partitions(broker: "Broker", wanted: Any) -> None:
    topic = broker.topics.named(wanted.name)
    if topic is None:
        raise RequestError("there is no such topic", code=ErrorCode.unknown_topic_or_partition)
    present = len(topic.partitions)
    if not present < wanted.count <= MOST_PARTITIONS:
        raise RequestError(
            f"{topic.name} has {present} partitions and can only get more", code=ErrorCode.invalid_partitions
        )
    if wanted.assignments is not None and len(wanted.assignments) != wanted.count - present:
        raise RequestError(
            f"{len(wanted.assignments)} assignments for {wanted.count - present} new partitions",
            code=ErrorCode.invalid_replica_assignment,
        )
    _check_replicas(broker, wanted.assignments or ())


async def _outcome(change: Awaitable[None]) -> dict[str, Any]:
    try:
        await change
    except HeadraceError as error:
        return _refusal(error)
    return {"error_code": 0}


def _refusal(error: HeadraceError) -> dict[str, Any]:
    code = error.code if isinstance(error, RequestError) else ErrorCode.kafka_storage_error
    return {"error_code": int(code), "error_message": str(error)}
