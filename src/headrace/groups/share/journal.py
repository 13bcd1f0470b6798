"""Queues as records of the internal topic `__share_group_state`: JSON that a person can read.

    {"v":1,"kind":"group","group":G}                        {"v":1,"epoch":N}
    {"v":1,"kind":"member","group":G,"member":M}            {"v":1,"epoch":N,"topics":[...],...}
    {"v":1,"kind":"partition","group":G,"topic":T,"partition":P}
        {"v":1,"start":S,"runs":[[count,state,deliveries,member,reason],...],"members":[...],
         "producer":[id,sequence],"burial":{"topic":D,"partition":P,"spans":[[first,last]]}}
    {"v":1,"kind":"config","group":G}                       {"v":1,"set":{name:value}}

No value means forgotten. A run's member is its place in `members`, or -1.
"""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import orjson

from headrace.errors import CorruptionError
from headrace.groups.share.events import (
    ShareConfigRemoved,
    ShareConfigSaved,
    ShareEvent,
    ShareGroupRemoved,
    ShareGroupSaved,
    ShareMemberRemoved,
    ShareMemberSaved,
    SharePartitionRemoved,
    SharePartitionSaved,
)
from headrace.groups.share.partition import Burial, GiveUpReason, RecordRun, RecordState, SharePartition, Span

__all__ = ["VERSION", "decode", "encode"]

VERSION = 1


def _key(kind: str, group_id: str, **more: object) -> bytes:
    return orjson.dumps({"v": VERSION, "kind": kind, "group": group_id, **more})


def _value(**said: object) -> bytes:
    return orjson.dumps({"v": VERSION, **said})


# --- out ----------------------------------------------------------------------------------------


def encode(event: ShareEvent) -> tuple[bytes, bytes | None]:
    """Key and value of the event's record."""
    match event:
        case ShareGroupSaved():
            return _key("group", event.group_id), _value(epoch=event.epoch)
        case ShareGroupRemoved():
            return _key("group", event.group_id), None
        case ShareMemberSaved():
            return _key("member", event.group_id, member=event.member_id), _member_value(event)
        case ShareMemberRemoved():
            return _key("member", event.group_id, member=event.member_id), None
        case SharePartitionSaved():
            saved = event.partition
            return _partition_key(saved.group_id, saved.topic_id, saved.partition), _partition_value(saved)
        case SharePartitionRemoved():
            return _partition_key(event.group_id, event.topic_id, event.partition), None
        case ShareConfigSaved():
            return _key("config", event.group_id), _value(set=dict(event.overrides))
        case ShareConfigRemoved():
            return _key("config", event.group_id), None


def _partition_key(group_id: str, topic_id: UUID, partition: int) -> bytes:
    return _key("partition", group_id, topic=str(topic_id), partition=partition)


def _member_value(event: ShareMemberSaved) -> bytes:
    return _value(
        rack=event.rack_id,
        client=event.client_id,
        host=event.client_host,
        user=event.user,
        topics=sorted(event.topic_names),
        epoch=event.epoch,
        previous=event.previous_epoch,
    )


def _partition_value(saved: SharePartition) -> bytes:
    members = {
        member: place for place, member in enumerate(sorted({run.member for run in saved.runs} - {""}))
    }
    runs = [
        [run.count, run.state.value, run.deliveries, members.get(run.member, -1), run.reason.value]
        for run in saved.runs
    ]
    burial = saved.burial
    return _value(
        start=saved.start_offset,
        runs=runs,
        members=list(members),
        producer=[saved.producer_id, saved.sequence],
        burial=None
        if burial is None
        else {
            "topic": burial.topic,
            "partition": burial.partition,
            "producer": [burial.producer_id, burial.sequence],
            "spans": [list(span) for span in burial.spans],
        },
    )


# --- back ---------------------------------------------------------------------------------------


def decode(key: bytes | None, value: bytes | None) -> ShareEvent:
    """The event a record stands for; CorruptionError if it is none, or from a newer Headrace."""
    try:
        what = orjson.loads(key or b"")
        said = None if value is None else orjson.loads(value)
        newest = max(what["v"], said["v"] if said else 0)
        if newest > VERSION:
            raise CorruptionError(
                f"a record of queues has version {newest}, this Headrace knows {VERSION}: start a newer one"
            )
        return _DECODERS[what["kind"]](what, said)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise CorruptionError(
            f"the record with key {(key or b'')[:200]!r} is no record of queues ({error!r})"
        ) from error


def _group(what: dict[str, Any], said: dict[str, Any] | None) -> ShareEvent:
    if said is None:
        return ShareGroupRemoved(group_id=what["group"])
    return ShareGroupSaved(group_id=what["group"], epoch=said["epoch"])


def _member(what: dict[str, Any], said: dict[str, Any] | None) -> ShareEvent:
    if said is None:
        return ShareMemberRemoved(group_id=what["group"], member_id=what["member"])
    return ShareMemberSaved(
        group_id=what["group"],
        member_id=what["member"],
        rack_id=said["rack"],
        client_id=said["client"],
        client_host=said["host"],
        topic_names=frozenset(said["topics"]),
        epoch=said["epoch"],
        previous_epoch=said["previous"],
        user=said.get("user"),  # which records of earlier versions do not have
    )


def _config(what: dict[str, Any], said: dict[str, Any] | None) -> ShareEvent:
    if said is None:
        return ShareConfigRemoved(group_id=what["group"])
    return ShareConfigSaved(group_id=what["group"], overrides=dict(said["set"]))


def _partition(what: dict[str, Any], said: dict[str, Any] | None) -> ShareEvent:
    group_id, topic_id, index = what["group"], UUID(what["topic"]), what["partition"]
    if said is None:
        return SharePartitionRemoved(group_id=group_id, topic_id=topic_id, partition=index)
    producer_id, sequence = said["producer"]
    saved = SharePartition(
        group_id=group_id,
        topic_id=topic_id,
        partition=index,
        start_offset=said["start"],
        runs=_runs(said["start"], said["runs"], said["members"]),
        burial=None if said["burial"] is None else _burial(said["burial"]),
        producer_id=producer_id,
        sequence=sequence,
    )
    return SharePartitionSaved(partition=saved)


def _runs(start: int, said: list[list[Any]], members: list[str]) -> tuple[RecordRun, ...]:
    runs = []
    for count, state, deliveries, member, reason in said:
        runs.append(
            RecordRun(
                first=start,
                last=start + count - 1,
                state=RecordState(state),
                deliveries=deliveries,
                member=members[member] if member >= 0 else "",
                reason=GiveUpReason(reason),
            )
        )
        start += count
    return tuple(runs)


def _burial(said: dict[str, Any]) -> Burial:
    producer_id, sequence = said["producer"]
    return Burial(
        topic=said["topic"],
        partition=said["partition"],
        producer_id=producer_id,
        sequence=sequence,
        spans=tuple(Span(*span) for span in said["spans"]),
    )


_DECODERS: dict[str, Callable[[dict[str, Any], dict[str, Any] | None], ShareEvent]] = {
    "group": _group,
    "member": _member,
    "partition": _partition,
    "config": _config,
}
