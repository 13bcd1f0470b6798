"""Topics as plain data, for the command line and the console. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client.topics.log import PartitionKey, storage_of
from headrace.client.topics.positions import Bounds
from headrace.client.topics.record_counts import RecordCount

__all__ = ["topic_description", "topic_summaries", "total_count", "total_size"]

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


def topic_summaries(
    counts: Mapping[PartitionKey, RecordCount],
    sizes: Mapping[PartitionKey, int],
    storages: Mapping[str, str],
) -> list[Data]:
    """One row per topic, by name; the size is None unless it is known for every partition.

    `records` is exact if `exact` says so, and else the most that there can be.
    """
    by_topic: dict[str, list[PartitionKey]] = {}
    for each in counts:
        by_topic.setdefault(each[0], []).append(each)
    return [
        {
            "topic": topic,
            "partitions": len(members),
            **total_count(counts[each] for each in members),
            "size_bytes": total_size(sizes.get(each) for each in members),
            "storage": storages[topic],
            "internal": topic.startswith("__"),
        }
        for topic, members in sorted(by_topic.items())
    ]


def total_size(sizes: Iterable[int | None]) -> int | None:
    """The sum, or None if one part is unknown: a partial sum would be wrong."""
    total = 0
    for size in sizes:
        if size is None:
            return None
        total += size
    return total


def total_count(counts: Iterable[RecordCount]) -> Data:
    """`records` of all together, and whether that is `exact`."""
    listed = list(counts)
    return {"records": sum(each.records for each in listed), "exact": all(each.exact for each in listed)}


def topic_description(
    topic: str,
    metadata: Any,
    *,
    bounds: Mapping[PartitionKey, Bounds],
    counts: Mapping[PartitionKey, RecordCount],
    sizes: Mapping[PartitionKey, int],
    configs: Mapping[str, Any],
    dropped: Mapping[str, int],
    all_configs: bool,
) -> Data:
    """A topic's description; `records` is exact if `exact` says so, and else the most that there can be."""
    partitions = [
        {
            "partition": index,
            "leader": partition.leader,
            "replicas": list(partition.replicas),
            "in_sync": list(partition.isrs),
            "log_start": bounds[topic, index].start,
            "log_end": bounds[topic, index].end,
            **counts[topic, index]._asdict(),
            "size_bytes": sizes.get((topic, index)),
        }
        for index, partition in sorted(metadata.partitions.items())
    ]
    return {
        "topic": topic,
        "internal": topic.startswith("__"),
        "partitions": partitions,
        **total_count(counts[topic, each["partition"]] for each in partitions),
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
