"""Dead letters, and what their headers say. Pure.

A dead letter is a record as it was, with headers that say where it came from and what was
wrong: `headrace.dead.…` for records that a stream could not read, `__dlq.errors.…` for those
that a queue gave up. A record that was redriven has `headrace.redriven.…` instead: where the
dead letter was, where the record was before, and who had given it up.

A dead letter has to fit its topic with the headers that were added. One that does not is
shortened: it keeps the first bytes of key and value and none of the record's own headers, and
the header `truncated` says how many bytes the record had. The whole record can be read where it
came from, and redriven.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.client.record_sizes import wire_bytes
from headrace.records import DEAD_LETTER_PREFIXES, Headers, read_headers

__all__ = [
    "DeadLetter",
    "ReasonCounts",
    "is_dead_letter_topic",
    "read_dead_letter",
    "shortened",
]

_REASONS = ("reason", "message")
_OWNERS = ("query", "group")
_TRUNCATED = "truncated"
_KEPT_BYTES = 4_096
_MOST_REASONS = 1_000
_MOST_REASON = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Where a record came from, its timestamp, and why it was given up; None for what is not known."""

    topic: str | None
    partition: int | None
    offset: int | None
    reason: str | None
    error: str | None
    owner: str | None
    timestamp_ms: int | None = None
    truncated: int | None = None  # the size of the record in bytes, if the dead letter has only its beginning
    view: str | None = None  # the view that gave it up alone, so that the record counts elsewhere

    @property
    def explanation(self) -> str:
        """Why it was given up, in one sentence: the error if it begins with the reason, or both."""
        if self.reason is None or (self.error or "").startswith(self.reason):
            return self.error or "no reason given"
        return f"{self.reason} ({self.error})" if self.error else self.reason

    @property
    def source(self) -> tuple[str, int, int] | None:
        """Topic, partition and offset, if all are there."""
        if self.topic is None or self.partition is None or self.offset is None:
            return None
        return self.topic, self.partition, self.offset

    def to_json(self) -> dict[str, Any]:
        """What it says about itself, in plain values."""
        source = None if self.source is None else dict(zip(_SOURCE, self.source, strict=True))
        return {
            "reason": self.reason,
            "error": self.error,
            "source": source,
            "owner": self.owner,
            **({} if self.truncated is None else {"truncated": self.truncated}),
            **({} if self.view is None else {"view": self.view}),
        }


_SOURCE = ("topic", "partition", "offset")


class ReasonCounts:
    """Dead letters counted by reason and source topic.

    Dead letters with the same fault have the same reason. But anyone who may write to a dead-letter
    topic can write any reason: beyond a limit, further ones are counted together.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str | None], int] = {}
        self._newest: dict[tuple[str, str | None], tuple[tuple[str, int, int], str]] = {}

    def add(self, letter: DeadLetter, topic: str, partition: int, offset: int) -> None:
        """Counts a dead letter at its position; those of a partition must come in order."""
        entry = (letter.reason or "no reason given")[:_MOST_REASON], letter.topic
        if entry not in self._counts and len(self._counts) >= _MOST_REASONS:
            entry = "other reasons", None
        self._counts[entry] = self._counts.get(entry, 0) + 1
        self._newest[entry] = (topic, partition, offset), letter.explanation[:_MOST_REASON]

    def to_json(self) -> list[dict[str, Any]]:
        """The reasons, most frequent first, each with its newest dead letter."""
        ordered = sorted(self._counts.items(), key=lambda each: (-each[1], each[0][0], each[0][1] or ""))
        return [
            {
                "reason": entry[0],
                "source": entry[1],
                "letters": count,
                "newest": dict(zip(_SOURCE, self._newest[entry][0], strict=True)),
                "example": self._newest[entry][1],
            }
            for entry, count in ordered
        ]


def read_dead_letter(headers: Iterable[tuple[str, bytes | None]]) -> DeadLetter | None:
    """The dead letter that a record is, by its headers; None if it is not one."""
    said = read_headers(headers, DEAD_LETTER_PREFIXES)
    if not said:
        return None
    return DeadLetter(
        topic=said.get("topic"),
        partition=_number(said.get("partition")),
        offset=_number(said.get("offset")),
        reason=_first(said, _REASONS),
        error=said.get("error"),
        owner=_first(said, _OWNERS),
        timestamp_ms=_number(said.get("timestamp_ms")),
        truncated=_number(said.get(_TRUNCATED)),
        view=said.get("view"),
    )


def shortened(
    key: bytes | None,
    value: bytes | None,
    own: Headers,
    about: Headers,
    *,
    prefix: str,
    most_bytes: int,
) -> tuple[bytes | None, bytes | None, Headers]:
    """Key, value and headers of a record that is set aside: whole, or shortened to `most_bytes`.

    `own` are the record's headers, `about` those that were added, which begin with `prefix`.
    """
    whole = (*own, *about)
    size = wire_bytes(key, value, whole)
    if size <= most_bytes:
        return key, value, whole
    room = max(0, min(_KEPT_BYTES, (most_bytes - wire_bytes(None, None, about)) // 4))
    truncated = (f"{prefix}{_TRUNCATED}", str(wire_bytes(key, value, own)).encode())
    return _first_bytes(key, room), _first_bytes(value, room), (*about, truncated)


def _first_bytes(text: bytes | None, most: int) -> bytes | None:
    return None if text is None else text[:most]


def is_dead_letter_topic(name: str) -> bool:
    """Whether a topic holds dead letters, by its name: `<application>.dead`, or `dlq.<queue>`."""
    return name.endswith(".dead") or name.startswith("dlq.")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() else None


def _first(said: dict[str, str], names: Iterable[str]) -> str | None:
    return next((said[name] for name in names if name in said), None)
