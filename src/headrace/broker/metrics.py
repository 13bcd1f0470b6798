"""What a broker counts as it happens; what is measured when a scrape comes is in `gauges`.

`docs/reference/metrics.md` has a row for each metric.
"""

from collections.abc import Iterator
from typing import Any

from headrace.metrics import Counter, Family, Histogram
from headrace.wire import ErrorCode, name_of

__all__ = ["Metrics", "error_codes"]


class Metrics:
    """Everything that is counted as it happens. Event loop only, but for the histograms."""

    def __init__(self) -> None:
        self.request_seconds = Histogram(
            "headrace_request_seconds",
            "Time from the start of a request to its response, including waits of long polls and rebalances.",
            "api",
        )
        self.errors = Counter(
            "headrace_errors_total", "Error codes sent to clients, one for each in a response.",
            "api", "code",
        )  # fmt: skip
        self.sync_seconds = Histogram(
            "headrace_sync_seconds", "Time of each fsync that acknowledgements wait for."
        )
        self.connections_opened = Counter(
            "headrace_connections_opened_total", "Connections opened, including refused ones."
        )
        self.connections_closed = Counter(
            "headrace_connections_closed_total",
            "Connections closed, by reason; refused: there were too many (max_connections).",
            "reason",
        )
        self.retention_segments = Counter(
            "headrace_retention_segments_total", "Segments that retention deleted.", "topic"
        )
        self.compaction_saved = Counter(
            "headrace_compaction_saved_bytes_total", "Bytes that compaction removed.", "topic"
        )
        self.dropped = Counter(
            "headrace_dropped_records_total",
            "Records that headrace.overload dropped: the oldest unread, or the newest on arrival.",
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
            "Throttle time given to clients, by the quota or policy that caused it.",
            "reason",
        )
        self.fell_off = Counter(
            "headrace_group_fell_off_total",
            "How often records were deleted before a group had read them.",
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
            "headrace_upkeep_failures_total", "Failed runs of retention or compaction.", "topic"
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
