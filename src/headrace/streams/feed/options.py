"""What a feed is given: a log, limits, and its heartbeat."""

from dataclasses import dataclass, field

from headrace.client import Connection
from headrace.streams.feed.positions import Heartbeat

__all__ = ["FeedOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedOptions:
    """From which log a feed reads, how much at once, and how often it runs an empty batch.

    The limits are those of the plain source's options; 0 means none.
    """

    connection: Connection = field(default_factory=Connection)
    max_records_per_batch: int = 1_000_000
    max_bytes_per_batch: int = 256 << 20
    max_fetch_bytes: int = 8 << 20
    heartbeat: Heartbeat | None = None
