"""Commands, events, answers and snapshots as records of topics, and back. Pure.

| topic | key | value | headers |
|---|---|---|---|
| `APP.TYPE.commands` | entity | the command's fields | `headrace.command.…` |
| `APP.TYPE.events` | entity | entity, version, type, at, by, command, data | `headrace.event.…` |
| `APP.TYPE.answers` | command id | what became of a command, and its offset | none |
| `APP.TYPE.snapshots` | entity | version, state, and the code it fits | none |

Partition n of each belongs together: the key decides as in Kafka's own clients (murmur2), and
only the owner of the partition of commands writes the other three.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

import orjson

from headrace.errors import RequestError
from headrace.records import (
    COMMAND_PREFIX,
    EVENT_PREFIX,
    Headers,
    Record,
    encode_headers,
    format_source,
    read_headers,
)

__all__ = [
    "CHECKPOINT_KEY",
    "Answer",
    "Checkpoint",
    "Command",
    "Event",
    "EventData",
    "Outcome",
    "Topics",
    "format_time",
    "read_command_record",
    "read_event_record",
    "snapshot_value",
    "token_of",
]

Outcome = Literal["accepted", "rejected", "conflict"]
CHECKPOINT_KEY = b"\x00checkpoint"


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of one entity type of an application."""

    commands: str
    events: str
    answers: str
    snapshots: str

    @classmethod
    def of(cls, app: str, entity_type: str) -> "Topics":
        base = f"{app}.{entity_type}"
        return cls(f"{base}.commands", f"{base}.events", f"{base}.answers", f"{base}.snapshots")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command on its way: for which entity, what, and who sent it why."""

    entity: str
    name: str
    data: Any
    id: str
    schema: int = 1
    by: str = ""
    at_ms: int = 0
    cause: str = ""
    correlation: str = ""
    expected: int | None = None
    offset: int = -1

    def headers(self) -> Headers:
        given: dict[str, object] = {"name": self.name, "id": self.id, "schema": self.schema}
        given |= {"by": self.by, "cause": self.cause, "correlation": self.correlation}
        if self.expected is not None:
            given["expected"] = self.expected
        return encode_headers(COMMAND_PREFIX, {name: each for name, each in given.items() if each != ""})

    def value(self) -> bytes:
        return orjson.dumps(self.data)


def read_command_record(topic: str, partition: int, record: Record) -> Command:
    """A command from any Kafka client: key, value and the header `headrace.command.name` suffice.

    Raises RequestError if it is none; without an id its place on the log is its id.
    """
    found = read_headers(record.headers, COMMAND_PREFIX)
    try:
        name, entity = found["name"], (record.key or b"").decode()
        if not entity:
            raise RequestError("the record has no key; the key of a command is its entity")
        expected = found.get("expected")
        return Command(
            entity=entity,
            name=name,
            data=orjson.loads(record.value or b"{}"),
            id=found.get("id") or format_source(topic, partition, record.offset),
            schema=int(found.get("schema", 1)),
            by=found.get("by", ""),
            at_ms=record.timestamp_ms,
            cause=found.get("cause", ""),
            correlation=found.get("correlation", ""),
            expected=None if expected is None else int(expected),
            offset=record.offset,
        )
    except KeyError:
        raise RequestError(f"the record has no header {COMMAND_PREFIX}name") from None
    except ValueError as error:  # JSON, numbers or text
        raise RequestError(f"the record is not a command: {error}") from None


@dataclass(frozen=True, slots=True)
class EventData:
    """An event as an answer shows it."""

    type: str
    version: int
    data: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event as it is kept: its place in the entity's history, and the command behind it."""

    entity: str
    version: int
    type: str
    data: Any
    at_ms: int
    schema: int = 1
    by: str = ""
    command: str = ""
    command_name: str = ""
    cause: str = ""
    correlation: str = ""
    partition: int = -1
    offset: int = -1

    def headers(self) -> Headers:
        given: dict[str, object] = {
            "type": self.type,
            "schema": self.schema,
            "version": self.version,
            "command": self.command,
            "command_name": self.command_name,
            "at": self.at_ms,
            "by": self.by,
            "cause": self.cause,
            "correlation": self.correlation,
        }
        return encode_headers(EVENT_PREFIX, {name: each for name, each in given.items() if each != ""})

    def value(self) -> bytes:
        return orjson.dumps(
            {
                "entity": self.entity,
                "version": self.version,
                "type": self.type,
                "at": format_time(self.at_ms),
                "by": self.by or None,
                "command": self.command,
                "data": self.data,
            }
        )

    def to_json(self) -> dict[str, Any]:
        """For people and programs that ask for the history."""
        return {
            "version": self.version,
            "type": self.type,
            "data": self.data,
            "at": format_time(self.at_ms),
            "by": self.by or None,
            "command": {"id": self.command, "name": self.command_name},
            "cause": self.cause or None,
            "correlation": self.correlation or None,
            "partition": self.partition,
            "offset": self.offset,
        }


def read_event_record(partition: int, record: Record) -> Event:
    """An event from its record; raises RequestError if it was not written by an owner."""
    found = read_headers(record.headers, EVENT_PREFIX)
    try:
        return Event(
            entity=(record.key or b"").decode(),
            version=int(found["version"]),
            type=found["type"],
            data=orjson.loads(record.value or b"null")["data"],
            at_ms=int(found["at"]),
            schema=int(found.get("schema", 1)),
            by=found.get("by", ""),
            command=found.get("command", ""),
            command_name=found.get("command_name", ""),
            cause=found.get("cause", ""),
            correlation=found.get("correlation", ""),
            partition=partition,
            offset=record.offset,
        )
    except (KeyError, ValueError, TypeError) as error:
        raise RequestError(
            f"the record at offset {record.offset} of partition {partition} is not an event ({error!r}); "
            "only `headrace serve` writes to a topic of events"
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a command.

    `version` is the entity's, afterwards; `events` are those of an accepted command, and its
    `token` lets a read of a view wait for them. `rule` and `message` say why it was rejected.
    A command that was sent again gets its first answer, `repeated`.
    """

    command: str
    entity: str
    outcome: Outcome
    version: int
    events: tuple[EventData, ...] = ()
    token: str | None = None
    rule: str | None = None
    message: str | None = None
    repeated: bool = False
    offset: int = field(default=-1, repr=False)

    @property
    def accepted(self) -> bool:
        return self.outcome == "accepted"

    def to_json(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "entity": self.entity,
            "outcome": self.outcome,
            "version": self.version,
            "events": [
                {"type": each.type, "version": each.version, "data": each.data} for each in self.events
            ],
            "token": self.token,
            "rule": self.rule,
            "message": self.message,
            "repeated": self.repeated,
        }

    def value(self) -> bytes:
        return orjson.dumps({**self.to_json(), "offset": self.offset})

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> "Answer":
        events = tuple(EventData(**each) for each in found["events"])
        return cls(**{**found, "events": events})

    @classmethod
    def from_value(cls, value: bytes) -> "Answer":
        return cls.from_json(orjson.loads(value))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Up to which offsets the snapshots of a partition go: of its events, and of its commands."""

    events: int
    commands: int
    fits: str

    def value(self) -> bytes:
        return orjson.dumps({"events": self.events, "commands": self.commands, "fits": self.fits})

    @classmethod
    def from_value(cls, value: bytes) -> "Checkpoint":
        return cls(**orjson.loads(value))


def snapshot_value(version: int, state: Any, fits: str) -> bytes:
    """A snapshot of one entity."""
    return orjson.dumps({"version": version, "state": state, "fits": fits})


def token_of(topic: str, partition: int, next_offset: int) -> str:
    """The token of a write, as reads of views take it: base64url of `{topic: {partition: next}}`."""
    plain = orjson.dumps({topic: {str(partition): next_offset}})
    return base64.urlsafe_b64encode(plain).decode().rstrip("=")


@lru_cache(maxsize=16)
def format_time(at_ms: int) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    return f"{datetime.fromtimestamp(at_ms // 1000, UTC):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
