"""A dead letter as the record that it was, and where that goes. Pure."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message, TopicPartition

from headrace.client.dead_letters import (
    PREFIXES,
    REDRIVEN_FROM,
    REDRIVEN_OWNER,
    REDRIVEN_PREFIX,
    REDRIVEN_SOURCE,
    STREAM_PREFIX,
    Letter,
    read_letter,
)

__all__ = ["record_again", "retention_ms", "source_of"]


def source_of(message: Message, queue: str | None) -> TopicPartition | None:
    """Where a dead letter came from; None if it does not say, or is not of the queue that is named."""
    letter = read_letter(_headers(message))
    if letter is None or letter.source is None or queue not in (None, letter.owner):
        return None
    return TopicPartition(*letter.source)


def record_again(message: Message, source: TopicPartition) -> dict[str, Any]:
    """The record as it was, where it was meanwhile, and where it was before that, with whose word."""
    headers, letter = _headers(message), read_letter(_headers(message))
    assert letter is not None
    kept = [header for header in headers if not header[0].startswith((*PREFIXES, REDRIVEN_PREFIX))]
    about = {
        REDRIVEN_FROM: f"{message.topic()}:{message.partition()}:{message.offset()}",
        REDRIVEN_SOURCE: f"{source.topic}:{source.partition}:{source.offset}",
        **({REDRIVEN_OWNER: letter.owner} if letter.owner is not None else {}),
    }
    again: dict[str, Any] = {
        "topic": source.topic,
        "partition": source.partition,
        "key": message.key(),
        "value": message.value(),
        "headers": [*kept, *((name, text.encode()) for name, text in about.items())],
    }
    timestamp_ms = _own_time(message, letter)
    return again if timestamp_ms is None else {**again, "timestamp": timestamp_ms}


def _own_time(message: Message, letter: Letter) -> int | None:
    """The record's time: as the letter says, or that of a stream's letter itself; None if nobody knows."""
    if letter.timestamp_ms is not None:
        return letter.timestamp_ms
    kind, timestamp_ms = message.timestamp()
    of_stream = any(name.startswith(STREAM_PREFIX) for name, _ in _headers(message))
    return timestamp_ms if of_stream and kind == TIMESTAMP_CREATE_TIME else None


def retention_ms(configs: Mapping[str, Any]) -> int:
    """For how long a topic keeps records; -1 for ever, or where that is not known."""
    policy, kept = configs.get("cleanup.policy"), configs.get("retention.ms")
    if policy is None or kept is None or "delete" not in str(policy.value):
        return -1
    return int(str(kept.value))


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers() or []
    return list(headers)
