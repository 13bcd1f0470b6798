"""Topics for tests of the client and the source: made, filled and removed with confluent-kafka."""

import json
import uuid
from collections.abc import Iterable
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions, NewTopic

from headrace.client import Connection, admin, producer

TIMEOUT_S = 30


def create_topic(log: Connection, partitions: int = 1, name: str | None = None) -> str:
    name = name or f"t-{uuid.uuid4().hex[:12]}"
    client = admin(log)  # kept: its futures fail once it is gone
    client.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)
    return name


def delete_topic(log: Connection, name: str) -> None:
    client = admin(log)  # kept: its futures fail once it is gone
    client.delete_topics([name])[name].result(TIMEOUT_S)


def add_partitions(log: Connection, name: str, total: int) -> None:
    client = admin(log)  # kept: its futures fail once it is gone
    client.create_partitions([NewPartitions(name, total)])[name].result(TIMEOUT_S)


def delete_records(log: Connection, name: str, before: int) -> None:
    where = TopicPartition(name, 0, before)
    client = admin(log)  # kept: its futures fail once it is gone
    client.delete_records([where])[where].result(TIMEOUT_S)


def send(
    log: Connection, topic: str, values: Iterable[Any], *, partition: int = 0, **properties: Any
) -> None:
    """Values in order, all acknowledged; what is neither bytes nor None is sent as JSON."""
    client = producer(log, **{"linger_ms": 5, **properties})
    failures = []
    for value in values:
        raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        client.produce(
            topic, raw, partition=partition, on_delivery=lambda error, _: error and failures.append(error)
        )
        client.poll(0)
    assert client.flush(TIMEOUT_S) == 0
    assert not failures
