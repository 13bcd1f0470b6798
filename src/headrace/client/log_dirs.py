"""How many bytes each partition takes, asked of the brokers with DescribeLogDirs.

The client library has no call for this request, so it is spoken over a channel of our
own, in the version that Kafka and our broker have both served for longest.
"""

from collections.abc import Iterable
from contextlib import suppress

from headrace.client.brokers import Brokers
from headrace.client.connection import Connection
from headrace.errors import HeadraceError
from headrace.wire import Api, Fields

__all__ = ["partition_sizes", "sizes_in"]

_VERSION = 1


def partition_sizes(connection: Connection, brokers: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """Bytes per (topic, partition), the largest copy where there are several.

    A broker that cannot be asked, or does not tell this user, contributes nothing: its
    sizes are unknown, not zero.
    """
    sizes: dict[tuple[str, int], int] = {}
    asked = Brokers(connection, {Api.DESCRIBE_LOG_DIRS: _VERSION})
    try:
        for address in brokers:
            with suppress(HeadraceError):
                answer = asked.ask(asked.at(*address), Api.DESCRIBE_LOG_DIRS, {"topics": None})
                for partition, size in sizes_in(answer).items():
                    sizes[partition] = max(size, sizes.get(partition, 0))
    finally:
        asked.close()
    return sizes


def sizes_in(answer: Fields) -> dict[tuple[str, int], int]:
    """Bytes per (topic, partition) of one broker; copies being moved are left out."""
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
