"""What a broker counts, and what it tells when it is asked.

Two kinds. What happens is counted as it happens (`Metrics`). What is, such as the
high watermark or the number of connections, is looked at when somebody asks
(`collect`). `docs/metrics.md` has a row for each of them.
"""

import os
import resource
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from headrace.metrics import MOST_SERIES, Counter, Family, Histogram, Labels
from headrace.wire import ErrorCode, name_of

if TYPE_CHECKING:
    from headrace.broker.lag_watch import Lag
    from headrace.broker.partition import Partition
    from headrace.broker.server import Broker
    from headrace.storage import PartitionLog, Topic

__all__ = ["Metrics", "collect", "error_codes"]


class Metrics:
    """Everything that is counted as it happens. Event loop only, but for the histograms."""

    def __init__(self) -> None:
        self.request_seconds = Histogram(
            "headrace_request_seconds",
            "Time from a request's turn to its answer, waits of long polls and rebalances included.",
            "api",
        )
        self.errors = Counter(
            "headrace_errors_total", "Error codes sent to clients, one for each that an answer bears.",
            "api", "code",
        )  # fmt: skip
        self.sync_seconds = Histogram(
            "headrace_sync_seconds", "Time of each fsync that acknowledgements wait for."
        )
        self.connections_opened = Counter(
            "headrace_connections_opened_total", "Connections that came in, refused ones included."
        )
        self.connections_closed = Counter(
            "headrace_connections_closed_total",
            "Connections that ended, by reason; refused: there were too many (max_connections).",
            "reason",
        )
        self.retention_segments = Counter(
            "headrace_retention_segments_total", "Segments that retention deleted.", "topic"
        )
        self.compaction_saved = Counter(
            "headrace_compaction_saved_bytes_total", "Bytes that compaction made unnecessary.", "topic"
        )
        self.dropped = Counter(
            "headrace_dropped_records_total",
            "Records that headrace.overload dropped: the oldest unread, or the newest at the door.",
            "topic",
            "which",
        )
        self.blocked = Counter(
            "headrace_blocked_batches_total",
            "Batches that headrace.overload=block sent back to their producers, to be sent again.",
            "topic",
        )
        self.throttled = Counter(
            "headrace_throttle_seconds_total",
            "Time that clients were told to wait, by the quota or policy that asked for it.",
            "reason",
        )
        self.fell_off = Counter(
            "headrace_group_fell_off_total",
            "How often records were deleted that a group had not read yet.",
            "group",
            "topic",
        )
        self.lost = Counter(
            "headrace_group_lost_records_total",
            "Offsets deleted before a group had committed them.",
            "group",
            "topic",
        )
        self.upkeep_seconds = Counter(
            "headrace_upkeep_seconds_total", "Time spent on retention and compaction."
        )
        self.upkeep_failures = Counter(
            "headrace_upkeep_failures_total", "Rounds of retention or compaction that failed.", "topic"
        )

    def families(self) -> Iterator[Family]:
        """All of them, in order of declaration."""
        for metric in vars(self).values():
            yield metric.family()

    def count_upkeep(self, topic: str, segments: int, saved_bytes: int, seconds: float) -> None:
        """Counts what one round of retention and compaction did to a partition."""
        self.upkeep_seconds.add(seconds)
        if segments:
            self.retention_segments.add(segments, topic)
        if saved_bytes:
            self.compaction_saved.add(saved_bytes, topic)

    def count_errors(self, api_key: int, answer: Any) -> None:
        """Counts the error codes anywhere in an answer's fields."""
        for code in error_codes(answer):
            self.errors.add(1, name_of(api_key), _code_name(code))


def error_codes(answer: Any) -> Iterator[int]:
    """Every error code other than 0 in an answer's fields."""
    if isinstance(answer, dict):
        if code := answer.get("error_code"):
            yield int(code)
        answer = answer.values()
    for value in answer:
        if isinstance(value, dict | list):
            yield from error_codes(value)


def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


# --- what is --------------------------------------------------------------------------------------


def collect(broker: "Broker") -> Iterator[Family]:
    """Every metric of the broker; any thread, since looking at many partitions takes its time."""
    yield from broker.metrics.families()
    yield from _topic_families(broker)
    yield from _partition_families(broker)
    yield from _group_families(broker)
    yield from _broker_families(broker)


def _topic_families(broker: "Broker") -> Iterator[Family]:
    totals = _traffic(broker)
    for name, text, pick in _TRAFFIC:
        samples = [("", (("topic", topic),), pick(sums)) for topic, sums in totals.items()]
        yield Family(name, "counter", text, samples[:MOST_SERIES])
    damage = [
        ("", (("topic", topic.name),), sum(len(log.damage) for log in topic.partitions))
        for topic in broker.topics.all()
    ]
    yield Family(
        "headrace_damaged_ranges", "gauge", "Damaged ranges found in a topic's files.", damage[:MOST_SERIES]
    )


def _traffic(broker: "Broker") -> dict[str, list[int]]:
    """Records and bytes in, records and bytes out, by topic."""
    totals = {topic.name: [0, 0, 0, 0] for topic in broker.topics.all()}
    for topic, partition in broker.topics.served():
        sums = totals.get(topic.name)
        if sums is not None:
            for place, number in enumerate(_counts(partition)):
                sums[place] += number
    return totals


def _counts(partition: "Partition") -> tuple[int, int, int, int]:
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

_PARTITION: tuple[tuple[str, str, Callable[["PartitionLog"], int]], ...] = (
    (
        "headrace_partition_high_watermark",
        "The offset below which everything is synced and served.",
        lambda log: log.high_watermark,
    ),
    ("headrace_partition_log_start", "The first offset that is still there.", lambda log: log.start_offset),
    ("headrace_partition_size_bytes", "Bytes of a partition's segments.", lambda log: log.size_bytes),
    (
        "headrace_partition_read_only",
        "1 when a failed disk made the partition read-only.",
        lambda log: int(log.failed is not None),
    ),
)


def _partition_families(broker: "Broker") -> Iterator[Family]:
    logs = [
        (_partition_labels(topic, index), log)
        for topic in broker.topics.all()
        for index, log in enumerate(topic.partitions)
    ]
    for name, text, pick in _PARTITION:
        yield Family(name, "gauge", text, [("", labels, pick(log)) for labels, log in logs[:MOST_SERIES]])
    left_out = max(0, len(logs) - MOST_SERIES)
    text = f"Partitions without series of their own, since there are more than {MOST_SERIES}."
    yield Family("headrace_partitions_left_out", "gauge", text, [("", (), left_out)])


def _partition_labels(topic: "Topic", index: int) -> Labels:
    return ("topic", topic.name), ("partition", str(index))


_GROUP: tuple[tuple[str, str, Callable[["Lag"], float | None]], ...] = (
    (
        "headrace_group_lag_records",
        "Offsets from a group's committed one to the end.",
        lambda lag: lag.records,
    ),
    (
        "headrace_group_lag_seconds",
        "Age of the oldest record batch that a group has not committed yet.",
        lambda lag: lag.seconds,
    ),
    (
        "headrace_group_retention_share",
        "Which part of retention, by bytes or age, a group has used up: at 1 it is about to fall off.",
        lambda lag: lag.share,
    ),
    (
        "headrace_group_near_retention",
        "1 while a group's share is over the topic's headrace.lag.alert.ratio.",
        lambda lag: int(lag.is_alarming),
    ),
)


def _group_families(broker: "Broker") -> Iterator[Family]:
    """Those that lag most come first, should there be too many."""
    lags = sorted(broker.lag_watch.lags, key=lambda lag: (-lag.share, -lag.records))[:MOST_SERIES]
    for name, text, pick in _GROUP:
        samples = [("", _group_labels(lag), value) for lag in lags if (value := pick(lag)) is not None]
        yield Family(name, "gauge", text, samples)


def _group_labels(lag: "Lag") -> Labels:
    group, topic, partition = lag.place
    return ("group", group), ("topic", topic), ("partition", str(partition))


def _broker_families(broker: "Broker") -> Iterator[Family]:
    memory = broker.request_memory
    gauges: tuple[tuple[str, str, float], ...] = (
        ("headrace_connections", "Connections open now.", broker.connection_count),
        (
            "headrace_request_memory_bytes",
            "Memory held by requests over 64 KiB that are being received or written.",
            memory.held_bytes,
        ),
        (
            "headrace_request_memory_limit_bytes",
            "What such requests may hold at once (request_memory_bytes).",
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
