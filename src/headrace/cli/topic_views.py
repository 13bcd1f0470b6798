"""What `headrace topics` shows: plain data first, then tables from it. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from headrace.cli.output import table_text
from headrace.cli.positions import Bounds
from headrace.cli.questions import storage_of

__all__ = ["described", "format_bytes", "partition_count", "render_description", "render_topics", "summaries"]

Partition = tuple[str, int]
Data = dict[str, Any]

IN_MEMORY = ", in memory: gone when the broker stops"

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


def format_bytes(count: int | None) -> str | None:
    """A size for people, in powers of 1024."""
    if count is None or count < 1024:
        return None if count is None else f"{count} B"
    size, unit = count / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB", "PiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}"


def partition_count(count: int) -> str:
    return "1 partition" if count == 1 else f"{count:,} partitions"


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


def render_topics(data: Data) -> str:
    if not data["topics"]:
        return "no topics; make one with `headrace topics create NAME`"
    rows = [
        (row["topic"], row["partitions"], row["records"], format_bytes(row["size_bytes"]), row["storage"])
        for row in data["topics"]
    ]
    return table_text(("topic", "partitions", "records", "size", "storage"), rows)


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


def render_description(data: Data) -> str:
    head = (
        f"topic {data['topic']}: {partition_count(len(data['partitions']))}, "
        f"{data['records']:,} records, {format_bytes(data['size_bytes']) or 'size unknown'}"
        f"{IN_MEMORY if data['storage'] == 'memory' else ''}\n"
    )
    rows = [
        (
            each["partition"],
            each["log_start"],
            each["log_end"],
            each["records"],
            format_bytes(each["size_bytes"]),
            each["leader"],
            ",".join(map(str, each["in_sync"])),
        )
        for each in data["partitions"]
    ]
    columns = ("partition", "log start", "log end", "records", "size", "leader", "in sync")
    parts = [table_text(columns, rows), *_drop_warnings(data["dropped_records"])]
    return f"{head}\n" + "\n\n".join([*parts, _render_configs(data["configs"])])


def _drop_warnings(dropped: Mapping[str, int]) -> list[str]:
    lines = [
        f"warning: {count:,} records were dropped, the {which} (headrace.overload=drop-{which})"
        for which, count in dropped.items()
        if count
    ]
    return ["\n".join(lines)] if lines else []


def _render_configs(configs: list[Data]) -> str:
    if not configs:
        return "every configuration stands at its default; --all-configs shows them"
    rows = [(each["name"], each["value"], each["source"]) for each in configs]
    return table_text(("configuration", "value", "source"), rows)
