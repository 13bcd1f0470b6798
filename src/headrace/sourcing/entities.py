"""Entities as an application's code reaches them: `app.entities.account("a-1").send(Withdraw(5))`."""

import asyncio
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from headrace.client import Connection
from headrace.clock import SystemClock
from headrace.errors import ConfigError, RequestError
from headrace.nearest import no_such
from headrace.sourcing.client import CommandSender, new_command_id
from headrace.sourcing.entity_type import EntityType
from headrace.sourcing.history import History, PastState
from headrace.sourcing.reactions import Send
from headrace.sourcing.records import Answer, Command, Event
from headrace.sourcing.sealing import FindKeys, Sealing, no_keys
from headrace.sourcing.topics import create_entity_topics
from headrace.sourcing.values import to_json

__all__ = ["Entities", "Entity", "EntityKind"]


class Entities:
    """The entity types of an application, by name.

    Commands go to the log of `connect`, else to the one that `find_log` finds when the first
    is sent.
    """

    def __init__(
        self,
        app: str,
        kinds: Mapping[str, EntityType],
        find_log: Callable[[], Connection],
        make_stream: Callable[[EntityType], Any],
        find_keys: FindKeys = no_keys,
    ) -> None:
        self._app = app
        self._kinds = kinds
        self._find_log = find_log
        self._make_stream = make_stream
        self._find_keys = find_keys
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._sender: CommandSender | None = None
        self._created: set[str] = set()

    def __getattr__(self, name: str) -> "EntityKind":
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._kinds:
            raise AttributeError(no_such("entity type", name, self._kinds), name=name, obj=self)
        return EntityKind(self, self._kinds[name])

    def __getitem__(self, name: str) -> "EntityKind":
        """The same, for names that are not Python identifiers."""
        if name not in self._kinds:
            raise RequestError(no_such("entity type", name, self._kinds))
        return EntityKind(self, self._kinds[name])

    def connect(self, log: Connection | str) -> None:
        """Says where the log is: a connection, or its bootstrap servers."""
        self.close()
        self._connection = Connection(bootstrap_servers=log) if isinstance(log, str) else log

    def close(self) -> None:
        """Ends the thread that reads answers; the next command starts it again."""
        with self._lock:
            sender, self._sender = self._sender, None
            self._created.clear()
        if sender is not None:
            sender.close()

    def _log(self) -> Connection:
        if self._connection is None:
            self._connection = self._find_log()
        return self._connection

    def _sender_of(self, kind: EntityType) -> CommandSender | None:
        """The sender, if it has been used for this type; then it does not block."""
        return self._sender if kind.name in self._created else None

    def _sending(self, kind: EntityType) -> CommandSender:
        with self._lock:
            if kind.name not in self._created:
                create_entity_topics(self._log(), self._app, [kind])
            if self._sender is None:
                self._sender = CommandSender(self._log(), self._app)
            self._sender.follow(kind.name)
            self._created.add(kind.name)
            return self._sender


class EntityKind:
    """An entity type of a running application; call it with an id to get an entity."""

    def __init__(self, entities: Entities, kind: EntityType) -> None:
        self._entities = entities
        self.kind = kind

    def __call__(self, entity: str) -> "Entity":
        """The entity with this id, whether anything has happened to it or not."""
        return Entity(self._entities, self.kind, entity)

    def upcast(
        self, name: str, version: int, *, into: str | None = None
    ) -> Callable[[Callable[[dict[str, Any]], dict[str, Any]]], Callable[[dict[str, Any]], dict[str, Any]]]:
        """Declares how the data of an old `version` of a command's or event's type becomes that of the next.

        The function takes the fields as a mapping and returns the new ones. `into` is the new
        name of a type that was renamed. A type's version is one more than its last upcaster's.
        """
        return self.kind.upcast(name, version, into=into)

    @property
    def events(self) -> Any:
        """The events of all entities of this type, as a stream of the application.

        Its columns are `entity`, `version`, `type`, `at` (the event time), `by`, `command` and
        `data`, which has the fields of all types of events.
        """
        return self._entities._make_stream(self.kind)


class Entity:
    """One entity: commands go to it, and its history can be read."""

    def __init__(self, entities: Entities, kind: EntityType, entity: str) -> None:
        if not entity:
            raise RequestError(f"{kind.name}: the id of an entity is a text that is not empty")
        self._entities = entities
        self._kind = kind
        self._sealing = Sealing(kind, entities._find_keys)
        self.id = entity

    async def send(
        self,
        command: Any,
        *,
        expected_version: int | None = None,
        command_id: str | None = None,
        by: str = "",
        cause: str = "",
        correlation: str = "",
        timeout_s: float = 30.0,
    ) -> Answer:
        """Sends a command and waits for its answer.

        With `expected_version`, the command is only carried out if that is the entity's
        version. A command that is sent again with its `command_id` is carried out once, and
        gets the first answer. Raises RetriableError if there is no answer in time.
        """
        made = self._command(command, expected_version, command_id, by, cause, correlation)
        sender = self._entities._sender_of(self._kind)
        if sender is None:
            sender = await asyncio.to_thread(self._entities._sending, self._kind)
        return self._sealing.open_answer(await sender.ask(self._kind.name, made, timeout_s))

    def command(self, command: Any, *, after: timedelta | float = 0.0) -> Send:
        """A command for a reaction to return: sent at once, or so long `after` the event (in seconds)."""
        name = type(command).__name__
        if self._kind.commands.get(name) is not type(command):
            raise ConfigError(f"{self._kind.name}: {no_such('command', name, self._kind.commands)}")
        return Send(
            self._kind, self.id, command, after.total_seconds() if isinstance(after, timedelta) else after
        )

    def send_and_wait(
        self,
        command: Any,
        *,
        expected_version: int | None = None,
        command_id: str | None = None,
        by: str = "",
        cause: str = "",
        correlation: str = "",
        timeout_s: float = 30.0,
    ) -> Answer:
        """The same for threads: blocks until the answer is there."""
        made = self._command(command, expected_version, command_id, by, cause, correlation)
        sender = self._entities._sending(self._kind)
        answer = sender.wait(sender.send(self._kind.name, made), made, timeout_s)
        return self._sealing.open_answer(answer)

    def state(self, *, version: int | None = None, at: datetime | None = None) -> PastState:
        """Its state and version: now, after `version` events, or at a time. Reads the log."""
        if version is not None and at is not None:
            raise RequestError("give a version or a time, not both")
        return self._history().at(version=version, time_ms=None if at is None else _milliseconds(at))

    def history(self) -> list[Event]:
        """Its events, from the first to the last. Reads the log."""
        return self._history().events()

    def _history(self) -> History:
        return History(
            self._entities._log(), self._entities._app, self._kind, self.id, self._entities._find_keys
        )

    def _command(
        self, command: Any, expected: int | None, given: str | None, by: str, cause: str, correlation: str
    ) -> Command:
        name = type(command).__name__
        if self._kind.commands.get(name) is not type(command):
            raise ConfigError(f"{self._kind.name}: {no_such('command', name, self._kind.commands)}")
        return Command(
            entity=self.id,
            name=name,
            data=self._sealing.seal_command(self.id, name, to_json(command)),
            id=given or new_command_id(),
            schema=self._kind.version_of(name),
            by=by,
            at_ms=SystemClock().now_ms(),
            cause=cause,
            correlation=correlation,
            expected=expected,
        )


def _milliseconds(at: datetime) -> int:
    return int((at if at.tzinfo is not None else at.astimezone()).timestamp() * 1000)
