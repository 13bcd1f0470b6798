"""Guards of groups, their members and their offsets; queues (share groups) among them."""

from collections.abc import Callable, Iterable
from typing import Any

from headrace.broker.access.acls import CLUSTER_NAME, Operation, Resource
from headrace.broker.access.guards.ruling import CODES, Guard, GuardedRequest, PartitionFields, Ruling, split
from headrace.wire import Api

__all__ = ["GROUP_GUARDS"]

DENIED = CODES[Resource.GROUP]
TOPIC_DENIED = CODES[Resource.TOPIC]
MESSAGE = "not allowed for this user"
GROUP, TRANSACTION = 0, 1


def _may(asked: GuardedRequest, operation: Operation) -> bool:
    return asked.session.may(operation, Resource.GROUP, asked.body.group_id or "")


# --- members ------------------------------------------------------------------------------------


def reading(**refusal: Any) -> Guard:
    """Reading as the group that the request names."""

    def guard(asked: GuardedRequest) -> Ruling:
        if _may(asked, Operation.READ):
            return Ruling()
        return Ruling(refusal={"error_code": DENIED, **refusal})

    return guard


def subscribing(asked: GuardedRequest) -> Ruling:
    """Reading as the group, and seeing the topics subscribed to by name."""
    if not _may(asked, Operation.READ):
        return Ruling(refusal={"error_code": DENIED, "error_message": MESSAGE})
    names = asked.body.subscribed_topic_names or ()
    if all(asked.session.may(Operation.DESCRIBE, Resource.TOPIC, name) for name in names):
        return Ruling()
    return Ruling(refusal={"error_code": TOPIC_DENIED, "error_message": MESSAGE})


def find_coordinator(asked: GuardedRequest) -> Ruling:
    """Seeing the group or the transactional id."""
    body = asked.body
    resource = {GROUP: Resource.GROUP, TRANSACTION: Resource.TRANSACTIONAL_ID}.get(body.key_type)
    if resource is None:
        return Ruling()
    nowhere = {"error_code": CODES[resource], "error_message": MESSAGE, "node_id": -1, "host": "", "port": -1}

    def may(key: str) -> bool:
        return asked.session.may(Operation.DESCRIBE, resource, key)

    if asked.request.api_version < 4:
        return Ruling() if may(body.key) else Ruling(refusal=nowhere)
    body.coordinator_keys, denied = split(body.coordinator_keys, may)
    return Ruling(into="coordinators", refused=[{"key": key, **nowhere} for key in denied])


# --- offsets ------------------------------------------------------------------------------------

COMMITTED = PartitionFields(by_id=True)
PLAIN = PartitionFields()
NOTHING = (("committed_offset", -1), ("metadata", ""))
WANTED = PartitionFields(parts="partition_indexes", by_id=True, extra=NOTHING)
WANTED_BY_NAME = PartitionFields(parts="partition_indexes", extra=NOTHING)


def offset_commit(asked: GuardedRequest) -> Ruling:
    shape = COMMITTED if asked.request.api_version >= 10 else PLAIN
    if not _may(asked, Operation.READ):
        return shape.all(asked, DENIED)
    return shape.each(asked, Operation.READ)


def offset_delete(asked: GuardedRequest) -> Ruling:
    if not _may(asked, Operation.DELETE):
        return Ruling(refusal={"error_code": DENIED})
    return PLAIN.each(asked, Operation.READ)


def offset_fetch(asked: GuardedRequest) -> Ruling:
    """Seeing the group and the topics; where all are asked for, forbidden ones are left out."""
    if asked.request.api_version < 8:
        return _offset_fetch_of_one(asked)
    body = asked.body
    body.groups, denied = split(
        body.groups, lambda group: asked.session.may(Operation.DESCRIBE, Resource.GROUP, group.group_id)
    )
    shape = WANTED if asked.request.api_version >= 10 else WANTED_BY_NAME
    withheld = {group.group_id: _withhold(asked, group, shape) for group in body.groups}

    def edit(answer: dict[str, Any]) -> None:
        for group in answer["groups"]:
            group["topics"] = _visible(asked, group["topics"]) + withheld[group["group_id"]]

    refused = [{"group_id": group.group_id, "topics": [], "error_code": DENIED} for group in denied]
    return Ruling(into="groups", refused=refused, edit=edit)


def _offset_fetch_of_one(asked: GuardedRequest) -> Ruling:
    if not asked.session.may(Operation.DESCRIBE, Resource.GROUP, asked.body.group_id):
        if asked.request.api_version < 2:
            return WANTED_BY_NAME.all(asked, DENIED)
        return Ruling(refusal={"topics": [], "error_code": DENIED})
    refused = _withhold(asked, asked.body, WANTED_BY_NAME)

    def edit(answer: dict[str, Any]) -> None:
        answer["topics"] = _visible(asked, answer["topics"])

    return Ruling(into="topics", refused=refused, edit=edit)


def _withhold(asked: GuardedRequest, holder: Any, shape: PartitionFields) -> list[dict[str, Any]]:
    """Takes forbidden topics out of a request's list; their refusals."""
    if not holder.topics:
        return []
    holder.topics, denied = split(holder.topics, lambda topic: asked.may_topic(Operation.DESCRIBE, topic))
    return shape.refusals(denied, TOPIC_DENIED)


def _visible(asked: GuardedRequest, topics: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    def seen(topic: dict[str, Any]) -> bool:
        topic_id = topic.get("topic_id")
        name = asked.topic_name(topic_id) if topic_id is not None else topic.get("name")
        return name is None or asked.session.sees(Operation.DESCRIBE, Resource.TOPIC, name)

    return [topic for topic in topics if seen(topic)]


# --- administration -----------------------------------------------------------------------------


def list_groups(asked: GuardedRequest) -> Ruling:
    """All for a user who may describe the cluster; else those that the caller may describe."""
    session = asked.session

    def edit(answer: dict[str, Any]) -> None:
        if not session.sees(Operation.DESCRIBE, Resource.CLUSTER, CLUSTER_NAME):
            answer["groups"] = [
                group
                for group in answer.get("groups", ())
                if session.sees(Operation.DESCRIBE, Resource.GROUP, group["group_id"])
            ]

    return Ruling(edit=edit)


def describing(field: str) -> Guard:
    """Seeing each group; a group of which a topic must not be seen is refused as a whole."""

    def guard(asked: GuardedRequest) -> Ruling:
        ids, denied = split(getattr(asked.body, field), _each(asked, Operation.DESCRIBE))
        setattr(asked.body, field, ids)
        refused = [_unseen(group_id, DENIED) for group_id in denied]
        return Ruling(into="groups", refused=refused, edit=lambda answer: _edit_described(asked, answer))

    return guard


def _each(asked: GuardedRequest, operation: Operation) -> Callable[[str], bool]:
    return lambda group_id: asked.session.may(operation, Resource.GROUP, group_id)


def _unseen(group_id: str, code: int) -> dict[str, Any]:
    return {"group_id": group_id, "error_code": code, "error_message": MESSAGE, "group_state": ""}


def _edit_described(asked: GuardedRequest, answer: dict[str, Any]) -> None:
    session = asked.session
    groups = []
    for group in answer["groups"]:
        if not all(session.sees(Operation.DESCRIBE, Resource.TOPIC, name) for name in _topics_in(group)):
            group = _unseen(group["group_id"], TOPIC_DENIED)
        elif asked.body.include_authorized_operations:
            group["authorized_operations"] = session.allowed_bits(Resource.GROUP, group["group_id"])
        groups.append(group)
    answer["groups"] = groups


def _topics_in(group: dict[str, Any]) -> set[str]:
    """The topics that the members of a described group are named with."""
    return {
        topic["topic_name"]
        for member in group.get("members", ())
        for field in ("assignment", "target_assignment")
        for topic in (member.get(field) or {}).get("topic_partitions", ())
    }


def delete_groups(asked: GuardedRequest) -> Ruling:
    body = asked.body
    body.groups_names, denied = split(body.groups_names, _each(asked, Operation.DELETE))
    return Ruling(
        into="results", refused=[{"group_id": group_id, "error_code": DENIED} for group_id in denied]
    )


# --- queues -------------------------------------------------------------------------------------

ALTERED = PartitionFields(name="topic_name", into="responses")


def describe_share_offsets(asked: GuardedRequest) -> Ruling:
    body = asked.body
    body.groups, denied = split(
        body.groups, lambda group: asked.session.may(Operation.DESCRIBE, Resource.GROUP, group.group_id)
    )
    withheld = {group.group_id: _withhold_shared(asked, group) for group in body.groups}

    def edit(answer: dict[str, Any]) -> None:
        for group in answer["groups"]:
            seen = [
                topic
                for topic in group.get("topics", ())
                if asked.session.sees(Operation.DESCRIBE, Resource.TOPIC, topic["topic_name"])
            ]
            group["topics"] = seen + withheld[group["group_id"]]

    refused = [
        {"group_id": group.group_id, "topics": [], "error_code": DENIED, "error_message": MESSAGE}
        for group in denied
    ]
    return Ruling(into="groups", refused=refused, edit=edit)


def _withhold_shared(asked: GuardedRequest, group: Any) -> list[dict[str, Any]]:
    if not group.topics:
        return []
    group.topics, denied = split(
        group.topics, lambda topic: asked.may_topic(Operation.DESCRIBE, topic, "topic_name")
    )
    return PartitionFields(name="topic_name").refusals(denied, TOPIC_DENIED)


def alter_share_offsets(asked: GuardedRequest) -> Ruling:
    if not _may(asked, Operation.READ):
        return Ruling(refusal={"error_code": DENIED, "error_message": MESSAGE})
    return ALTERED.each(asked, Operation.READ)


def delete_share_offsets(asked: GuardedRequest) -> Ruling:
    if not _may(asked, Operation.DELETE):
        return Ruling(refusal={"error_code": DENIED, "error_message": MESSAGE})
    body = asked.body
    body.topics, denied = split(
        body.topics, lambda topic: asked.may_topic(Operation.READ, topic, "topic_name")
    )
    refused = [{"topic_name": topic.topic_name, "error_code": TOPIC_DENIED} for topic in denied]
    return Ruling(into="responses", refused=refused)


JOIN_REFUSAL = {"generation_id": -1, "protocol_name": "", "leader": "", "member_id": ""}

GROUP_GUARDS: dict[int, Guard] = {
    Api.OFFSET_COMMIT: offset_commit,
    Api.OFFSET_FETCH: offset_fetch,
    Api.FIND_COORDINATOR: find_coordinator,
    Api.JOIN_GROUP: reading(**JOIN_REFUSAL),
    Api.HEARTBEAT: reading(),
    Api.LEAVE_GROUP: reading(),
    Api.SYNC_GROUP: reading(),
    Api.DESCRIBE_GROUPS: describing("groups"),
    Api.LIST_GROUPS: list_groups,
    Api.DELETE_GROUPS: delete_groups,
    Api.OFFSET_DELETE: offset_delete,
    Api.CONSUMER_GROUP_HEARTBEAT: subscribing,
    Api.CONSUMER_GROUP_DESCRIBE: describing("group_ids"),
    Api.SHARE_GROUP_HEARTBEAT: subscribing,
    Api.SHARE_GROUP_DESCRIBE: describing("group_ids"),
    # Their topics are those of a share session: the handlers ask for each, whenever it is served.
    Api.SHARE_FETCH: reading(error_message=MESSAGE),
    Api.SHARE_ACKNOWLEDGE: reading(error_message=MESSAGE),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: describe_share_offsets,
    Api.ALTER_SHARE_GROUP_OFFSETS: alter_share_offsets,
    Api.DELETE_SHARE_GROUP_OFFSETS: delete_share_offsets,
}
