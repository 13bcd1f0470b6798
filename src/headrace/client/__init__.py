"""How anyone reaches a log: over Kafka's protocol, ours and Kafka alike.

`Connection` says where the log is, and who one is there (`Identity`). `producer`,
`consumer` and `admin` make the clients of confluent-kafka from it, for records one by
one. `RawFetcher` brings whole record batches for a range of offsets as the bytes that
are on the log, so that they can be decoded column by column (`headrace.records.columns`). `GroupOffsets`
reads and commits the offsets of a group from outside; `declare_watermark` sends a
watermark into a stream.

Nothing here knows the broker's insides. May import `wire`, `records` and below.
"""

from headrace.client.brokers import require_log
from headrace.client.channel import Channel
from headrace.client.clients import admin, consumer, producer
from headrace.client.connection import Connection
from headrace.client.fetcher import EARLIEST, LATEST, OffsetsGone, RawFetcher, TopicLayout
from headrace.client.group_offsets import CommittedOffset, GroupOffsets
from headrace.client.identity import Identity
from headrace.client.watermarks import declare_watermark

__all__ = [
    "EARLIEST",
    "LATEST",
    "Channel",
    "CommittedOffset",
    "Connection",
    "GroupOffsets",
    "Identity",
    "OffsetsGone",
    "RawFetcher",
    "TopicLayout",
    "admin",
    "consumer",
    "declare_watermark",
    "producer",
    "require_log",
]
