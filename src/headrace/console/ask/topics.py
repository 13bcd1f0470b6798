"""Topics as the API shows them, asked of the log. Blocks: for the console's threads."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.client import Connection, RawFetcher
from headrace.client.topics import (
    CountLimits,
    Log,
    PartitionKey,
    RecordCounter,
    named_configs,
    partition_sizes,
    topic_description,
    total_count,
    total_size,
)

__all__ = ["chosen_names", "described_topic", "listed_topics", "topic_ends"]

_SHOWN = ("headrace.storage", "cleanup.policy")


_COUNT_LIMITS = CountLimits(bytes=8 << 20, partitions=100)  # read at each look, until all is known


def listed_topics(
    log: Log,
    connection: Connection,
    fetcher: RawFetcher,
    counter: RecordCounter,
    *,
    search: str | None,
    internal: bool,
    after: str,
    limit: int,
) -> dict[str, Any]:
    """A page of topics by name, with what is asked of the log for these alone."""
    cluster = log.cluster()
    names = chosen_names(cluster.topics, search, internal=internal)
    left = [name for name in names if name > after]
    page = left[:limit]
    partitions = {name: [(name, index) for index in cluster.topics[name].partitions] for name in page}
    bounds = log.bounds([each for own in partitions.values() for each in own])
    sizes = partition_sizes(connection, log.broker_addresses())
    settings = named_configs(connection, page, _SHOWN)
    counts = counter.count(
        fetcher,
        bounds,
        log.ends(bounds, committed_only=True),
        sizes,
        _COUNT_LIMITS,
        compacted={name for name in page if _is_compacted(settings.get(name, {}).get("cleanup.policy"))},
    )
    rows = [
        {
            "name": name,
            "partitions": len(own),
            **total_count(counts[each] for each in own),
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


def _is_compacted(policy: str | None) -> bool:
    return "compact" in (policy or "")


def described_topic(
    log: Log, connection: Connection, fetcher: RawFetcher, counter: RecordCounter, topic: str
) -> dict[str, Any]:
    metadata = log.topic(topic)
    each: list[PartitionKey] = [(topic, index) for index in metadata.partitions]
    configs, bounds = log.topic_configs(topic), log.bounds(each)
    sizes = partition_sizes(connection, log.broker_addresses())
    compacted = [topic] if _is_compacted(_value(configs, "cleanup.policy")) else []
    ends = log.ends(bounds, committed_only=True)
    found = topic_description(
        topic,
        metadata,
        bounds=bounds,
        counts=counter.count(fetcher, bounds, ends, sizes, _COUNT_LIMITS, compacted=compacted),
        sizes=sizes,
        configs=configs,
        dropped={},
        all_configs=True,
    )
    partitions = [
        {
            "partition": part["partition"],
            "start": part["log_start"],
            "end": part["log_end"],
            "records": part["records"],
            "exact": part["exact"],
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
        "exact": found["exact"],
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
