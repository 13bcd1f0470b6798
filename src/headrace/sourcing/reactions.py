"""Process managers: functions from events to commands, each event's commands sent exactly once.

A reaction is a group of its own on the topics of events. What its function returns for a batch of
events is written in one transaction with the offsets that were read: to the topics of commands, or,
for commands that are to wait, to the topic of timers (`timers.py`). The id of a command names the
event that it follows from, so it stays the same however often it is computed.
"""

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.client import LATEST, CommittedOffset, Connection, GroupOffsets, RawFetcher, consumer
from headrace.client.connect import from_kafka
from headrace.client.topics import SILENT_LOGGER
from headrace.client.write import OutputRecord, TransactionalProducer
from headrace.errors import ConfigError, HeadraceError, RequestError
from headrace.records import Record, format_source
from headrace.sourcing.entity_type import EntityType
from headrace.sourcing.records import Command, Event, Topics, read_event_record
from headrace.sourcing.sealing import FindKeys, Sealing, no_keys
from headrace.sourcing.timers import Timer, timers_topic
from headrace.sourcing.values import to_json

__all__ = [
    "Happened",
    "Reaction",
    "ReactionWorker",
    "Send",
    "commands_of",
    "reaction_group",
    "start_reactions",
]

_POLL_S = 0.2
_AGAIN_S = 0.5
_MOST_EVENTS = 500
_TRANSACTION_TIMEOUT_MS = 10_000


@dataclass(frozen=True, slots=True)
class Send:
    """A command for an entity, now or so many seconds after the event."""

    kind: EntityType
    entity: str
    command: Any
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Happened:
    """An event as a reaction sees it."""

    entity: str
    event: Any
    version: int
    at: datetime
    by: str
    correlation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """A function from an event to commands, and the types of events that it is called with."""

    name: str
    function: Callable[[Happened], Any]
    events: frozenset[type]
    kinds: tuple[EntityType, ...]


def reaction_group(app: str, reaction: str) -> str:
    """The group by which a reaction knows how far it is."""
    return f"{app}.react.{reaction}"


def commands_of(
    reaction: Reaction, kind: EntityType, topic: str, event: Event, find_keys: FindKeys = no_keys
) -> list[tuple[Send, Command]]:
    """What follows from an event. Pure, as far as the reaction is."""
    if event.type in kind.events and kind.events[event.type] not in reaction.events:
        return []
    made = kind.read_event(event.type, event.schema, Sealing(kind, find_keys).open_event(event).data)
    if type(made) not in reaction.events:
        return []
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC)
    happened = Happened(event.entity, made, event.version, at, event.by, event.correlation)
    place = format_source(topic, event.partition, event.offset)
    return [
        (
            send,
            Command(
                entity=send.entity,
                name=type(send.command).__name__,
                data=Sealing(send.kind, find_keys).seal_command(
                    send.entity, type(send.command).__name__, to_json(send.command)
                ),
                id=f"{reaction.name}:{place}:{number}",
                schema=send.kind.version_of(type(send.command).__name__),
                by=f"reaction {reaction.name}",
                cause=place,
                correlation=event.correlation,
            ),
        )
        for number, send in enumerate(_sends(reaction, reaction.function(happened)))
    ]


def _sends(reaction: Reaction, found: Any) -> Sequence[Send]:
    sends = () if found is None else (found,) if isinstance(found, Send) else tuple(found)
    for each in sends:
        if not isinstance(each, Send):
            raise ConfigError(
                f"reaction {reaction.name!r} returned a {type(each).__name__}; "
                "return what entity.command(…) makes, a list of them, or None"
            )
    return sends


def output_records(app: str, event: Event, sent: Iterable[tuple[Send, Command]]) -> list[OutputRecord]:
    """The records that send these commands, at once or by a timer. Pure."""
    records = []
    for send, command in sent:
        topic = Topics.of(app, send.kind.name).commands
        if send.after_s <= 0:
            key = command.entity.encode()
            records.append(OutputRecord(topic, key, command.value(), command.headers()))
        else:
            timer = Timer(command=command, topic=topic, due_ms=event.at_ms + int(send.after_s * 1000))
            records.append(OutputRecord(timers_topic(app), command.id.encode(), timer.value()))
    return records


def start_reactions(connection: Connection, app: str, reactions: Iterable[Reaction]) -> None:
    """Lets reactions that never ran begin at the present end: what happened before is not their business."""
    for reaction in reactions:
        group = reaction_group(app, reaction.name)
        with RawFetcher(connection) as fetcher, GroupOffsets(connection, group) as offsets:
            for kind in reaction.kinds:
                topic = Topics.of(app, kind.name).events
                ends = fetcher.offsets(topic, LATEST)
                known = offsets.fetch(topic, list(ends))
                new = {each: CommittedOffset(end) for each, end in ends.items() if each not in known}
                try:
                    offsets.commit(topic, new)
                except RequestError:  # members are at work, so another process has done this
                    return


class ReactionWorker:
    """A member of a reaction's group; `run` returns when `stopping` is set."""

    def __init__(
        self,
        connection: Connection,
        app: str,
        reaction: Reaction,
        stopping: threading.Event,
        on_message: Callable[[str], None],
        find_keys: FindKeys = no_keys,
    ) -> None:
        self._connection = connection
        self._app = app
        self._reaction = reaction
        self._kinds: Mapping[str, EntityType] = {
            Topics.of(app, each.name).events: each for each in reaction.kinds
        }
        self._stopping = stopping
        self._say = on_message
        self._find_keys = find_keys
        self._producer = TransactionalProducer(
            connection,
            f"{reaction_group(app, reaction.name)}-{uuid.uuid4().hex}",
            properties={"transaction_timeout_ms": _TRANSACTION_TIMEOUT_MS},
        )

    def run(self) -> None:
        """Reacts; after a failure it joins again and continues where the log says it was."""
        while not self._stopping.is_set():
            try:
                self._react()
            except HeadraceError as error:
                self._failed(str(error))
            except Exception as error:  # a defect of the reaction: its event is tried again, never skipped
                self._failed(f"{type(error).__name__}: {error}")
        self._producer.close()

    def _failed(self, reason: str) -> None:
        self._say(f"reaction {self._reaction.name}: {reason}; trying again")
        self._stopping.wait(_AGAIN_S)

    def _react(self) -> None:
        self._producer.take_over()
        member = consumer(
            self._connection,
            reaction_group(self._app, self._reaction.name),
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=1_000,
            fetch_error_backoff_ms=50,
            logger=SILENT_LOGGER,
        )
        try:
            member.subscribe(list(self._kinds))
            while not self._stopping.is_set():
                first: Any = member.poll(_POLL_S)
                if first is not None:
                    self._handle(member, [first, *member.consume(_MOST_EVENTS, 0)])
        finally:
            member.close()

    def _handle(self, member: Consumer, messages: Sequence[Any]) -> None:
        records: list[OutputRecord] = []
        following: dict[tuple[str, int], int] = {}
        for each in messages:
            if each.error() is not None:
                continue
            topic, partition = each.topic(), each.partition()
            event = read_event_record(partition, _record(each))
            sent = commands_of(self._reaction, self._kinds[topic], topic, event, self._find_keys)
            records += output_records(self._app, event, sent)
            following[topic, partition] = each.offset() + 1
        offsets = [TopicPartition(*place, at) for place, at in following.items()]
        if records:
            self._producer.write(records, offsets=(member, offsets))
        elif offsets:
            self._commit(member, offsets)

    def _commit(self, member: Consumer, offsets: list[TopicPartition]) -> None:
        try:
            member.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            doing = f"committing offsets of {reaction_group(self._app, self._reaction.name)}"
            raise from_kafka(error.args[0], doing, self._connection.bootstrap_servers) from error


def _record(message: Any) -> Record:
    return Record(
        message.offset(), message.timestamp()[1], message.key(), message.value(), message.headers() or ()
    )
