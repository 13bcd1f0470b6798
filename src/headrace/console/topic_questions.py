"""Topics as the API shows them, asked of the log. Blocks: for the console's threads."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client import Connection
from headrace.client.log_dirs import partition_sizes
from headrace.client.questions import Log, Partition
from headrace.client.topic_data import described, total_size
from headrace.client.topic_settings import topic_settings

__all__ = ["chosen_names", "described_topic", "listed_topics", "topic_ends"]

_SHOWN = ("headrace.storage", "cleanup.policy")


def listed_topics(
    log: Log, connection: Connection, *, search: str | None, internal: bool, after: str, limit: int
) -> dict[str, Any]:
    """A page of topics by name, with what is asked of the log for these alone."""
    cluster = log.cluster()
    names = chosen_names(cluster.topics, search, internal=internal)
    left = [name for name in names if name > after]
    page = left[:limit]
    partitions = {name: [(name, index) for index in cluster.topics[name].partitions] for name in page}
    bounds = log.bounds([each for own in partitions.values() for each in own])
    sizes = partition_sizes(connection, log.broker_addresses())
    settings = topic_settings(connection, page, _SHOWN)
    rows = [
        {
            "name": name,
            "partitions": len(own),
            "records": sum(bounds[each].end - bounds[each].start for each in own),
            "bytes": total_size(sizes.get(each) for each in own),
            "internal": name.startswith("__"),
            "storage": settings.get(name, {}).get("headrace.storage") or "disk",
            "cleanup_policy": settings.get(name, {}).get("cleanup.policy"),
        }
        for name, own in partitions.items()
    ]
    return {"topics": rows, "total": len(names), "next": page[-1] if len(left) > len(page) else None}


def chosen_names(topics: Iterable[str], search: str | None, *, internal: bool) -> list[str]:
    """Names in order that hold the text, whatever its case."""
    wanted = (search or "").casefold()
    return sorted(
        name for name in topics if (internal or not name.startswith("__")) and wanted in name.casefold()
    )


def _value(configs: Mapping[str, Any], name: str) -> str | None:
    return None if name not in configs else str(configs[name].value)


def described_topic(log: Log, connection: Connection, topic: str) -> dict[str, Any]:
    metadata = log.topic(topic)
    each: list[Partition] = [(topic, index) for index in metadata.partitions]
    configs = log.topic_configs(topic)
    found = described(
        topic,
        metadata,
        bounds=log.bounds(each),
        sizes=partition_sizes(connection, log.broker_addresses()),
        configs=configs,
        dropped={},
        all_configs=True,
    )
    partitions = [
        {
            "partition": part["partition"],
            "start": part["log_start"],
            "end": part["log_end"],
            "bytes": part["size_bytes"],
            "leader": part["leader"],
        }
        for part in found["partitions"]
    ]
    return {
        "name": topic,
        "internal": found["internal"],
        "partitions": partitions,
        "records": found["records"],
        "bytes": found["size_bytes"],
        "storage": found["storage"],
        "cleanup_policy": _value(configs, "cleanup.policy"),
        "config": {row["name"]: row["value"] for row in found["configs"]},
        "config_overrides": [row["name"] for row in found["configs"] if row["source"] == "topic"],
    }


def topic_ends(log: Log) -> dict[str, Any]:
    """The end of every topic, in all and by partition."""
    topics = log.cluster().topics
    ends = log.ends([(name, index) for name, topic in topics.items() for index in topic.partitions])
    found: dict[str, Any] = {name: {"end": 0, "partitions": {}} for name in topics}
    for (name, index), end in ends.items():
        found[name]["end"] += end
        found[name]["partitions"][str(index)] = end
    return found
