"""Records as lines: what `produce` reads and what `tail --json` writes.

The JSON form is one object a line and loses nothing, so what `tail --json`
prints, `produce --json-lines` sends again byte for byte:

    {"key": "k", "value": "v", "headers": [{"key": "h", "value": "x"}],
     "timestamp_ms": 1763241600000, "partition": 0}

Text stands for its UTF-8; bytes that are not UTF-8 stand as hex, marked by
`key_encoding`, `value_encoding` or a header's `encoding`. Pure.
"""

import json
from dataclasses import dataclass
from typing import Any

from headrace.cli.terminal import decode_payload, encode_payload, format_time
from headrace.errors import RequestError
from headrace.records import Headers

__all__ = ["InputRecord", "ReadRecord", "parse_json_line", "parse_text_line", "record_to_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecord:
    """One record to send; None leaves partition and timestamp to the producer."""

    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRecord:
    """One record as read from a partition; a timestamp of -1 means it has none."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: Headers


def parse_text_line(line: bytes, key_separator: bytes | None) -> InputRecord:
    """A line as a value, or split at the first separator into key and value."""
    if key_separator is None:
        return InputRecord(value=line)
    key, found, value = line.partition(key_separator)
    if not found:
        raise RequestError(f"the line has no key separator {key_separator.decode(errors='replace')!r}")
    return InputRecord(key=key, value=value)


FIELDS = {"key", "key_encoding", "value", "value_encoding", "headers", "timestamp_ms", "partition"}
# Written by `tail --json`, of no meaning to a producer.
IGNORED = {"topic", "offset", "timestamp", "timestamp_type"}


def parse_json_line(line: bytes) -> InputRecord:
    """A JSON object as a record; a value that is no string is sent as its JSON text.

    Raises RequestError naming the field at fault; an unknown field is one,
    since a misspelt `value` must not become a null.
    """
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"not valid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise RequestError('not a JSON object; write {"key": …, "value": …}')
    if unknown := sorted(fields.keys() - FIELDS - IGNORED):
        raise RequestError(f"unknown field {unknown[0]!r}; the fields are {', '.join(sorted(FIELDS))}")
    return InputRecord(
        key=_payload("key", fields.get("key"), fields.get("key_encoding")),
        value=_payload("value", fields.get("value"), fields.get("value_encoding")),
        headers=_headers(fields.get("headers")),
        timestamp_ms=_timestamp(fields.get("timestamp_ms")),
        partition=_number("partition", fields.get("partition")),
    )


def _payload(name: str, given: Any, encoding: Any) -> bytes | None:
    if given is None:
        return None
    try:
        text = (
            given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, separators=(",", ":"))
        )
        return decode_payload(text, "text" if encoding is None else encoding)
    except (ValueError, TypeError, RecursionError) as error:
        raise RequestError(f"{name}: {error}") from None


def _number(name: str, given: Any) -> int | None:
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise RequestError(f"{name}: {given!r} is not a non-negative integer")
    return given


def _timestamp(given: Any) -> int | None:
    if given == -1:
        return None
    timestamp_ms = _number("timestamp_ms", given)
    if timestamp_ms == 0:
        # The client library would silently stamp the record with the time of day.
        raise RequestError("timestamp_ms: 0 cannot be sent; use 1 or more, or omit it")
    return timestamp_ms


def _headers(given: Any) -> Headers:
    if given is None:
        return ()
    if isinstance(given, dict):
        given = [{"key": key, "value": value} for key, value in given.items()]
    if not isinstance(given, list):
        raise RequestError('headers: write an object, or a list of {"key": …, "value": …}')
    return tuple(_header(header) for header in given)


def _header(given: Any) -> tuple[str, bytes | None]:
    if not isinstance(given, dict) or not isinstance(given.get("key"), str):
        raise RequestError(f'headers: {given!r} has no key; write {{"key": …, "value": …}}')
    return given["key"], _payload(f"header {given['key']}", given.get("value"), given.get("encoding"))


def record_to_json(record: ReadRecord) -> dict[str, Any]:
    """The documented JSON form of a record that was read."""
    key, key_encoding = encode_payload(record.key)
    value, value_encoding = encode_payload(record.value)
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "timestamp": format_time(record.timestamp_ms) if record.timestamp_ms >= 0 else None,
        "timestamp_type": record.timestamp_type,
        "key": key,
        "key_encoding": key_encoding,
        "value": value,
        "value_encoding": value_encoding,
        "headers": [_header_to_json(name, payload) for name, payload in record.headers],
    }


def _header_to_json(name: str, payload: bytes | None) -> dict[str, Any]:
    value, encoding = encode_payload(payload)
    return {"key": name, "value": value, "encoding": encoding}
