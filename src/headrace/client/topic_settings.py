"""A few settings of many topics at once, asked for by name.

The client library asks for all of them, some forty a topic, which takes seconds for a
thousand topics.
"""

from collections.abc import Iterable, Sequence
from contextlib import closing

from headrace.client.brokers import Brokers
from headrace.client.connection import Connection
from headrace.wire import Api, ErrorCode

__all__ = ["topic_settings"]

_VERSIONS = {Api.DESCRIBE_CONFIGS: 4}
_TOPIC = 2


def topic_settings(
    connection: Connection, topics: Iterable[str], names: Sequence[str]
) -> dict[str, dict[str, str | None]]:
    """The named settings of each topic, as far as the broker has them; none of one that it does not show."""
    resources = [
        {"resource_type": _TOPIC, "resource_name": topic, "configuration_keys": list(names)}
        for topic in topics
    ]
    if not resources:
        return {}
    fields = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    brokers = Brokers(connection, _VERSIONS)
    with closing(brokers):
        answer = brokers.retrying(lambda: brokers.ask(brokers.any(), Api.DESCRIBE_CONFIGS, fields))
    return {
        each.resource_name: {config.name: config.value for config in each.configs}
        if each.error_code == ErrorCode.none
        else {}
        for each in answer.results
    }
