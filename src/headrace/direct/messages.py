"""What receivers get of a record. Pure.

A webhook's body is `{"type", "timestamp", "data"}`, as Standard Webhooks proposes, with the
record's key and the place it came from beside it. The same record gives the same bytes.
"""

import base64
from datetime import UTC, datetime
from typing import Any

import orjson

from headrace.direct.positions import Record, Source

__all__ = ["fields_of", "time_text", "webhook_body"]

_YEAR_9999_MS = 253_402_300_799_000


def webhook_body(record: Record, source: Source) -> bytes:
    """The JSON document that is posted; JSON values go through it to the last digit."""
    data, encoding = _data(record.value)
    key, key_encoding = _text(record.key)
    body: dict[str, Any] = {
        "type": record.topic,
        "timestamp": time_text(record.timestamp_ms),
        "data": data,
        "key": key,
        "source": {"topic": source.topic, "partition": source.partition, "offset": source.offset},
    }
    named = {"data_encoding": encoding, "key_encoding": key_encoding}
    return orjson.dumps(body | {name: value for name, value in named.items() if value is not None})


def fields_of(record: Record) -> dict[str, Any]:
    """Names for a template: the fields of a JSON object, and the record's own."""
    value, key = _text(record.value)[0], _text(record.key)[0]
    own = {
        "_topic": record.topic,
        "_partition": record.partition,
        "_offset": record.offset,
        "_time": time_text(record.timestamp_ms),
        "_key": key,
        "_value": value,
    }
    try:
        parsed = orjson.loads(record.value or b"")
    except orjson.JSONDecodeError:
        parsed = None
    return {**parsed, **own} if isinstance(parsed, dict) else own


def time_text(timestamp_ms: int) -> str:
    """A moment as RFC 3339 has it."""
    moment = datetime.fromtimestamp(min(max(timestamp_ms, 0), _YEAR_9999_MS) / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _data(value: bytes | None) -> tuple[Any, str | None]:
    """JSON as it is, text as a string, anything else in base64; and the name of that encoding."""
    try:
        orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return _text(value)
    return orjson.Fragment(value or b"null"), None


def _text(value: bytes | None) -> tuple[str | None, str | None]:
    if value is None:
        return None, None
    try:
        return value.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(value).decode(), "base64"
