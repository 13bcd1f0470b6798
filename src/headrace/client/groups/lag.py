"""How far a group is behind, in records and in seconds. Pure.

In records: log end minus committed offset. In seconds: the age of the oldest
record the group has not yet processed, that is now minus the timestamp of the
first record at or after the committed offset; 0 when there is none. It is
measured against now and not against the newest record, so that it keeps growing
while a consumer stands still on a topic that nobody writes to any more.
"""

from dataclasses import dataclass

from headrace.client.topics import Bounds

__all__ = ["UNKNOWN_TIME", "PartitionLag", "partition_lag", "worst_seconds"]


# Kafka's own "this record has no timestamp"; also ours for one that could not be read.
UNKNOWN_TIME = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLag:
    """One partition's lag; None where it cannot be known (nothing committed, or no timestamp)."""

    records: int | None
    seconds: float | None
    lost_records: int  # between the committed offset and a log start that has passed it


def partition_lag(
    *, committed: int | None, bounds: Bounds, oldest_unread_ms: int | None, now_ms: int
) -> PartitionLag:
    """The lag of a group in one partition.

    `oldest_unread_ms` is the timestamp of the first record at or after the
    committed offset, None when no record is there to be read (a transaction's
    marker counts as an offset but is no record), UNKNOWN_TIME when it is not known.
    """
    if committed is None:
        return PartitionLag(records=None, seconds=None, lost_records=0)
    records = max(0, bounds.end - committed)
    lost = max(0, bounds.start - committed)
    if records == 0 or oldest_unread_ms is None:
        return PartitionLag(records=records, seconds=0.0, lost_records=lost)
    # A timestamp in the future (a wrong clock) is no lag.
    seconds = max(0, now_ms - oldest_unread_ms) / 1000 if oldest_unread_ms >= 0 else None
    return PartitionLag(records=records, seconds=seconds, lost_records=lost)


def worst_seconds(lags: list[PartitionLag]) -> float | None:
    """The largest lag in seconds of several partitions; None when none is known."""
    return max((lag.seconds for lag in lags if lag.seconds is not None), default=None)
