"""Topics created, altered and deleted on request. Thin I/O; failures are raised as our errors."""

from collections.abc import Iterable, Mapping

from headrace.client.connect import explained
from headrace.client.topics.log import Log, kafka
from headrace.clock import SystemClock

__all__ = ["add_partitions", "alter_configs", "create_topic", "delete_topic"]


def create_topic(
    log: Log,
    topic: str,
    *,
    partitions: int | None = None,
    replication: int | None = None,
    configs: Mapping[str, str],
) -> int:
    """Creates a topic and waits until it is visible; the number of its partitions."""
    new = kafka.NewTopic(topic, partitions or -1, replication or -1, config=dict(configs))
    with explained(f"creating topic {topic!r}", log.bootstrap):
        log.client.create_topics([new], request_timeout=log.timeout_s)[topic].result()
    return _wait_for_topic(log, topic)


def _wait_for_topic(log: Log, topic: str) -> int:
    """The number of partitions of a new topic; the nodes of a cluster may learn of it a moment later."""
    deadline = SystemClock().monotonic_ms() + 1000 * int(log.timeout_s)
    while SystemClock().monotonic_ms() < deadline:
        found = log.cluster().topics.get(topic)
        if found is not None and found.partitions:
            return len(found.partitions)
    return len(log.topic(topic).partitions)


def alter_configs(log: Log, topic: str, configs: Mapping[str, str], removed: Iterable[str]) -> None:
    """Sets configurations, and resets those of `removed` to their defaults."""
    changes = [(name, value, kafka.AlterConfigOpType.SET) for name, value in configs.items()]
    changes += [(name, "", kafka.AlterConfigOpType.DELETE) for name in removed]
    entries = [kafka.ConfigEntry(name, value, incremental_operation=kind) for name, value, kind in changes]
    resource = kafka.ConfigResource(kafka.ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    with explained(f"altering topic {topic!r}", log.bootstrap):
        log.client.incremental_alter_configs([resource], request_timeout=log.timeout_s)[resource].result()


def add_partitions(log: Log, topic: str, total: int) -> None:
    """Gives a topic that many partitions, which must be more than it has."""
    with explained(f"adding partitions to topic {topic!r}", log.bootstrap):
        more = kafka.NewPartitions(topic, total)
        log.client.create_partitions([more], request_timeout=log.timeout_s)[topic].result()


def delete_topic(log: Log, topic: str) -> None:
    """Deletes a topic with every record in it."""
    with explained(f"deleting topic {topic!r}", log.bootstrap):
        log.client.delete_topics([topic], request_timeout=log.timeout_s)[topic].result()
