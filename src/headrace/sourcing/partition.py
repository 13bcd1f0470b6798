"""One partition of an entity type: what its commands lead to. No I/O.

The owner of a partition keeps the state of its entities here. `decide` takes the commands that
wait and returns everything to write in one transaction; the state here is then that after the
transaction. If it fails, the owner reads the partition again from the log (`restore`).
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

from headrace.errors import RequestError, RetriableError
from headrace.sourcing.defects import told
from headrace.sourcing.entity_type import EntityType, Rejected
from headrace.sourcing.records import (
    Answer,
    Checkpoint,
    Command,
    Event,
    EventData,
    Topics,
    snapshot_value,
    token_of,
)
from headrace.sourcing.sealing import FindKeys, Sealing, no_keys

__all__ = ["Decided", "EntityPartition", "EntityState", "Unreadable"]


@dataclass(slots=True)
class EntityState:
    """An entity now: its state after `version` events."""

    state: Any
    version: int = 0


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record on the topic of commands that cannot be carried out, and why.

    With an `id` somebody may wait for an answer.
    """

    offset: int
    reason: str
    rule: str = "invalid-command"
    entity: str = ""
    id: str = ""


class _Failed(Exception):  # noqa: N818 - what has happened
    """A defect of the application, and not a rule of it, ended a command."""


@dataclass(frozen=True, slots=True)
class Decided:
    """What to write in one transaction, and what to say of commands that failed by a defect."""

    events: Sequence[Event]
    answers: Sequence[Answer]
    failures: Sequence[str] = ()


@dataclass(slots=True)
class EntityPartition:
    """The entities of one partition, and the answers to its last commands.

    `partitions` is how many there are, `next_event` the offset of the next event, `next_command` that
    of the next command to take.
    """

    kind: EntityType
    topics: Topics
    partition: int
    partitions: int = 1
    next_event: int = 0
    next_command: int = 0
    entities: dict[str, EntityState] = field(default_factory=dict)
    changed: set[str] = field(default_factory=set)
    events_since_checkpoint: int = 0
    sealing: Sealing = field(init=False)
    find_keys: InitVar[FindKeys] = no_keys
    _answers: OrderedDict[tuple[str, str], bytes] = field(default_factory=OrderedDict)  # as they are written
    _checkpoint: Checkpoint | None = None  # the one whose snapshots are being written,
    _unsaved: list[str] = field(default_factory=list)  # and the entities whose snapshots it still lacks

    def __post_init__(self, find_keys: FindKeys) -> None:
        self.sealing = Sealing(self.kind, find_keys)

    # --- deciding -----------------------------------------------------------------------------

    def decide(self, commands: Iterable[Command | Unreadable], now_ms: int) -> Decided:
        """What becomes of these commands, one after the other."""
        events: list[Event] = []
        answers: list[Answer] = []
        failures: list[str] = []
        for command in commands:
            self.next_command = max(self.next_command, command.offset + 1)
            if isinstance(command, Unreadable):
                if command.id:
                    answers.append(self._unreadable(command))
                continue
            try:
                answer, written = self._decide(command, now_ms)
            except _Failed as failure:
                failures.append(str(failure))
                answer, written = self._failed(command), ()
            events += written
            answers.append(answer)
        return Decided(events, answers, failures)

    def _decide(self, command: Command, now_ms: int) -> tuple[Answer, Sequence[Event]]:
        first = self._first_answer(command.entity, command.id, command.offset)
        if first is not None:
            return first, ()
        entity = self.entities.get(command.entity) or EntityState(self.kind.initial)
        try:
            if command.expected is not None and command.expected != entity.version:
                answer = self._conflict(command, entity)
                written: Sequence[Event] = ()
            else:
                written, after = self._accept(command, entity, now_ms)
                answer = self._accepted(command, written, after)
        except Rejected as reason:
            answer, written = self._rejected(command, entity, reason.rule, str(reason)), ()
        self.remember(answer)
        return answer, written

    def _accept(
        self, command: Command, entity: EntityState, now_ms: int
    ) -> tuple[Sequence[Event], EntityState]:
        """The events of a command, whose entity is then as they leave it; raises Rejected."""
        data = self._opened(command)
        try:
            given = self._given(command, data)
            made = [
                (type(each).__name__, *self.kind.kept(each))
                for each in self.kind.events_of(given, entity.state)
            ]
            state = self.kind.state_after([each for _, _, each in made], entity.state)
        except Rejected:
            raise
        except (Exception, SystemExit) as error:  # a defect of the application must not stop its partition
            raise _Failed(self._reason(command, error)) from error
        try:
            written = [
                self._event(
                    command, entity.version + number + 1, self.next_event + number, name, data, now_ms
                )
                for number, (name, data, _) in enumerate(made)
            ]
        except RetriableError:  # of the keys
            raise
        except Exception as error:  # a personal value that cannot be sealed
            raise _Failed(self._reason(command, error)) from error
        after = EntityState(state, entity.version + len(written))
        if written:
            self.entities[command.entity] = after
            self.changed.add(command.entity)
            self.events_since_checkpoint += len(written)
            self.next_event += len(written)
        return written, after

    def _opened(self, command: Command) -> Any:
        try:
            return self.sealing.open_command(command.entity, command.name, command.schema, command.data)
        except RequestError as error:
            raise Rejected("invalid-command", str(error)) from error

    def _given(self, command: Command, data: Any) -> Any:
        try:
            return self.kind.read_command(command.name, command.schema, data)
        except RequestError as error:
            raise Rejected("invalid-command", str(error)) from error

    def _event(self, command: Command, version: int, offset: int, name: str, data: Any, now_ms: int) -> Event:
        return Event(
            entity=command.entity,
            version=version,
            type=name,
            data=self.sealing.seal_event(command.entity, name, data),
            at_ms=now_ms,
            schema=self.kind.version_of(name),
            by=command.by,
            command=command.id,
            command_name=command.name,
            cause=command.cause,
            correlation=command.correlation or command.id,
            partition=self.partition,
            offset=offset,
        )

    def _accepted(self, command: Command, written: Sequence[Event], after: EntityState) -> Answer:
        return Answer(
            command=command.id,
            entity=command.entity,
            outcome="accepted",
            version=after.version,
            events=tuple(EventData(each.type, each.version, each.data) for each in written),
            token=token_of(self.topics.events, self.partition, self.next_event),
            offset=command.offset,
        )

    def _rejected(self, command: Command, entity: EntityState, rule: str, message: str) -> Answer:
        return Answer(
            command=command.id,
            entity=command.entity,
            outcome="rejected",
            version=entity.version,
            rule=_writable(rule),
            message=self.sealing.seal_message(command.entity, _writable(message)),
            offset=command.offset,
        )

    def _failed(self, command: Command) -> Answer:
        """Those who sent the command cannot do anything about the defect, and are not told of the code."""
        entity = self.entities.get(command.entity) or EntityState(self.kind.initial)
        message = f"{command.name} failed; the messages of the server say why, under its id {command.id}"
        answer = self._rejected(command, entity, "error", message)
        self.remember(answer)
        return answer

    def _reason(self, command: Command, error: BaseException) -> str:
        reason = told(error, is_personal=self.kind.is_personal)
        return f"command {command.id} ({command.name}) failed: {reason}"

    def _unreadable(self, record: Unreadable) -> Answer:
        first = self._first_answer(record.entity, record.id, record.offset)
        if first is not None:
            return first
        entity = self.entities.get(record.entity) or EntityState(self.kind.initial)
        answer = Answer(
            command=record.id,
            entity=record.entity,
            outcome="rejected",
            version=entity.version,
            rule=record.rule,
            message=_writable(record.reason),
            offset=record.offset,
        )
        self.remember(answer)
        return answer

    def _first_answer(self, entity: str, command: str, offset: int) -> Answer | None:
        """What a command was answered before, for its record at this offset; None if it is new."""
        found = self._answers.get((entity, command))
        return None if found is None else replace(Answer.from_value(found), repeated=True, offset=offset)

    def refuse(self, command: Command, rule: str, message: str) -> Answer:
        """The answer to a command that cannot be carried out for a reason of the log's."""
        entity = self.entities.get(command.entity) or EntityState(self.kind.initial)
        answer = self._rejected(command, entity, rule, message)
        self.remember(answer)
        return answer

    def _conflict(self, command: Command, entity: EntityState) -> Answer:
        return Answer(
            command=command.id,
            entity=command.entity,
            outcome="conflict",
            version=entity.version,
            message=f"version {command.expected} was expected, and the entity is at {entity.version}",
            offset=command.offset,
        )

    # --- restoring ----------------------------------------------------------------------------

    def remember(self, answer: Answer) -> None:
        """Keeps an answer for when its command comes again; the oldest goes."""
        self.next_command = max(self.next_command, answer.offset + 1)
        place = (answer.entity, answer.command)
        if place not in self._answers:
            self._answers[place] = bytes(memoryview(answer.value()))  # orjson's own takes kilobytes more
        while len(self._answers) > self.kind.remember:
            self._answers.popitem(last=False)

    def apply(self, event: Event) -> None:
        """An event from the log; one that a snapshot already has changes nothing."""
        entity = self.entities.get(event.entity) or EntityState(self.kind.initial)
        if event.version <= entity.version:
            return
        if event.version != entity.version + 1:
            raise RequestError(
                f"{self.topics.events}-{self.partition}: event {event.version} of {event.entity!r} follows "
                f"version {entity.version}; events between them are gone, so its state is not known"
            )
        opened = self.sealing.open_event(event)
        made = self.kind.read_event(event.type, event.schema, opened.data)
        self.entities[event.entity] = EntityState(self.kind.evolve(entity.state, made), event.version)
        self.changed.add(event.entity)
        self.events_since_checkpoint += 1

    def load_snapshot(self, entity: str, version: int, state: Any) -> None:
        """An entity as a snapshot has it; raises RequestError if it does not fit this code."""
        opened = self.sealing.open_state(entity, state)
        self.entities[entity] = EntityState(self.kind.state_from_json(opened), version)

    # --- snapshots ----------------------------------------------------------------------------

    @property
    def wants_checkpoint(self) -> bool:
        """Whether so much has changed that snapshots should be written with the next transactions."""
        return self._checkpoint is not None or self.events_since_checkpoint >= self.kind.snapshot_every

    def snapshots(self, most: int) -> tuple[list[tuple[str, bytes]], Checkpoint | None]:
        """Up to `most` of the snapshots of a checkpoint, to be written before the next are asked for; with
        the last of them the checkpoint itself.

        It says what had happened when its first snapshots were made. States may be newer: events that
        a snapshot has already change nothing, and what changed meanwhile is in the next checkpoint, too.
        """
        if self._checkpoint is None:
            self._checkpoint = Checkpoint(self.next_event, self.next_command, self.kind.fingerprint())
            self._unsaved, self.changed = sorted(self.changed), set()
            self.events_since_checkpoint = 0
        names = self._unsaved[:most]
        made = [(name, self._snapshot(name, self._checkpoint.fits)) for name in names]
        del self._unsaved[:most]
        done = None if self._unsaved else self._checkpoint
        if done is not None:
            self._checkpoint = None
        return made, done

    def give_up_snapshots(self) -> None:
        """A checkpoint that cannot be written is not tried again with every transaction; entities whose
        snapshots it lacks are left to the next.
        """
        self.changed.update(self._unsaved)
        self._checkpoint, self._unsaved, self.events_since_checkpoint = None, [], 0

    def _snapshot(self, entity: str, fits: str) -> bytes:
        found = self.entities[entity]
        state = self.sealing.seal_state(entity, self.kind.state_to_json(found.state))
        return snapshot_value(found.version, state, fits)


def _writable(text: str) -> str:
    """Text that can be written as UTF-8; what cannot becomes question marks."""
    return text.encode(errors="replace").decode()
