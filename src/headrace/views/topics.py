"""Topics that outputs need: made when they are missing, left alone when they are there."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import admin as kafka_admin

from headrace.client import Connection, admin
from headrace.errors import RequestError, RetriableError

__all__ = ["SILENT", "TopicSettings", "create_topics", "delete_topic", "topic_names"]

# What the client library would print comes out of our calls as errors.
SILENT = logging.getLogger("headrace.views.client")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False

_POLL_S = 0.05
_kafka: Any = kafka_admin  # its vocabulary is not exported to type checkers


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """How to make a topic; -1 partitions is the broker's default."""

    partitions: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


def create_topics(
    connection: Connection,
    wanted: Mapping[str, TopicSettings],
    properties: Mapping[str, Any] | None = None,
) -> None:
    """Makes those that are missing; raises RequestError with the broker's reason if it refuses one."""
    client = admin(connection, logger=SILENT, **(properties or {}))
    timeout_s = connection.retry_timeout_ms / 1000
    present = _listed(client, connection)
    missing = [
        _kafka.NewTopic(name, settings.partitions, -1, config=dict(settings.configs))
        for name, settings in wanted.items()
        if name not in present
    ]
    for name, made in (client.create_topics(missing, operation_timeout=timeout_s) if missing else {}).items():
        try:
            made.result(timeout_s)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise RequestError(f"topic {name!r} cannot be made: {error.args[0].str()}") from error


def delete_topic(connection: Connection, name: str, properties: Mapping[str, Any] | None = None) -> None:
    """Removes a topic and waits until it is gone; nothing happens if there is none."""
    client = admin(connection, logger=SILENT, **(properties or {}))
    timeout_s = connection.retry_timeout_ms / 1000
    try:
        client.delete_topics([name], operation_timeout=timeout_s)[name].result(timeout_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise RequestError(f"topic {name!r} cannot be removed: {error.args[0].str()}") from error
    deadline = time.monotonic() + timeout_s
    while name in topic_names(connection, properties):
        if time.monotonic() > deadline:
            raise RetriableError(f"topic {name!r} is still there after {timeout_s:.0f} s; try again")
        time.sleep(_POLL_S)


def topic_names(connection: Connection, properties: Mapping[str, Any] | None = None) -> list[str]:
    """Every topic that this user may see."""
    client = admin(connection, logger=SILENT, **(properties or {}))
    return sorted(_listed(client, connection))


def _listed(client: Any, connection: Connection) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = client.list_topics(timeout=connection.retry_timeout_ms / 1000).topics
    except KafkaException as error:
        raise RetriableError(
            f"{connection.bootstrap_servers} does not tell its topics: {error.args[0].str()}; is it running?"
        ) from error
    return found
