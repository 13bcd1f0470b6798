"""Events as records of the internal topic: compact JSON that a person can read.

The key says what the record is about, the value what is now true of it; no value
is a tombstone. Both carry a version `v`; one that is newer than ours is refused, since
to skip it would be to lose it. Bytes that clients brought are in base64.

    {"v":1,"kind":"group","group":G}                          a group of either protocol
    {"v":1,"kind":"member","group":G,"member":M}              a member of a server-side group
    {"v":1,"kind":"offset","group":G,"topic":T,"partition":P} a committed offset
    {"v":1,"kind":"pending","group":G,"topic":T,"partition":P,"producer":N}
                                                              an offset in a transaction
"""

from base64 import b64decode, b64encode
from collections import defaultdict
from typing import Any
from uuid import UUID

import orjson

from headrace.errors import CorruptionError
from headrace.groups.events import (
    ClassicGroupSaved,
    ConsumerGroupSaved,
    ConsumerMemberRemoved,
    ConsumerMemberSaved,
    GroupEvent,
    GroupRemoved,
    OffsetCommitted,
    OffsetRemoved,
    Partitions,
    PendingOffset,
    PendingOffsetRemoved,
    SavedClassicMember,
)

__all__ = ["VERSION", "decode", "encode"]

VERSION = 1


def encode(event: GroupEvent) -> tuple[bytes, bytes | None]:
    """Key and value of the event's record."""
    key, value = _key(event), _value(event)
    packed = None if value is None else orjson.dumps({"v": VERSION, **value})
    return orjson.dumps({"v": VERSION, **key}), packed


def decode(key: bytes | None, value: bytes | None) -> GroupEvent:
    """The event a record stands for; CorruptionError if it is none, or from a newer Headrace."""
    try:
        what = orjson.loads(key or b"")
        said = None if value is None else orjson.loads(value)
        newest = max(what["v"], said["v"] if said else 0)
        if newest > VERSION:
            raise CorruptionError(
                f"a record of groups has version {newest}, this Headrace knows {VERSION}: start a newer one"
            )
        return _event(what, said)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptionError(
            f"the record with key {(key or b'')[:200]!r} is no record of groups ({error!r})"
        ) from error


def _key(event: GroupEvent) -> dict[str, Any]:
    match event:
        case ConsumerMemberSaved() | ConsumerMemberRemoved():
            return {"kind": "member", "group": event.group_id, "member": event.member_id}
        case OffsetCommitted() | OffsetRemoved():
            return _offset_key("offset", event)
        case PendingOffset():
            return {**_offset_key("pending", event.offset), "producer": event.producer_id}
        case PendingOffsetRemoved():
            return {**_offset_key("pending", event), "producer": event.producer_id}
        case _:
            return {"kind": "group", "group": event.group_id}


def _offset_key(kind: str, event: OffsetCommitted | OffsetRemoved | PendingOffsetRemoved) -> dict[str, Any]:
    return {"kind": kind, "group": event.group_id, "topic": event.topic, "partition": event.partition}


def _value(event: GroupEvent) -> dict[str, Any] | None:
    match event:
        case ClassicGroupSaved():
            return _classic_value(event)
        case ConsumerGroupSaved():
            topics = {name: [str(topic_id), count] for name, topic_id, count in event.topics}
            epochs = {"epoch": event.epoch, "target_epoch": event.target_epoch}
            return {"type": "consumer", **epochs, "topics": topics}
        case ConsumerMemberSaved():
            return _member_value(event)
        case OffsetCommitted():
            return _offset_value(event)
        case PendingOffset():
            return {"epoch": event.producer_epoch, **_offset_value(event.offset)}
        case _:
            return None


def _classic_value(event: ClassicGroupSaved) -> dict[str, Any]:
    return {
        "type": "classic",
        "state": event.state,
        "generation": event.generation,
        "protocol_type": event.protocol_type,
        "protocol": event.protocol_name,
        "leader": event.leader,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "session_timeout_ms": member.session_timeout_ms,
                "rebalance_timeout_ms": member.rebalance_timeout_ms,
                "protocols": [[name, b64encode(data).decode()] for name, data in member.protocols],
                "assignment": b64encode(member.assignment).decode(),
            }
            for member in event.members
        ],
    }


def _member_value(event: ConsumerMemberSaved) -> dict[str, Any]:
    return {
        "instance": event.instance_id,
        "rack": event.rack_id,
        "client": event.client_id,
        "host": event.client_host,
        "user": event.user,
        "rebalance_timeout_ms": event.rebalance_timeout_ms,
        "topics": sorted(event.topic_names),
        "regex": event.topic_regex,
        "assignor": event.assignor,
        "epoch": event.epoch,
        "previous_epoch": event.previous_epoch,
        "state": event.state,
        "assigned": _by_topic(event.assigned),
        "revoking": _by_topic(event.revoking),
        "target": _by_topic(event.target),
    }


def _offset_value(event: OffsetCommitted) -> dict[str, Any]:
    return {
        "offset": event.offset,
        "leader_epoch": event.leader_epoch,
        "metadata": event.metadata,
        "topic_id": str(event.topic_id),
        "commit_ms": event.commit_ms,
        "expire_ms": event.expire_ms,
    }


def _by_topic(partitions: Partitions) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = defaultdict(list)
    for topic_id, partition in sorted(partitions):
        topics[str(topic_id)].append(partition)
    return topics


def _partitions(topics: dict[str, list[int]]) -> Partitions:
    return frozenset((UUID(topic), partition) for topic, listed in topics.items() for partition in listed)


def _event(key: dict[str, Any], value: dict[str, Any] | None) -> GroupEvent:
    kind, group_id = key["kind"], key["group"]
    if kind == "offset":
        return _offset_event(group_id, key["topic"], key["partition"], value)
    if kind == "pending":
        return _pending_event(group_id, key, value)
    if kind == "member":
        return _member_event(group_id, key["member"], value)
    if kind == "group":
        return _group_event(group_id, value)
    raise ValueError(f"unknown kind {kind!r}")


def _group_event(group_id: str, value: dict[str, Any] | None) -> GroupEvent:
    if value is None:
        return GroupRemoved(group_id=group_id)
    if value["type"] == "consumer":
        return ConsumerGroupSaved(
            group_id=group_id,
            epoch=value["epoch"],
            target_epoch=value["target_epoch"],
            topics=tuple(
                (name, UUID(topic_id), count) for name, (topic_id, count) in value["topics"].items()
            ),
        )
    if value["type"] != "classic":
        raise ValueError(f"unknown type of group {value['type']!r}")
    return ClassicGroupSaved(
        group_id=group_id,
        state=value["state"],
        generation=value["generation"],
        protocol_type=value["protocol_type"],
        protocol_name=value["protocol"],
        leader=value["leader"],
        members=tuple(_classic_member(member) for member in value["members"]),
    )


def _classic_member(value: dict[str, Any]) -> SavedClassicMember:
    return SavedClassicMember(
        member_id=value["member"],
        instance_id=value["instance"],
        client_id=value["client"],
        client_host=value["host"],
        session_timeout_ms=value["session_timeout_ms"],
        rebalance_timeout_ms=value["rebalance_timeout_ms"],
        protocols=tuple((name, b64decode(data)) for name, data in value["protocols"]),
        assignment=b64decode(value["assignment"]),
    )


def _member_event(group_id: str, member_id: str, value: dict[str, Any] | None) -> GroupEvent:
    if value is None:
        return ConsumerMemberRemoved(group_id=group_id, member_id=member_id)
    return ConsumerMemberSaved(
        group_id=group_id,
        member_id=member_id,
        instance_id=value["instance"],
        rack_id=value["rack"],
        client_id=value["client"],
        client_host=value["host"],
        rebalance_timeout_ms=value["rebalance_timeout_ms"],
        topic_names=frozenset(value["topics"]),
        topic_regex=value["regex"],
        assignor=value["assignor"],
        epoch=value["epoch"],
        previous_epoch=value["previous_epoch"],
        state=value["state"],
        assigned=_partitions(value["assigned"]),
        revoking=_partitions(value["revoking"]),
        target=_partitions(value["target"]),
        user=value.get("user"),  # which records of earlier versions do not have
    )


def _pending_event(group_id: str, key: dict[str, Any], value: dict[str, Any] | None) -> GroupEvent:
    topic, partition, producer_id = key["topic"], key["partition"], key["producer"]
    if value is None:
        return PendingOffsetRemoved(
            group_id=group_id, producer_id=producer_id, topic=topic, partition=partition
        )
    return PendingOffset(
        producer_id=producer_id,
        producer_epoch=value["epoch"],
        offset=_offset(group_id, topic, partition, value),
    )


def _offset_event(group_id: str, topic: str, partition: int, value: dict[str, Any] | None) -> GroupEvent:
    if value is None:
        return OffsetRemoved(group_id=group_id, topic=topic, partition=partition)
    return _offset(group_id, topic, partition, value)


def _offset(group_id: str, topic: str, partition: int, value: dict[str, Any]) -> OffsetCommitted:
    return OffsetCommitted(
        group_id=group_id,
        topic=topic,
        topic_id=UUID(value["topic_id"]),
        partition=partition,
        offset=value["offset"],
        leader_epoch=value["leader_epoch"],
        metadata=value["metadata"],
        commit_ms=value["commit_ms"],
        expire_ms=value["expire_ms"],
    )
