"""What `headrace topics` shows: tables from plain data (`headrace.client.topics.summaries`). Pure."""

from collections.abc import Mapping
from typing import Any

from headrace.cli.terminal import table_text

__all__ = ["format_bytes", "partition_count", "render_topic", "render_topics"]

Partition = tuple[str, int]
Data = dict[str, Any]

IN_MEMORY = ", in memory: gone when the broker stops"


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


def record_count(row: Data) -> str:
    """`records` of a topic or a partition, which may be no more than a bound."""
    return f"{row['records']:,}" if row["exact"] else f"at most {row['records']:,}"


def render_topics(data: Data) -> str:
    if not data["topics"]:
        return "no topics; create one with `headrace topics create NAME`"
    rows = [
        (row["topic"], row["partitions"], record_count(row), format_bytes(row["size_bytes"]), row["storage"])
        for row in data["topics"]
    ]
    return table_text(("topic", "partitions", "records", "size", "storage"), rows)


def render_topic(data: Data) -> str:
    head = (
        f"topic {data['topic']}: {partition_count(len(data['partitions']))}, "
        f"{record_count(data)} {'record' if data['records'] == 1 else 'records'}, "
        f"{format_bytes(data['size_bytes']) or 'size unknown'}"
        f"{IN_MEMORY if data['storage'] == 'memory' else ''}\n"
    )
    rows = [
        (
            each["partition"],
            each["log_start"],
            each["log_end"],
            record_count(each),
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
        return "all configurations are at their defaults; --all-configs shows them"
    rows = [(each["name"], each["value"], each["source"]) for each in configs]
    return table_text(("configuration", "value", "source"), rows)
