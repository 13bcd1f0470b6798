"""Which segments are surplus: a pure decision."""

from collections.abc import Callable, Sequence

from headrace.storage.topic_config import TopicConfig

__all__ = ["surplus"]


def surplus(segments: Sequence[tuple[int, Callable[[], int]]], *, config: TopicConfig, now_ms: int) -> int:
    """How many of the oldest segments may go; never the last, which is being written.

    A segment is given as its size and a function telling its largest timestamp,
    which is asked only of the oldest ones. A segment without timestamps (-1)
    never expires by age; one that compaction left empty goes with the next that does.
    """
    excess = sum(size for size, _ in segments) - config.retention_bytes if config.retention_bytes >= 0 else 0
    count = 0
    for rank, (size, largest_timestamp) in enumerate(segments[:-1]):
        if not size:
            continue
        too_large = excess >= size
        if not too_large and not _expired(largest_timestamp, config.retention_ms, now_ms):
            break
        excess -= size
        count = rank + 1
    return count


def _expired(largest_timestamp: Callable[[], int], retention_ms: int, now_ms: int) -> bool:
    return retention_ms >= 0 and 0 <= largest_timestamp() < now_ms - retention_ms
