"""The original record of a dead letter, and where it is redriven to. Pure."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import TIMESTAMP_CREATE_TIME, Message, TopicPartition

from headrace.client.deadletters.letters import DeadLetter, read_dead_letter
from headrace.client.record_sizes import wire_bytes
from headrace.records import (
    DEAD_LETTER_PREFIXES,
    REDRIVEN_FROM,
    REDRIVEN_OWNER,
    REDRIVEN_PREFIX,
    REDRIVEN_SOURCE,
    STREAM_PREFIX,
    format_source,
)

__all__ = ["bytes_of", "is_shortened", "limit_bytes", "origin_of", "restored_record", "retention_ms"]


def origin_of(message: Message, queue: str | None) -> TopicPartition | None:
    """Where a dead letter came from; None if it does not say, belongs to another queue, or to one view."""
    letter = read_dead_letter(_headers(message))
    if letter is None or letter.source is None or queue not in (None, letter.owner):
        return None
    if letter.view is not None:  # of the others that read the record it would count twice
        return None
    return TopicPartition(*letter.source)


def is_shortened(message: Message) -> bool:
    """Whether a dead letter has only the beginning of its record."""
    letter = read_dead_letter(_headers(message))
    return letter is not None and letter.truncated is not None


def bytes_of(message: Message) -> int:
    """The size of a dead letter, or of its record if that has to be read."""
    letter = read_dead_letter(_headers(message))
    own = wire_bytes(message.key(), message.value(), _headers(message))
    return max(own, letter.truncated or 0 if letter is not None else 0)


def restored_record(
    message: Message, source: TopicPartition, original: Message | None = None
) -> dict[str, Any]:
    """The record as it was, with headers that name the dead letter, the record's source and its owner.

    `original` is the record itself, if the dead letter has only its beginning.
    """
    whole = message if original is None else original
    headers, letter = _headers(whole), read_dead_letter(_headers(message))
    assert letter is not None
    dropped = (*DEAD_LETTER_PREFIXES, REDRIVEN_PREFIX) if original is None else (REDRIVEN_PREFIX,)
    kept = [header for header in headers if not header[0].startswith(dropped)]
    about = {
        REDRIVEN_FROM: format_source(message.topic() or "", message.partition() or 0, message.offset() or 0),
        REDRIVEN_SOURCE: format_source(source.topic, source.partition, source.offset),
        **({REDRIVEN_OWNER: letter.owner} if letter.owner is not None else {}),
    }
    restored: dict[str, Any] = {
        "topic": source.topic,
        "partition": source.partition,
        "key": whole.key(),
        "value": whole.value(),
        "headers": [*kept, *((name, text.encode()) for name, text in about.items())],
    }
    timestamp_ms = _timestamp_ms(message, letter)
    return restored if timestamp_ms is None else {**restored, "timestamp": timestamp_ms}


def _timestamp_ms(message: Message, letter: DeadLetter) -> int | None:
    """The record's timestamp: in a header, or that of a stream's dead letter itself; None if unknown."""
    if letter.timestamp_ms is not None:
        return letter.timestamp_ms
    kind, timestamp_ms = message.timestamp()
    of_stream = any(name.startswith(STREAM_PREFIX) for name, _ in _headers(message))
    return timestamp_ms if of_stream and kind == TIMESTAMP_CREATE_TIME else None


def retention_ms(configs: Mapping[str, Any]) -> int:
    """How long a topic keeps records; -1 for ever, or if that is not known."""
    policy, kept = configs.get("cleanup.policy"), configs.get("retention.ms")
    if policy is None or kept is None or "delete" not in str(policy.value):
        return -1
    return int(str(kept.value))


def limit_bytes(configs: Mapping[str, Any]) -> int | None:
    """The largest record batch that a topic takes; None if that is not known."""
    limit = configs.get("max.message.bytes")
    return None if limit is None else int(str(limit.value))


def _headers(message: Message) -> list[tuple[str, bytes | None]]:
    headers: Any = message.headers() or []
    return list(headers)
