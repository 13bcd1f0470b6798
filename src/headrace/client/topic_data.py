"""Topics as plain data, from what the log answered. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.places import Bounds
from headrace.client.questions import Partition, storage_of

__all__ = ["described", "summaries", "total_size"]

Data = dict[str, Any]

# Kafka's numbers for where a configuration's value comes from.
SOURCES = {
    1: "topic",
    2: "broker",
    3: "cluster",
    4: "static",
    5: "default",
    6: "broker-logger",
    8: "group",
}


def summaries(
    partitions: Iterable[Partition],
    bounds: Mapping[Partition, Bounds],
    sizes: Mapping[Partition, int],
    storages: Mapping[str, str],
) -> list[Data]:
    """One row a topic, by name; the size is None when no broker told it for every partition."""
    by_topic: dict[str, list[Partition]] = {}
    for each in partitions:
        by_topic.setdefault(each[0], []).append(each)
    return [
        {
            "topic": topic,
            "partitions": len(members),
            "records": sum(bounds[each].end - bounds[each].start for each in members),
            "size_bytes": total_size(sizes.get(each) for each in members),
            "storage": storages[topic],
            "internal": topic.startswith("__"),
        }
        for topic, members in sorted(by_topic.items())
    ]


def total_size(sizes: Iterable[int | None]) -> int | None:
    """The sum, or None as soon as one part is unknown: half a size would be a wrong one."""
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def described(
    topic: str,
    metadata: Any,
    *,
    bounds: Mapping[Partition, Bounds],
    sizes: Mapping[Partition, int],
    configs: Mapping[str, Any],
    dropped: Mapping[str, int],
    all_configs: bool,
) -> Data:
    """A topic's description; `records` counts offsets, and so also markers and compacted gaps."""
    partitions = [
        {
            "partition": index,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "in_sync": list(partition.isrs),
            "log_start": bounds[topic, index].start,
            "log_end": bounds[topic, index].end,
            "records": bounds[topic, index].end - bounds[topic, index].start,
            "size_bytes": sizes.get((topic, index)),
        }
        for index, partition in sorted(metadata.partitions.items())
    ]
    return {
        "topic": topic,
        "internal": topic.startswith("__"),
        "partitions": partitions,
        "records": sum(each["records"] for each in partitions),
        "size_bytes": total_size(each["size_bytes"] for each in partitions),
        "storage": storage_of(configs),
        "dropped_records": dict(dropped),
        "configs": _configs(configs, all_configs),
    }


def _configs(configs: Mapping[str, Any], every: bool) -> list[Data]:
    rows = [
        {
            "name": name,
            "value": None if entry.is_sensitive else entry.value,
            "source": SOURCES.get(entry.source, "unknown"),
            "read_only": bool(entry.is_read_only),
        }
        for name, entry in sorted(configs.items())
    ]
    return [row for row in rows if every or row["source"] != "default"]
