"""The record headers that Headrace reads and writes: their names, their values and how these are written.

| header | on | value |
|---|---|---|
| `headrace.source` | records of derived topics | the record it was made from, `topic:partition:offset` |
| `headrace.source.time` | records of derived topics | event time and watermark of that row, `µs:µs` |
| `headrace.replay` | a view's changelog | empty; a rebuild repeats a row that has not changed |
| `headrace.watermark` | any stream | a watermark declared by a producer, in ms since the epoch |
| `headrace.late.…` | late topics | why, and which window the record missed |
| `headrace.dead.…` | dead-letter topics | why a stream or a hook gave the record up, and where it came from |
| `__dlq.errors.…` | dead-letter topics of queues | the same, in the names of KIP-1191 |
| `headrace.redriven.…` | redriven records | `from` (dead letter), `source` (record), `owner` (who gave up) |
| `headrace.hook.name`, `.id` | records that a hook gave up | the hook, and the id of its message |
| `headrace.command.…` | commands for entities | name, id, sender, cause, correlation, expected version |
| `headrace.event.…` | events of entities | type, version, time, and the command behind the event |
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

__all__ = [
    "COMMAND_PREFIX",
    "DEAD_LETTER_PREFIXES",
    "EVENT_PREFIX",
    "HOOK_ID_HEADER",
    "HOOK_NAME_HEADER",
    "LATE_PREFIX",
    "QUEUE_PREFIX",
    "REDRIVEN_FROM",
    "REDRIVEN_OWNER",
    "REDRIVEN_PREFIX",
    "REDRIVEN_SOURCE",
    "REPLAY_HEADER",
    "SOURCE_HEADER",
    "STREAM_PREFIX",
    "TIME_HEADER",
    "WATERMARK_HEADER",
    "Headers",
    "SourceRecord",
    "encode_headers",
    "format_source",
    "last_header",
    "parse_source",
    "parse_source_header",
    "parse_watermark",
    "read_headers",
    "source_header",
]

SOURCE_HEADER: Final = "headrace.source"
TIME_HEADER: Final = "headrace.source.time"
REPLAY_HEADER: Final = "headrace.replay"
WATERMARK_HEADER: Final = "headrace.watermark"
LATE_PREFIX: Final = "headrace.late."
STREAM_PREFIX: Final = "headrace.dead."
QUEUE_PREFIX: Final = "__dlq.errors."
DEAD_LETTER_PREFIXES: Final = (STREAM_PREFIX, QUEUE_PREFIX)
REDRIVEN_PREFIX: Final = "headrace.redriven."
REDRIVEN_FROM: Final = "headrace.redriven.from"
REDRIVEN_SOURCE: Final = "headrace.redriven.source"
REDRIVEN_OWNER: Final = "headrace.redriven.owner"
HOOK_NAME_HEADER: Final = "headrace.hook.name"
HOOK_ID_HEADER: Final = "headrace.hook.id"
COMMAND_PREFIX: Final = "headrace.command."
EVENT_PREFIX: Final = "headrace.event."

_SOURCE = re.compile(r"([A-Za-z0-9._-]{1,249}):(\d{1,9}):(\d{1,19})(?::(\d{1,9}))?", re.ASCII)
_LAST_MS = 253_402_300_799_999  # the end of the year 9999

Headers = tuple[tuple[str, bytes | None], ...]


def encode_headers(prefix: str, values: Mapping[str, object]) -> Headers:
    """A header for each value, its name behind the prefix, its value as text."""
    return tuple((f"{prefix}{name}", str(value).encode()) for name, value in values.items())


def read_headers(
    headers: Iterable[tuple[str, bytes | None]], prefixes: str | tuple[str, ...]
) -> dict[str, str]:
    """The texts of the headers that begin with a prefix, by the rest of their names; of several, the last."""
    found: dict[str, str] = {}
    for name, value in headers:
        prefix = next((each for each in _as_tuple(prefixes) if name.startswith(each)), None)
        if prefix is not None and value is not None:
            found[name.removeprefix(prefix)] = value.decode(errors="replace")
    return found


def _as_tuple(prefixes: str | tuple[str, ...]) -> tuple[str, ...]:
    return (prefixes,) if isinstance(prefixes, str) else prefixes


def last_header(headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes | None:
    """The value of the last header of a name; None if there is none."""
    found = None
    for each, value in headers:
        if each == name:
            found = value
    return found


def format_source(topic: str, partition: int, offset: int) -> str:
    """The place of a record, as headers name it: `topic:partition:offset`."""
    return f"{topic}:{partition}:{offset}"


def parse_source(text: bytes) -> tuple[str, int, int] | None:
    """Topic, partition and offset from "topic:partition:offset"; None if it is not that."""
    topic, _, rest = text.decode(errors="replace").partition(":")
    partition, _, offset = rest.partition(":")
    if not topic or not (_is_number(partition) and _is_number(offset)):
        return None
    return topic, int(partition), int(offset)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def parse_watermark(value: bytes | None) -> int | None:
    """The value of a header in microseconds; None if it is not a whole number of milliseconds in range."""
    text = (value or b"").removeprefix(b"-")
    if not text.isdigit() or len(text) > len(str(_LAST_MS)):
        return None
    milliseconds = int(value or b"")
    return milliseconds * 1000 if abs(milliseconds) <= _LAST_MS else None


class SourceRecord(NamedTuple):
    """The record that a derived record was made from; `row` numbers several rows of one record."""

    topic: str
    partition: int
    offset: int
    row: int = 0

    def __str__(self) -> str:
        record = format_source(self.topic, self.partition, self.offset)
        return f"{record}:{self.row}" if self.row else record


def source_header(source: SourceRecord) -> tuple[str, bytes]:
    """The header `headrace.source`: `topic:partition:offset`, and `:row` from the second row on."""
    return SOURCE_HEADER, str(source).encode()


def parse_source_header(value: bytes | None) -> SourceRecord | None:
    """The source in the value of `headrace.source`; None if it is in another form."""
    found = _SOURCE.fullmatch(value.decode("ascii", "replace")) if value is not None else None
    if found is None:
        return None
    topic, *numbers = found.groups()
    return SourceRecord(topic, *(int(each) for each in numbers if each is not None))
