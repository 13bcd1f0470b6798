"""How anyone reaches a log: over Kafka's protocol, ours and Kafka alike.

`Connection` says where the log is. `producer`, `consumer` and `admin` make the
clients of confluent-kafka from it, for records one by one. `RawFetcher` brings
whole record batches for a range of offsets as the bytes that are on the log, so
that they can be decoded column by column (`headrace.records.columns`).

Nothing here knows the broker's insides. May import `wire`, `records` and below.
"""

from headrace.client.channel import Channel
from headrace.client.clients import admin, consumer, producer
from headrace.client.connection import Connection
from headrace.client.fetcher import EARLIEST, LATEST, RawFetcher, TopicLayout

__all__ = [
    "EARLIEST",
    "LATEST",
    "Channel",
    "Connection",
    "RawFetcher",
    "TopicLayout",
    "admin",
    "consumer",
    "producer",
]
