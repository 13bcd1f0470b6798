"""Topics that outputs need: created when they are missing, left alone when they exist.

Except for the size of records: the limit of a topic that an older version created is raised,
unless it was set for that topic.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import admin as kafka_admin

from headrace.client.connect import Connection
from headrace.client.connect.clients import admin
from headrace.errors import RequestError, RetriableError

__all__ = ["KEEP_ALL", "SILENT_LOGGER", "TopicSettings", "drop_topic", "ensure_topics", "topic_names"]

# What the client library would log is raised by our calls as errors.
SILENT_LOGGER = logging.getLogger("headrace.client")
SILENT_LOGGER.addHandler(logging.NullHandler())
SILENT_LOGGER.propagate = False

# Of a topic whose oldest records are needed as long as it exists.
KEEP_ALL: Mapping[str, str] = {"retention.ms": "-1", "retention.bytes": "-1"}

_AT_A_TIME = 50  # brokers take a while for each partition
_POLL_S = 0.05
_LIMIT = "max.message.bytes"
_SET_FOR_TOPIC = 1  # Kafka's number for a configuration that was set for the topic
_kafka: Any = kafka_admin  # its vocabulary is not exported to type checkers


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """How to create a topic; -1 partitions for the broker's default."""

    partitions: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)


def ensure_topics(
    connection: Connection,
    wanted: Mapping[str, TopicSettings],
    properties: Mapping[str, Any] | None = None,
) -> None:
    """Creates those that are missing; raises RequestError with the broker's reason if it refuses one.

    A Kafka confirms a topic before it lists it: what was created is there for other clients, too, unless
    this takes longer than `retry_timeout_ms`.

    The size limit of an existing topic is raised to what it would be if it were created now, unless
    it was set for that topic, or we are not permitted to: callers have to handle records that are
    larger than a topic takes in any case.
    """
    client = admin(connection, logger=SILENT_LOGGER, **(properties or {}))
    timeout_s = connection.retry_timeout_ms / 1000
    present = _listed(client, connection)
    missing = [
        _kafka.NewTopic(name, settings.partitions, -1, config=dict(settings.configs))
        for name, settings in wanted.items()
        if name not in present
    ]
    if missing:
        created = _create(client, missing, timeout_s)
        wait_listed(created, lambda: _listed(client, connection), timeout_s)
    sizes = {name: int(each.configs[_LIMIT]) for name, each in wanted.items() if _LIMIT in each.configs}
    _raise_limits(client, {name: size for name, size in sizes.items() if name in present}, timeout_s)


def _create(client: Any, missing: Sequence[Any], timeout_s: float) -> set[str]:
    """Creates topics, so many at a time; the names of those that nobody else has created meanwhile."""
    groups = [missing[at : at + _AT_A_TIME] for at in range(0, len(missing), _AT_A_TIME)]
    return {name for group in groups for name in _create_few(client, group, timeout_s)}


def _create_few(client: Any, missing: Sequence[Any], timeout_s: float) -> set[str]:
    created = set()
    for name, made in client.create_topics(missing, operation_timeout=timeout_s).items():
        try:
            made.result(timeout_s)
            created.add(name)
        except TimeoutError as error:
            raise RetriableError(f"topic {name!r} was not created within {timeout_s:g} s") from error
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise RequestError(f"topic {name!r} cannot be created: {error.args[0].str()}") from error
    return created


def wait_listed(names: Collection[str], listed: Callable[[], Collection[str]], timeout_s: float) -> bool:
    """Whether all of these topics came to be listed in time; those hidden from this user never are."""
    deadline = time.monotonic() + timeout_s
    while names and not set(names) <= set(listed()):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _raise_limits(client: Any, sizes: Mapping[str, int], timeout_s: float) -> None:
    """Raises the size limit of topics, where it is their broker's default."""
    kind = _kafka.ConfigResource.Type.TOPIC
    for name, size in sizes.items():
        asked = _kafka.ConfigResource(kind, name)
        entry = _kafka.ConfigEntry(_LIMIT, str(size), incremental_operation=_kafka.AlterConfigOpType.SET)
        with suppress(KafkaException):
            found = client.describe_configs([asked], request_timeout=timeout_s)[asked].result(timeout_s)
            if found[_LIMIT].source == _SET_FOR_TOPIC or int(found[_LIMIT].value) >= size:
                continue
            change = _kafka.ConfigResource(kind, name, incremental_configs=[entry])
            client.incremental_alter_configs([change], request_timeout=timeout_s)[change].result(timeout_s)


def drop_topic(connection: Connection, name: str, properties: Mapping[str, Any] | None = None) -> None:
    """Deletes a topic and waits until it is gone; nothing happens if there is none."""
    client = admin(connection, logger=SILENT_LOGGER, **(properties or {}))
    timeout_s = connection.retry_timeout_ms / 1000
    try:
        client.delete_topics([name], operation_timeout=timeout_s)[name].result(timeout_s)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise RequestError(f"topic {name!r} cannot be deleted: {error.args[0].str()}") from error
    deadline = time.monotonic() + timeout_s
    while name in topic_names(connection, properties):
        if time.monotonic() > deadline:
            raise RetriableError(f"topic {name!r} is still there after {timeout_s:.0f} s; try again")
        time.sleep(_POLL_S)


def topic_names(connection: Connection, properties: Mapping[str, Any] | None = None) -> list[str]:
    """Every topic that this user may see."""
    client = admin(connection, logger=SILENT_LOGGER, **(properties or {}))
    return sorted(_listed(client, connection))


def _listed(client: Any, connection: Connection) -> Mapping[str, Any]:
    try:
        found: Mapping[str, Any] = client.list_topics(timeout=connection.retry_timeout_ms / 1000).topics
    except KafkaException as error:
        raise RetriableError(
            f"{connection.bootstrap_servers} does not list its topics: {error.args[0].str()}; is it running?"
        ) from error
    return found
