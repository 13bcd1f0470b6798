"""Groups described: members and committed offsets. Thin I/O, plain results."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException

from headrace.client.connect import explained, from_kafka
from headrace.client.topics import Log, PartitionKey
from headrace.errors import RequestError

__all__ = [
    "GroupDescription",
    "Member",
    "committed_offsets",
    "committed_with_metadata",
    "describe_group",
    "list_groups",
    "many_committed_offsets",
    "member_counts",
    "require_group",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One member of a group and the partitions it owns."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[PartitionKey, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """A group as its coordinator describes it; `state` is Kafka's name, Dead if it does not exist."""

    group: str
    state: str
    type: str
    assignor: str
    coordinator: str
    members: tuple[Member, ...]

    @property
    def owners(self) -> dict[PartitionKey, Member]:
        return {partition: member for member in self.members for partition in member.partitions}


def list_groups(log: Log) -> list[dict[str, Any]]:
    """Every group the brokers know, by name."""
    with explained("listing groups", log.bootstrap):
        answer = log.client.list_consumer_groups(request_timeout=log.timeout_s).result()
    if answer.errors:
        first: Any = answer.errors[0]  # an exception or the error in it, by the version of the library
        raise from_kafka(getattr(first, "args", [first])[0], "listing groups", log.bootstrap)
    rows = [
        {"group": each.group_id, "state": _word(each.state), "type": _word(each.type).lower()}
        for each in answer.valid
    ]
    return sorted(rows, key=lambda row: row["group"])


def _word(value: Any) -> str:
    """Kafka's spelling of an enumeration's name: PREPARING_REBALANCING as PreparingRebalancing."""
    return "".join(part.capitalize() for part in value.name.split("_")) if value is not None else "Unknown"


def describe_group(log: Log, group: str) -> GroupDescription:
    """A group as it is now; one that does not exist comes with state Dead."""
    with explained(f"describing group {group!r}", log.bootstrap):
        futures = log.client.describe_consumer_groups([group], request_timeout=log.timeout_s)
        try:
            found: Any = futures[group].result()
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
            return GroupDescription(
                group=group, state="Dead", type="unknown", assignor="", coordinator="", members=()
            )
    return GroupDescription(
        group=group,
        state=_word(found.state),
        type=_word(found.type).lower(),
        assignor=found.partition_assignor,
        coordinator=f"{found.coordinator.host}:{found.coordinator.port}" if found.coordinator else "",
        members=tuple(sorted(map(_member, found.members), key=lambda member: member.member_id)),
    )


def _member(found: Any) -> Member:
    owned = found.assignment.topic_partitions if found.assignment else ()
    return Member(
        member_id=found.member_id,
        instance_id=found.group_instance_id or None,
        client_id=found.client_id,
        host=found.host.removeprefix("/"),
        partitions=tuple(sorted((each.topic, each.partition) for each in owned)),
    )


def committed_offsets(log: Log, group: str) -> dict[PartitionKey, int]:
    """Every offset the group has committed; empty for a group that does not exist."""
    return {each: offset for each, (offset, _) in committed_with_metadata(log, group).items()}


def committed_with_metadata(log: Log, group: str) -> dict[PartitionKey, tuple[int, str | None]]:
    """The same, each with the metadata that was committed beside it."""
    doing = f"reading the offsets of group {group!r}"
    with explained(doing, log.bootstrap):
        asked = [ConsumerGroupTopicPartitions(group)]
        futures = log.client.list_consumer_group_offsets(asked, request_timeout=log.timeout_s)
        try:
            found: Any = futures[group].result()
        except KafkaException as raised:
            if raised.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise
            return {}
    for each in found.topic_partitions:
        if each.error is not None:
            raise from_kafka(each.error, f"{doing}, {each.topic}:{each.partition}", log.bootstrap)
    kept = [each for each in found.topic_partitions if each.offset >= 0]
    return {(each.topic, each.partition): (each.offset, each.metadata) for each in kept}


def many_committed_offsets(log: Log, groups: Iterable[str]) -> dict[str, dict[PartitionKey, int]]:
    """The same for several groups in parallel; empty for one that does not exist or is hidden."""
    doing = "reading the offsets of groups"
    with explained(doing, log.bootstrap):
        asked = {
            group: log.client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(group)], request_timeout=log.timeout_s
            )[group]
            for group in groups
        }
        return {group: _offsets_or_none(done) for group, done in asked.items()}


def _offsets_or_none(done: Any) -> dict[PartitionKey, int]:
    try:
        found = done.result().topic_partitions
    except KafkaException as raised:
        if raised.args[0].code() not in _NOT_SHOWN:
            raise
        return {}
    return {
        (each.topic, each.partition): each.offset for each in found if not each.error and each.offset >= 0
    }


_NOT_SHOWN = (KafkaError.GROUP_ID_NOT_FOUND, KafkaError.GROUP_AUTHORIZATION_FAILED)


def member_counts(log: Log, groups: Iterable[str]) -> dict[str, int]:
    """How many members each group has; groups that cannot be described are left out."""
    wanted = list(groups)
    if not wanted:
        return {}
    with explained("describing groups", log.bootstrap):
        futures = log.client.describe_consumer_groups(wanted, request_timeout=log.timeout_s)
        return {
            group: count for group, done in futures.items() if (count := _members_or_none(done)) is not None
        }


def _members_or_none(done: Any) -> int | None:
    try:
        return len(done.result().members)
    except KafkaException as raised:
        if raised.args[0].code() not in _NOT_SHOWN:
            raise
        return None


def require_group(group: GroupDescription, offsets: dict[PartitionKey, int]) -> None:
    """Raises RequestError when there is no such group."""
    if group.state == "Dead" and not offsets:
        raise RequestError(
            f"group {group.group!r} does not exist; see `headrace groups list`",
            code=KafkaError.GROUP_ID_NOT_FOUND,
        )
