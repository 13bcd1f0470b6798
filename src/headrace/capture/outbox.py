"""Rows of an outbox as events: the topic by `aggregatetype`, the key by `aggregateid`. Pure.

As Debezium's event router does it: a row that is inserted is an event; updates and deletes of rows
mean nothing, so an application may delete a row as soon as it has written it.
"""

from typing import Any

import orjson

from headrace.capture.change import Change
from headrace.client.write import OutputRecord
from headrace.errors import RequestError

__all__ = ["EVENT_TOPIC", "event_of"]

EVENT_TOPIC = "outbox.event."
_COLUMNS = ("id", "aggregatetype", "aggregateid", "type", "payload")


def event_of(change: Change, at_ms: int) -> OutputRecord | None:
    """The event of a row, None where the change is none; raises RequestError if columns are missing."""
    if change.op not in ("c", "r") or change.after is None:
        return None
    row = orjson.loads(change.after)
    missing = [each for each in _COLUMNS if each not in row]
    if missing:
        raise RequestError(
            f"{change.table} is no outbox: it lacks {', '.join(missing)}; an outbox has the columns "
            f"{', '.join(_COLUMNS)}"
        )
    topic = EVENT_TOPIC + "".join(
        each if each.isascii() and (each.isalnum() or each in "._-") else "_"
        for each in str(row["aggregatetype"])
    )
    headers = (("id", _text(row["id"])), ("eventType", _text(row["type"])))
    return OutputRecord(topic, _text(row["aggregateid"]), _payload(row["payload"]), headers, None, at_ms)


def _text(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def _payload(value: Any) -> bytes | None:
    """Text as it is; what the database has as JSON, as JSON; NULL is a tombstone."""
    return None if value is None else _text(value)
