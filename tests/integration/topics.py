"""Topics for tests of the client and the source: made, filled and removed with confluent-kafka."""

import json
import time
import uuid
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace.client import Connection, admin, producer

TIMEOUT_S = 240


def create_topic(log: Connection, partitions: int = 1, name: str | None = None) -> str:
    name = name or f"t-{uuid.uuid4().hex[:12]}"
    client = admin(log)  # kept: its futures fail once it is gone
    client.create_topics([NewTopic(name, partitions, 1)])[name].result(TIMEOUT_S)
    _wait_known(client, name, partitions)
    return name


def delete_topic(log: Connection, name: str) -> None:
    client = admin(log)  # kept: its futures fail once it is gone
    client.delete_topics([name])[name].result(TIMEOUT_S)
    _wait_known(client, name, 0)


def add_partitions(log: Connection, name: str, total: int) -> None:
    client = admin(log)  # kept: its futures fail once it is gone
    client.create_partitions([NewPartitions(name, total)])[name].result(TIMEOUT_S)
    _wait_known(client, name, total)


def _wait_known(client: AdminClient, name: str, partitions: int) -> None:
    """Until the broker tells clients of as many partitions: a Kafka does a moment after it has made them."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        found = client.list_topics(timeout=TIMEOUT_S).topics.get(name)
        if (
            0 if found is None else sum(each.leader >= 0 for each in found.partitions.values())
        ) == partitions:
            return
        assert time.monotonic() < deadline, f"{name} does not have {partitions} partitions"


def delete_records(log: Connection, name: str, before: int) -> None:
    where = TopicPartition(name, 0, before)
    client = admin(log)  # kept: its futures fail once it is gone
    client.delete_records([where])[where].result(TIMEOUT_S)


def send(
    log: Connection,
    topic: str,
    values: Iterable[Any],
    *,
    partition: int = 0,
    at_ms: Iterable[int] = (),
    **properties: Any,
) -> None:
    """Values in order, all acknowledged; what is neither bytes nor None is sent as JSON.

    `at_ms` are the records' own times; those without one have the time of now.
    """
    client = producer(log, **{"linger_ms": 5, **properties})
    failures = []
    for value, time_ms in zip_longest(values, at_ms, fillvalue=0):
        raw = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
        client.produce(
            topic,
            raw,
            partition=partition,
            timestamp=time_ms,  # 0 is now
            on_delivery=lambda error, _: error and failures.append(error),
        )
        client.poll(0)
    assert client.flush(TIMEOUT_S) == 0
    assert not failures
