"""Process managers: functions from events to commands, each event's commands sent exactly once.

A reaction is a group of its own on the topics of events. What its function returns for a batch of
events is written in one transaction with the offsets that were read: to the topics of commands, or,
for commands that are to wait, to the topic of timers (`timers.py`). The id of a command names the
event that it follows from, so it stays the same however often it is computed.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from headrace.client import LATEST, CommittedOffset, Connection, GroupOffsets, RawFetcher, consumer
from headrace.client.connect import from_kafka
from headrace.client.topics import SILENT_LOGGER
from headrace.client.write import OutputRecord, TransactionalProducer
from headrace.errors import ConfigError, HeadraceError, RequestError
from headrace.records import Record, format_source
from headrace.sourcing.defects import told
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
_AGAIN_S, _LONGEST_PAUSE_S = 0.5, 30.0
_MOST_EVENTS = 500
_TRANSACTION_TIMEOUT_MS = 10_000

Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Send:
    """A command for an entity, now or so many seconds after the event."""

    kind: EntityType
    entity: str
    command: Any
    after_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Happened:
    """An event as reactions and projections see it."""

    entity: str
    event: Any
    version: int
    at: datetime
    by: str
    correlation: str

    @classmethod
    def of(cls, event: Event, made: Any) -> "Happened":
        """The record of an event, with `made`, the event itself."""
        at = datetime.fromtimestamp(event.at_ms / 1000, UTC)
        return cls(event.entity, made, event.version, at, event.by, event.correlation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaction:
    """A function from an event to commands, and the types of events that it is called with."""

    name: str
    function: Callable[[Happened], Any]
    events: frozenset[type]
    kinds: tuple[EntityType, ...]


def reaction_group(app: str, reaction: str) -> str:
    """The group whose offsets record the progress of a reaction."""
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
    happened = Happened.of(event, made)
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
    """Lets reactions that never ran begin at the current end: they ignore what happened before."""
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
    """A member of a reaction's group; `run` returns when `stopping` is set.

    An event that the function fails on is tried again, ever more rarely, and never skipped: the
    events behind it in its partition wait, those of other partitions do not.
    """

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
        self._stuck: dict[Place, _Stuck] = {}
        self._held: set[Place] = set()

    def run(self) -> None:
        """Reacts; after a failure of the log it joins again and continues where the log says it was."""
        while not self._stopping.is_set():
            try:
                self._react()
            except HeadraceError as error:
                self._say(f"reaction {self._reaction.name}: {error}; trying again")
                self._stopping.wait(_AGAIN_S)
        self._producer.close()

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
        self._held.clear()
        try:
            member.subscribe(list(self._kinds), on_revoke=lambda *_: self._held.clear())
            while not self._stopping.is_set():
                first: Any = member.poll(_POLL_S)
                if first is not None:
                    self._handle(member, [first, *member.consume(_MOST_EVENTS, 0)])
                self._release(member)
        finally:
            member.close()

    def _handle(self, member: Consumer, messages: Sequence[Any]) -> None:
        records: list[OutputRecord] = []
        following: dict[Place, int] = {}
        failed: dict[Place, int] = {}
        for each in messages:
            place = (each.topic(), each.partition())
            if each.error() is not None or place in failed:
                continue
            try:
                records += self._records_after(each)
            except Exception as error:  # a defect of the reaction: its event is tried again, never skipped
                failed[place] = each.offset()
                self._note_failure(each, error)
            else:
                following[place] = each.offset() + 1
        offsets = [TopicPartition(*place, at) for place, at in following.items()]
        if records:
            self._producer.write(records, offsets=(member, offsets))
        elif offsets:
            self._commit(member, offsets)
        self._note_progress(following)
        self._hold(member, failed)

    def _records_after(self, message: Any) -> list[OutputRecord]:
        topic, partition = message.topic(), message.partition()
        event = read_event_record(partition, _record(message))
        sent = commands_of(self._reaction, self._kinds[topic], topic, event, self._find_keys)
        return output_records(self._app, event, sent)

    # --- events that the reaction fails on ----------------------------------------------------

    def _note_failure(self, message: Any, error: Exception) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        last = self._stuck.get((topic, partition))
        pause_s = min(2 * last.pause_s, _LONGEST_PAUSE_S) if last and last.offset == offset else _AGAIN_S
        self._stuck[topic, partition] = _Stuck(offset, pause_s, time.monotonic() + pause_s)
        where = format_source(topic, partition, offset)
        reason = told(error, is_personal=self._kinds[topic].is_personal)
        self._say(
            f"reaction {self._reaction.name} failed on the event at {where}: {reason}; it is tried again in "
            f"{pause_s:g} s, and the events behind it wait: mend the function and start again"
        )

    def _note_progress(self, following: Mapping[Place, int]) -> None:
        for place, at in following.items():
            if place in self._stuck and at > self._stuck[place].offset:
                offset = self._stuck.pop(place).offset
                where = format_source(*place, offset)
                self._say(f"reaction {self._reaction.name} has got past the event at {where}")

    def _hold(self, member: Consumer, failed: Mapping[Place, int]) -> None:
        """Partitions with an event that failed wait for its next try, from it on; the others go on."""
        for place, offset in failed.items():
            self._explained(partial(_wait_at, member, TopicPartition(*place, offset)))
            self._held.add(place)

    def _release(self, member: Consumer) -> None:
        now = time.monotonic()
        due = [place for place in self._held if self._stuck[place].again_at <= now]
        if due:
            self._explained(lambda: member.resume([TopicPartition(*place) for place in due]))
            self._held.difference_update(due)

    def _commit(self, member: Consumer, offsets: list[TopicPartition]) -> None:
        self._explained(lambda: member.commit(offsets=offsets, asynchronous=False))

    def _explained(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except KafkaException as error:
            doing = f"the group {reaction_group(self._app, self._reaction.name)}"
            raise from_kafka(error.args[0], doing, self._connection.bootstrap_servers) from error


@dataclass(frozen=True, slots=True)
class _Stuck:
    """An event that the reaction failed on, and when it is tried again."""

    offset: int
    pause_s: float
    again_at: float


def _wait_at(member: Consumer, place: TopicPartition) -> None:
    member.pause([place])
    member.seek(place)


def _record(message: Any) -> Record:
    return Record(
        message.offset(), message.timestamp()[1], message.key(), message.value(), message.headers() or ()
    )
