"""Topics: listed, described, created and changed; offsets and positions in them."""

from headrace.client.topics.broker_requests import named_configs, partition_sizes
from headrace.client.topics.changes import add_partitions, alter_configs, create_topic, delete_topic
from headrace.client.topics.ensure import (
    KEEP_ALL,
    SILENT_LOGGER,
    TopicSettings,
    drop_topic,
    ensure_topics,
    topic_names,
)
from headrace.client.topics.log import ANSWER_TIMEOUT_S, FIRST_ANSWER_TIMEOUT_S, Log, PartitionKey, kafka
from headrace.client.topics.positions import Bounds, Position, PositionKind
from headrace.client.topics.record_counts import CountLimits, RecordCount, RecordCounter
from headrace.client.topics.summaries import topic_description, topic_summaries, total_count, total_size

__all__ = [
    "ANSWER_TIMEOUT_S",
    "FIRST_ANSWER_TIMEOUT_S",
    "KEEP_ALL",
    "SILENT_LOGGER",
    "Bounds",
    "CountLimits",
    "Log",
    "PartitionKey",
    "Position",
    "PositionKind",
    "RecordCount",
    "RecordCounter",
    "TopicSettings",
    "add_partitions",
    "alter_configs",
    "create_topic",
    "delete_topic",
    "drop_topic",
    "ensure_topics",
    "kafka",
    "named_configs",
    "partition_sizes",
    "topic_description",
    "topic_names",
    "topic_summaries",
    "total_count",
    "total_size",
]
