"""What is sent for a record, and what sends it. Pure.

A webhook's body is `{"type", "timestamp", "data"}`, as Standard Webhooks proposes, with the
record's key and the place it came from beside it. The same record gives the same bytes.
"""

import base64
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import orjson

from headrace.hooks.hook import Hook
from headrace.hooks.log.records import HookRecord, message_id
from headrace.hooks.send.outcomes import DeliveryOutcome
from headrace.records import SourceRecord

__all__ = ["Delivery", "HookSender", "record_fields", "sample_delivery", "time_text", "webhook_body"]

_YEAR_9999_MS = 253_402_300_799_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A record to be sent; its id is the same however often that is done."""

    id: str
    record: HookRecord
    source: SourceRecord


class HookSender(Protocol):
    """Sends to one target. Every attempt ends with an outcome, within a bounded time."""

    async def send(self, message: Delivery) -> DeliveryOutcome: ...

    def close(self) -> None: ...


def sample_delivery(hook: Hook, now_ms: int) -> Delivery:
    """A delivery that says it is a test; its id differs from that of any record."""
    record = HookRecord(
        topic=hook.topic,
        partition=0,
        offset=0,
        timestamp_ms=now_ms,
        key=None,
        value=orjson.dumps({"test": True, "hook": hook.name}),
    )
    source = SourceRecord(hook.topic, 0, 0)
    return Delivery(id=message_id(hook.topic, f"test at {now_ms}", source), record=record, source=source)


def webhook_body(record: HookRecord, source: SourceRecord) -> bytes:
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


def record_fields(record: HookRecord) -> dict[str, Any]:
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
