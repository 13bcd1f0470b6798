"""What dead letters say about themselves. Pure.

A dead letter is a record as it was, with headers that begin with a prefix and tell where
it came from and what was wrong: `headrace.dead.` for records that a stream could not
read, `__dlq.errors.` for those that a queue gave up (KIP-1191's names). A record that was
sent again has headers that begin with `headrace.redriven.` instead: where the letter was,
where the record was that the letter was made of, and who had given that up.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "PREFIXES",
    "QUEUE_PREFIX",
    "REDRIVEN_FROM",
    "REDRIVEN_OWNER",
    "REDRIVEN_PREFIX",
    "REDRIVEN_SOURCE",
    "STREAM_PREFIX",
    "Letter",
    "is_dead_letter_topic",
    "parse_place",
    "read_letter",
]

STREAM_PREFIX = "headrace.dead."
QUEUE_PREFIX = "__dlq.errors."
PREFIXES = (STREAM_PREFIX, QUEUE_PREFIX)
REDRIVEN_PREFIX = "headrace.redriven."
REDRIVEN_FROM, REDRIVEN_SOURCE, REDRIVEN_OWNER = (
    REDRIVEN_PREFIX + each for each in ("from", "source", "owner")
)
_REASONS = ("reason", "message")
_OWNERS = ("query", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """Where a record came from, of when it is, and why it is dead; None where it does not say."""

    topic: str | None
    partition: int | None
    offset: int | None
    reason: str | None
    error: str | None
    owner: str | None
    timestamp_ms: int | None = None

    @property
    def source(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset, if all are there."""
        if self.topic is None or self.partition is None or self.offset is None:
            return None
        return self.topic, self.partition, self.offset

    def to_json(self) -> dict[str, Any]:
        """The letter's own words, in plain values."""
        source = None if self.source is None else dict(zip(_SOURCE, self.source, strict=True))
        return {"reason": self.reason, "error": self.error, "source": source, "owner": self.owner}


_SOURCE = ("topic", "partition", "offset")


def read_letter(headers: Iterable[tuple[str, bytes | None]]) -> Letter | None:
    """What the headers of a record say; None if it is no dead letter."""
    said: dict[str, str] = {}
    for name, value in headers:
        prefix = next((each for each in PREFIXES if name.startswith(each)), None)
        if prefix is not None and value is not None:
            said[name.removeprefix(prefix)] = value.decode(errors="replace")
    if not said:
        return None
    return Letter(
        topic=said.get("topic"),
        partition=_number(said.get("partition")),
        offset=_number(said.get("offset")),
        reason=_first(said, _REASONS),
        error=said.get("error"),
        owner=_first(said, _OWNERS),
        timestamp_ms=_number(said.get("timestamp_ms")),
    )


def parse_place(text: bytes) -> tuple[str, int, int] | None:
    """Topic, partition and offset from "topic:partition:offset"; None if it is not that."""
    topic, _, rest = text.decode(errors="replace").partition(":")
    partition, offset = map(_number, (rest.partition(":")[0], rest.partition(":")[2]))
    return None if not topic or partition is None or offset is None else (topic, partition, offset)


def is_dead_letter_topic(name: str) -> bool:
    """By its name: `<application>.dead`, or `dlq.<queue>`."""
    return name.endswith(".dead") or name.startswith("dlq.")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _first(said: dict[str, str], names: Iterable[str]) -> str | None:
    return next((said[name] for name in names if name in said), None)
