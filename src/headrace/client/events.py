"""Events that a Headrace broker recorded: drops, and groups that fell behind too far.

They are records of an internal topic, so that no other way to the broker is
needed; a Kafka cluster has no such topic, and no events.
"""

import json
from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from headrace.client.connect import explained, from_kafka
from headrace.client.topics import ANSWER_TIMEOUT_S, Log

__all__ = ["EVENTS_TOPIC", "dropped_records", "group_events", "read_events"]

EVENTS_TOPIC = "__headrace_events"
BrokerEvent = dict[str, Any]


def read_events(log: Log, new_reader: Callable[[], Consumer]) -> list[BrokerEvent]:
    """Every event that is still kept, oldest first; records that are no events are passed over.

    `new_reader` makes a consumer that joins no group.
    """
    if EVENTS_TOPIC not in log.cluster().topics:
        return []
    place = EVENTS_TOPIC, 0
    bounds = log.bounds([place])[place]
    if bounds.start == bounds.end:
        return []
    consumer = new_reader()
    try:
        with explained("reading events", log.bootstrap):
            consumer.assign([TopicPartition(EVENTS_TOPIC, 0, bounds.start)])
            return list(_events(consumer, bounds.end, log.bootstrap))
    finally:
        consumer.close()


def _events(consumer: Consumer, end: int, bootstrap: str) -> Iterable[BrokerEvent]:
    position = -1
    while position < end:
        message = consumer.poll(ANSWER_TIMEOUT_S)
        if message is None:
            return
        error = message.error()
        if error is not None:
            if error.code() in (KafkaError._PARTITION_EOF, KafkaError.TOPIC_AUTHORIZATION_FAILED):
                return  # all is read, or nothing may be
            raise from_kafka(error, "reading events", bootstrap)
        position = (message.offset() or 0) + 1
        try:
            event = json.loads(message.value() or b"")
        except ValueError:
            continue
        if isinstance(event, dict) and "kind" in event:
            yield event


def group_events(events: Iterable[BrokerEvent], group: str) -> list[BrokerEvent]:
    """Those about one group, oldest first."""
    return [event for event in events if event.get("group") == group]


def dropped_records(events: Iterable[BrokerEvent], topic: str) -> dict[str, int]:
    """How many records of a topic an overload cost, the oldest and the newest, by these events."""
    dropped = {"oldest": 0, "newest": 0}
    for event in events:
        which = str(event["kind"]).removeprefix("dropped-")
        if event.get("topic") == topic and which in dropped:
            dropped[which] += int(event.get("records", 0))
    return dropped
