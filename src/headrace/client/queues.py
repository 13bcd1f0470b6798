"""Queues (share groups): listed, described, configured.

The client library has no calls for most of it, so these are spoken over a channel of our own.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from headrace.client.connect import Channel, Connection, explained
from headrace.client.connect.brokers import Brokers
from headrace.client.topics import ANSWER_TIMEOUT_S, Log, kafka
from headrace.errors import RequestError
from headrace.wire import Api, ErrorCode

__all__ = [
    "DEAD_LETTER_TOPIC_CONFIG",
    "describe_queue",
    "list_queues",
    "queue_configs",
    "queue_states",
    "set_queue_configs",
]

DEAD_LETTER_TOPIC_CONFIG = "errors.deadletterqueue.topic.name"


@contextmanager
def _channel(connection: Connection) -> Iterator[Channel]:
    with closing(Brokers(connection, {})) as brokers:
        yield brokers.any()


def list_queues(connection: Connection) -> list[dict[str, Any]]:
    """Every queue with its state, its number of members, and how many records are left in it."""
    with _channel(connection) as channel:
        return [_summary(described) for described in _described(channel, sorted(_states(channel)))]


def queue_states(connection: Connection) -> dict[str, str]:
    """The state of every queue by its name; none where the broker does not know queues."""
    with _channel(connection) as channel:
        about = {"client_software_name": "headrace", "client_software_version": "1"}
        served = {each.api_key for each in channel.request(Api.API_VERSIONS, 3, about).api_keys}
        return _states(channel) if Api.SHARE_GROUP_DESCRIBE in served else {}


def _states(channel: Channel) -> dict[str, str]:
    answer = channel.request(Api.LIST_GROUPS, 5, {"states_filter": [], "types_filter": ["share"]})
    _check(answer.error_code, "listing queues")
    return {group.group_id: group.group_state for group in answer.groups}


def _summary(queue: dict[str, Any]) -> dict[str, Any]:
    return {
        "queue": queue["queue"],
        "state": queue["state"],
        "members": len(queue["members"]),
        "topics": sorted({row["topic"] for row in queue["partitions"]}),
        "left": sum(row["left"] for row in queue["partitions"]),
    }


def describe_queue(connection: Connection, name: str) -> dict[str, Any]:
    """One queue with its members and where it is in each partition; RequestError if there is none."""
    with _channel(connection) as channel:
        return _described(channel, [name])[0]


def _described(channel: Channel, names: list[str]) -> list[dict[str, Any]]:
    if not names:
        return []
    groups = channel.request(Api.SHARE_GROUP_DESCRIBE, 1, {"group_ids": names}).groups
    asked = [{"group_id": name, "topics": None} for name in names]
    offsets = channel.request(Api.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": asked}).groups
    located = {group.group_id: group for group in offsets}
    return [_queue(group, located[group.group_id]) for group in groups]


def _queue(group: Any, located: Any) -> dict[str, Any]:
    _check(group.error_code, f"describing the queue {group.group_id!r}")
    return {
        "queue": group.group_id,
        "state": group.group_state,
        "members": [
            {"member_id": member.member_id, "client_id": member.client_id, "host": member.client_host}
            for member in group.members
        ],
        "partitions": [
            {
                "topic": topic.topic_name,
                "partition": part.partition_index,
                "start": part.start_offset,
                "left": part.lag,
            }
            for topic in located.topics
            for part in topic.partitions
        ],
    }


def _check(code: int, doing: str) -> None:
    if code == ErrorCode.group_id_not_found:
        raise RequestError(f"{doing}: there is no such queue; see `headrace queues list`", code=code)
    if code:
        raise RequestError(f"{doing}: the broker refused with code {code}", code=code)


def queue_configs(log: Log, name: str) -> dict[str, str]:
    """The configuration of a queue, defaults included."""
    resource = kafka.ConfigResource(kafka.ConfigResource.Type.GROUP, name)
    with explained(f"reading the configuration of queue {name!r}", log.bootstrap):
        futures = log.client.describe_configs([resource], request_timeout=ANSWER_TIMEOUT_S)
        return {key: str(entry.value) for key, entry in futures[resource].result().items()}


def set_queue_configs(log: Log, name: str, changes: dict[str, str | None]) -> None:
    """Sets configurations of a queue, or puts them back to their default (None)."""
    operations = kafka.AlterConfigOpType
    entries = [
        kafka.ConfigEntry(
            key,
            value,
            incremental_operation=operations.SET if value is not None else operations.DELETE,
        )
        for key, value in changes.items()
    ]
    resource = kafka.ConfigResource(kafka.ConfigResource.Type.GROUP, name, incremental_configs=entries)
    with explained(f"configuring queue {name!r}", log.bootstrap):
        for done in log.client.incremental_alter_configs(
            [resource], request_timeout=ANSWER_TIMEOUT_S
        ).values():
            done.result()
