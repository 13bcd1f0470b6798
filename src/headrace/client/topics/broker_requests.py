"""Requests about many topics that the client library lacks, sent to the brokers directly.

The library describes all of a topic's configs, some forty, which takes seconds for a thousand
topics; here only the named ones are asked for. It has no call for DescribeLogDirs at all, which
is sent in the version that Kafka and our broker have both served for longest.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing, suppress

from headrace.client.connect import Connection
from headrace.client.connect.brokers import Brokers
from headrace.errors import HeadraceError
from headrace.wire import Api, ErrorCode, Fields

__all__ = ["named_configs", "partition_sizes", "sizes_in"]

_VERSIONS = {Api.DESCRIBE_CONFIGS: 4, Api.DESCRIBE_LOG_DIRS: 1}
_TOPIC = 2


def named_configs(
    connection: Connection, topics: Iterable[str], names: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """The named configs of each topic, as far as the broker has them; empty for a topic that is hidden."""
    resources = [
        {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": list(names)}
        for topic in topics
    ]
    if not resources:
        return {}
    fields = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    brokers = Brokers(connection, _versions(Api.DESCRIBE_CONFIGS))
    with closing(brokers):
        answer = brokers.retrying(lambda: brokers.ask(brokers.any(), Api.DESCRIBE_CONFIGS, fields))
    return {
        each.resource_name: {config.name: config.value for config in each.configs}
        if each.error_code == ErrorCode.none
        else {}
        for each in answer.results
    }


def partition_sizes(connection: Connection, brokers: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Bytes per (topic, partition), of the largest replica.

    A broker that does not answer, or refuses this user, contributes nothing: its sizes are
    unknown, not zero.
    """
    sizes: dict[tuple[str, int], int] = {}
    connected = Brokers(connection, _versions(Api.DESCRIBE_LOG_DIRS))
    try:
        for address in brokers:
            with suppress(HeadraceError):
                answer = connected.ask(connected.at(*address), Api.DESCRIBE_LOG_DIRS, {"topics": None})
                for partition, size in sizes_in(answer).items():
                    sizes[partition] = max(size, sizes.get(partition, 0))
    finally:
        connected.close()
    return sizes


def sizes_in(answer: Fields) -> dict[tuple[str, int], int]:
    """Bytes per (topic, partition) on one broker; replicas being moved are left out."""
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }


def _versions(api: Api) -> dict[Api, int]:
    return {api: _VERSIONS[api]}
