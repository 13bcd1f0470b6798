"""Guards of topics and their records."""

from types import SimpleNamespace
from typing import Any

from headrace.broker.access.acls import CLUSTER_NAME, Operation, Resource
from headrace.broker.access.guards.ruling import CODES, Guard, GuardedRequest, PartitionFields, Ruling, split
from headrace.wire import Api

__all__ = ["TOPIC_GUARDS"]

DENIED = CODES[Resource.TOPIC]
MESSAGE = "not allowed for this user"


# --- records ------------------------------------------------------------------------------------

PRODUCED = PartitionFields(
    items="topic_data",
    parts="partition_data",
    index="index",
    into="responses",
    out_parts="partition_responses",
    out_index="index",
    by_id=True,
    extra=(("base_offset", -1), ("log_append_time", -1)),
)
FETCHED = PartitionFields(
    name="topic",
    index="partition",
    into="responses",
    by_id=True,
    extra=(("high_watermark", -1), ("records", b"")),
)


def produce(asked: GuardedRequest) -> Ruling:
    """Writing on the topic, and on the transactional id where there is one."""
    transaction = asked.body.transactional_id
    if transaction is None or asked.session.may(Operation.WRITE, Resource.TRANSACTIONAL_ID, transaction):
        return PRODUCED.each(asked, Operation.WRITE)
    denied, asked.body.topic_data = asked.body.topic_data, []
    code = CODES[Resource.TRANSACTIONAL_ID]
    return Ruling(into=PRODUCED.into, refused=PRODUCED.refusals(denied, code))


def per_partition(operation: Operation, shape: PartitionFields) -> Guard:
    """The operation on every topic named; the others are answered partition by partition."""
    return lambda asked: shape.each(asked, operation)


# --- metadata -----------------------------------------------------------------------------------


def metadata(asked: GuardedRequest) -> Ruling:
    """Unknown and forbidden topics look the same; where all are asked for, forbidden ones are left out."""
    body = asked.body
    ruling = Ruling(into="topics", edit=lambda answer: _edit_metadata(asked, answer))
    if body.topics:
        body.topics, denied = split(body.topics, lambda topic: _may_describe_or_create(asked, topic))
        ruling.refused = [_hidden(asked, topic) for topic in denied]
    return ruling


def _may_describe_or_create(asked: GuardedRequest, topic: Any) -> bool:
    if not asked.may_topic(Operation.DESCRIBE, topic):
        return False
    name = asked.name_of(topic)
    creates = asked.body.allow_auto_topic_creation and asked.creates_topics
    if not creates or name is None or asked.topic_exists(name):
        return True
    return asked.session.may_create(name)


def _hidden(asked: GuardedRequest, topic: Any) -> dict[str, Any]:
    topic_id = getattr(topic, "topic_id", None)
    nameless = None if asked.request.api_version >= 12 else ""
    name = topic.name if topic_id is None else nameless
    return {"error_code": DENIED, "name": name, "topic_id": topic_id}


def _edit_metadata(asked: GuardedRequest, answer: dict[str, Any]) -> None:
    session, body = asked.session, asked.body
    answer["topics"] = [
        topic
        for topic in answer["topics"]
        if topic.get("error_code") or session.sees(Operation.DESCRIBE, Resource.TOPIC, topic["name"])
    ]
    if body.include_topic_authorized_operations:
        for topic in answer["topics"]:
            if not topic.get("error_code"):
                topic["topic_authorized_operations"] = session.allowed_bits(Resource.TOPIC, topic["name"])
    if body.include_cluster_authorized_operations:
        answer["cluster_authorized_operations"] = session.allowed_bits(Resource.CLUSTER, CLUSTER_NAME)


def describe_topic_partitions(asked: GuardedRequest) -> Ruling:
    """Named ones are answered, hidden ones left out, of the cursor too."""
    body, session = asked.body, asked.session
    if body.topics:
        allowed, denied = split(body.topics, lambda topic: asked.may_topic(Operation.DESCRIBE, topic))
    else:
        names = [
            name for name in asked.topic_names() if session.sees(Operation.DESCRIBE, Resource.TOPIC, name)
        ]
        allowed, denied = [SimpleNamespace(name=name) for name in names], []
    refused = [{"name": topic.name, "error_code": DENIED} for topic in denied]
    if not allowed:  # to name none would mean all
        return Ruling(refusal={"topics": refused, "next_cursor": None})
    body.topics = allowed
    return Ruling(into="topics", refused=refused, edit=lambda answer: _edit_described(asked, answer))


def _edit_described(asked: GuardedRequest, answer: dict[str, Any]) -> None:
    for topic in answer["topics"]:
        if not topic.get("error_code"):
            bits = asked.session.allowed_bits(Resource.TOPIC, topic["name"])
            topic["topic_authorized_operations"] = bits


# --- administration -----------------------------------------------------------------------------


def create_topics(asked: GuardedRequest) -> Ruling:
    """Creating on the cluster, or on the topic."""
    body = asked.body
    body.topics, denied = split(body.topics, lambda topic: asked.session.may_create(topic.name))
    return Ruling(into="topics", refused=[_refused(topic.name) for topic in denied])


def delete_topics(asked: GuardedRequest) -> Ruling:
    """By name or by id; a user who may not see a topic does not learn its name from its id."""
    body = asked.body
    body.topics, denied = split(body.topics, lambda topic: asked.may_topic(Operation.DELETE, topic))
    refused = [{**_refused(_shown(asked, topic)), "topic_id": topic.topic_id} for topic in denied]
    body.topic_names, names = split(
        body.topic_names, lambda name: asked.session.may(Operation.DELETE, Resource.TOPIC, name)
    )
    return Ruling(into="responses", refused=refused + [_refused(name) for name in names])


def _shown(asked: GuardedRequest, topic: Any) -> str | None:
    name = asked.name_of(topic)
    if topic.topic_id is None or (name and asked.session.sees(Operation.DESCRIBE, Resource.TOPIC, name)):
        return name
    return None


def create_partitions(asked: GuardedRequest) -> Ruling:
    body = asked.body
    body.topics, denied = split(body.topics, lambda topic: asked.may_topic(Operation.ALTER, topic))
    return Ruling(into="results", refused=[_refused(topic.name) for topic in denied])


def _refused(name: str | None) -> dict[str, Any]:
    return {"name": name, "error_code": DENIED, "error_message": MESSAGE}


TOPIC_GUARDS: dict[int, Guard] = {
    Api.PRODUCE: produce,
    Api.FETCH: per_partition(Operation.READ, FETCHED),
    Api.LIST_OFFSETS: per_partition(Operation.DESCRIBE, PartitionFields()),
    Api.DELETE_RECORDS: per_partition(Operation.DELETE, PartitionFields(extra=(("low_watermark", -1),))),
    Api.OFFSET_FOR_LEADER_EPOCH: per_partition(
        Operation.DESCRIBE, PartitionFields(name="topic", index="partition", out_index="partition")
    ),
    Api.DESCRIBE_PRODUCERS: per_partition(Operation.READ, PartitionFields(parts="partition_indexes")),
    Api.METADATA: metadata,
    Api.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
    Api.CREATE_TOPICS: create_topics,
    Api.DELETE_TOPICS: delete_topics,
    Api.CREATE_PARTITIONS: create_partitions,
}
