"""How anyone reaches a log: over Kafka's protocol, whether ours or Kafka.

`Connection` says where the log is, and how to authenticate there (`Identity`). `producer`,
`consumer` and `admin` make the clients of confluent-kafka from it, for single records.
`RawFetcher` fetches whole record batches for a range of offsets, as the bytes that are on the
log, so that they can be decoded column by column (`headrace.records.columns`). `GroupOffsets`
reads and commits the offsets of a group from outside; `declare_watermark` sends a watermark
into a stream; `headers` names every header that Headrace reads or writes.

Nothing here knows the broker's insides. May import `wire`, `records` and below.
"""

from headrace.client.connect import Channel, Connection, Identity
from headrace.client.connect.brokers import require_log
from headrace.client.connect.clients import admin, consumer, producer
from headrace.client.events import EVENTS_TOPIC, dropped_records, group_events, read_events
from headrace.client.fetcher import EARLIEST, LATEST, OffsetsGone, RawFetcher, TopicLayout
from headrace.client.groups.offsets import CommittedOffset, GroupOffsets
from headrace.client.queues import (
    DEAD_LETTER_TOPIC_CONFIG,
    describe_queue,
    list_queues,
    queue_configs,
    queue_states,
    set_queue_configs,
)
from headrace.client.record_sizes import LARGE_RECORD_CONFIGS, LARGEST_RECORD_BYTES
from headrace.client.watermarks import declare_watermark

__all__ = [
    "DEAD_LETTER_TOPIC_CONFIG",
    "EARLIEST",
    "EVENTS_TOPIC",
    "LARGEST_RECORD_BYTES",
    "LARGE_RECORD_CONFIGS",
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
    "describe_queue",
    "dropped_records",
    "group_events",
    "list_queues",
    "producer",
    "queue_configs",
    "queue_states",
    "read_events",
    "require_log",
    "set_queue_configs",
]
