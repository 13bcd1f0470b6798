"""Everything that a scrape of `/metrics` returns: what was counted, and what is measured for it.

The high watermark, the lag of groups or the number of connections are looked at when a
scrape comes; what happens is counted as it happens (`metrics`).
"""

import os
import resource
import sys
from collections.abc import Callable, Iterable, Iterator

from headrace.broker.limits import MeasuredLag, MemoryBudget
from headrace.broker.log import Partition, Topics
from headrace.broker.services import Services
from headrace.metrics import MOST_SERIES, Family, Labels
from headrace.storage import PartitionLog, Topic

__all__ = ["collect"]


def collect(services: Services, *, connections: int) -> Iterator[Family]:
    """Every metric of the broker; any thread, since looking at many partitions takes its time."""
    yield from services.metrics.families()
    yield from _topic_families(services.topics)
    yield from _partition_families(services.topics)
    yield from _group_families(services.lag_watch.lags)
    yield from _broker_families(services.memory, connections)


def _topic_families(topics: Topics) -> Iterator[Family]:
    totals = _traffic(topics)
    for name, text, pick in _TRAFFIC:
        samples = [("", (("topic", topic),), pick(sums)) for topic, sums in totals.items()]
        yield Family(name, "counter", text, samples[:MOST_SERIES])
    damage = [
        ("", (("topic", topic.name),), sum(len(log.damage) for log in topic.partitions))
        for topic in topics.all()
    ]
    yield Family(
        "headrace_damaged_ranges", "gauge", "Damaged ranges found in a topic's files.", damage[:MOST_SERIES]
    )


def _traffic(topics: Topics) -> dict[str, list[int]]:
    """Records and bytes in, records and bytes out, by topic."""
    totals = {topic.name: [0, 0, 0, 0] for topic in topics.all()}
    for topic, partition in topics.served():
        sums = totals.get(topic.name)
        if sums is not None:
            for place, number in enumerate(_counts(partition)):
                sums[place] += number
    return totals


def _counts(partition: Partition) -> tuple[int, int, int, int]:
    return (
        partition.produced_records,
        partition.produced_bytes,
        partition.fetched_records,
        partition.fetched_bytes,
    )


_TRAFFIC: tuple[tuple[str, str, Callable[[list[int]], int]], ...] = (
    ("headrace_produced_records_total", "Records appended.", lambda sums: sums[0]),
    ("headrace_produced_bytes_total", "Bytes of record batches appended.", lambda sums: sums[1]),
    (
        "headrace_fetched_records_total",
        "Offsets sent to readers: records, and the gaps that compaction left between them.",
        lambda sums: sums[2],
    ),
    ("headrace_fetched_bytes_total", "Bytes of record batches sent to readers.", lambda sums: sums[3]),
)

_PARTITION: tuple[tuple[str, str, Callable[[PartitionLog], int]], ...] = (
    (
        "headrace_partition_high_watermark",
        "The offset below which everything is synced and served.",
        lambda log: log.high_watermark,
    ),
    (
        "headrace_partition_log_start",
        "The first offset that is still available.",
        lambda log: log.start_offset,
    ),
    ("headrace_partition_size_bytes", "Bytes of a partition's segments.", lambda log: log.size_bytes),
    (
        "headrace_partition_read_only",
        "1 when a failed disk made the partition read-only.",
        lambda log: int(log.failed is not None),
    ),
    (
        "headrace_partition_unreadable",
        "1 when the disk failed to return some of the partition's records at the last attempt.",
        lambda log: int(bool(log.unreadable)),
    ),
)


def _partition_families(topics: Topics) -> Iterator[Family]:
    logs = [
        (_partition_labels(topic, index), log)
        for topic in topics.all()
        for index, log in enumerate(topic.partitions)
    ]
    for name, text, pick in _PARTITION:
        yield Family(name, "gauge", text, [("", labels, pick(log)) for labels, log in logs[:MOST_SERIES]])
    left_out = max(0, len(logs) - MOST_SERIES)
    text = f"Partitions without series of their own, since there are more than {MOST_SERIES}."
    yield Family("headrace_partitions_left_out", "gauge", text, [("", (), left_out)])


def _partition_labels(topic: Topic, index: int) -> Labels:
    return ("topic", topic.name), ("partition", str(index))


_GROUP: tuple[tuple[str, str, Callable[[MeasuredLag], float | None]], ...] = (
    (
        "headrace_group_lag_records",
        "Offsets from a group's committed offset to the log end.",
        lambda lag: lag.records,
    ),
    (
        "headrace_group_lag_seconds",
        "Age of the oldest record batch that a group has not committed yet.",
        lambda lag: lag.seconds,
    ),
    (
        "headrace_group_retention_share",
        "The share of retention, by bytes or age, that a group has used up: at 1 it is about to fall off.",
        lambda lag: lag.share,
    ),
    (
        "headrace_group_near_retention",
        "1 while a group's share is over the topic's headrace.lag.alert.ratio.",
        lambda lag: int(lag.is_alarming),
    ),
)


def _group_families(found: Iterable[MeasuredLag]) -> Iterator[Family]:
    """Those that lag most come first, should there be too many."""
    lags = sorted(found, key=lambda lag: (-lag.share, -lag.records))[:MOST_SERIES]
    for name, text, pick in _GROUP:
        samples = [("", _group_labels(lag), value) for lag in lags if (value := pick(lag)) is not None]
        yield Family(name, "gauge", text, samples)


def _group_labels(lag: MeasuredLag) -> Labels:
    group, topic, partition = lag.place
    return ("group", group), ("topic", topic), ("partition", str(partition))


def _broker_families(memory: MemoryBudget, connections: int) -> Iterator[Family]:
    gauges: tuple[tuple[str, str, float], ...] = (
        ("headrace_connections", "Open connections.", connections),
        (
            "headrace_request_memory_bytes",
            "Memory held by requests over 64 KiB that are being received or written.",
            memory.held_bytes,
        ),
        (
            "headrace_request_memory_limit_bytes",
            "The limit on that memory (request_memory_bytes).",
            memory.total_bytes,
        ),
        ("process_resident_memory_bytes", "Resident memory of the broker's process.", _resident_bytes()),
    )
    for name, text, value in gauges:
        yield Family(name, "gauge", text, [("", (), value)])


def _resident_bytes() -> int:
    """What the kernel says now; where it cannot be asked, the most there ever was."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
