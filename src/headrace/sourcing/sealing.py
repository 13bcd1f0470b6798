"""Personal fields of commands, events, answers and states: sealed on the log, open in memory.

Fields that are marked `Personal[…]` are sealed with the key of their subject before they are written, and
opened after they are read; so are snapshots of states, and what answers say of rejected commands. The
subject is the entity, or what the field `subject` of the command or event names. An entity type without
personal fields needs no keys.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import CorruptionError, RequestError
from headrace.personal import is_sealed
from headrace.sourcing.records import Answer, Event, EventData

if TYPE_CHECKING:
    from headrace.personal import KeyStore

__all__ = ["DescribedKind", "FindKeys", "SealedKind", "Sealing", "needs_keys", "no_keys"]

FindKeys = Callable[[], "KeyStore"]


def no_keys() -> "KeyStore":
    """For those who were given no keys."""
    raise RequestError("personal fields need the keys of their subjects, and none were given")


class SealedKind(Protocol):
    """What sealing has to know of an entity type."""

    @property
    def subject(self) -> str | None: ...
    @property
    def personal_in_commands(self) -> Mapping[str, frozenset[str]]: ...
    @property
    def personal_in_events(self) -> Mapping[str, frozenset[str]]: ...
    @property
    def is_personal(self) -> bool: ...
    def is_old(self, name: str, schema: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class DescribedKind:
    """An entity type as the application's description has it, for those who do not load its code."""

    subject: str | None
    personal_in_commands: Mapping[str, frozenset[str]]
    personal_in_events: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> "DescribedKind":
        commands = {name: frozenset(each.get("personal", ())) for name, each in described["commands"].items()}
        events = {name: frozenset(each) for name, each in described.get("personal", {}).items()}
        return cls(described.get("subject"), {name: each for name, each in commands.items() if each}, events)

    @property
    def is_personal(self) -> bool:
        return bool(self.personal_in_commands or self.personal_in_events)

    def is_old(self, name: str, schema: int) -> bool:
        del schema
        return name not in self.personal_in_events


@dataclass(slots=True)
class Sealing:
    """Seals and opens what belongs to the entities of one type.

    `known` is what was forgotten when the states in memory were read (`KeyStore.forgotten`): nothing is
    sealed for a subject that was forgotten after that. `is_withheld` opens nothing: every personal field
    is read as that of a subject that was forgotten.
    """

    kind: SealedKind
    find_keys: FindKeys = no_keys
    known: int | None = None
    is_withheld: bool = False

    def remember_forgotten(self) -> None:
        """To be called before states are read."""
        self.known = self.find_keys().forgotten() if self.kind.is_personal else None

    # --- commands and events ------------------------------------------------------------------

    def seal_command(self, entity: str, name: str, data: Any) -> Any:
        """A command's data as the log has it."""
        return self._seal(entity, self.kind.personal_in_commands.get(name), data)

    def open_command(self, entity: str, name: str, schema: int, data: Any) -> Any:
        """A command's data; raises RequestError if a personal field is in the clear."""
        fields = self.kind.personal_in_commands.get(name, frozenset())
        if isinstance(data, dict):
            for each in sorted(fields):
                if data.get(each) is not None and not is_sealed(data[each]):
                    raise RequestError(
                        f"{each} is personal, and was sent in the clear; send the command over HTTP or from "
                        "Python, which seal it"
                    )
        return self._open(entity, fields, self.kind.is_old(name, schema), data)

    def seal_event(self, entity: str, name: str, data: Any) -> Any:
        """An event's data as the log has it."""
        return self._seal(entity, self.kind.personal_in_events.get(name), data)

    def open_event(self, event: Event) -> Event:
        """An event with its data open."""
        if not self.kind.is_personal:
            return event
        is_old = self.kind.is_old(event.type, event.schema)
        data = self._open_event(event.entity, event.type, is_old, event.data)
        return event if data is event.data else replace(event, data=data)

    def _open_event(self, entity: str, name: str, is_old: bool, data: Any) -> Any:
        return self._open(entity, self.kind.personal_in_events.get(name, frozenset()), is_old, data)

    # --- answers and states -------------------------------------------------------------------

    def seal_message(self, entity: str, message: str) -> str:
        """What an answer says of a rejected command: it may repeat what the command said."""
        if not self.kind.is_personal:
            return message
        return self._keys_seal(self._state_subject(entity), message)

    def open_answer(self, answer: Answer) -> Answer:
        """An answer as its sender sees it."""
        if not self.kind.is_personal:
            return answer
        events = tuple(
            EventData(each.type, each.version, self._open_event(answer.entity, each.type, False, each.data))
            for each in answer.events
        )
        message = answer.message
        if is_sealed(message):
            message = self.find_keys().open(str(message), subject=self._state_subject(answer.entity))
        return replace(answer, events=events, message=message)

    def seal_state(self, entity: str, state: Any) -> Any:
        """A state as a snapshot has it: sealed as a whole, because personal fields went into it, too."""
        return self._keys_seal(self._state_subject(entity), state) if self.kind.is_personal else state

    def open_state(self, entity: str, state: Any) -> Any:
        """A state of a snapshot; raises RequestError if its key is gone, so that events are read instead."""
        if not self.kind.is_personal:
            return state
        found = self._open_one(state, self._state_subject(entity)) if is_sealed(state) else None
        if found is None:
            raise RequestError(f"the snapshot of {entity!r} cannot be opened: its key was destroyed")
        return found

    # --- inside -------------------------------------------------------------------------------

    def _seal(self, entity: str, fields: frozenset[str] | None, data: Any) -> Any:
        if not fields or not isinstance(data, dict):
            return data
        subject = self._subject(entity, data)
        return {
            **data,
            **{name: self._keys_seal(subject, data[name]) for name in fields if data.get(name) is not None},
        }

    def _open(self, entity: str, fields: frozenset[str], is_old: bool, data: Any) -> Any:
        """Opens the personal fields; an old version's may have had other names."""
        if not self.kind.is_personal or not isinstance(data, dict):
            return data
        sealed = [name for name, each in data.items() if is_sealed(each) and (is_old or name in fields)]
        if not sealed:
            return data
        subject = self._subject(entity, data)
        return {**data, **{name: self._open_one(data[name], subject) for name in sealed}}

    def _open_one(self, sealed: str, subject: str) -> Any:
        if self.is_withheld:
            return None
        try:
            return self.find_keys().open(sealed, subject=subject)
        except CorruptionError as error:
            raise RequestError(str(error)) from error

    def _keys_seal(self, subject: str, value: Any) -> str:
        return self.find_keys().seal(subject, value, known=self.known)

    def _subject(self, entity: str, data: dict[str, Any]) -> str:
        return entity if self.kind.subject is None else str(data.get(self.kind.subject) or "")

    def _state_subject(self, entity: str) -> str:
        if self.kind.subject is None:
            return entity
        from headrace.personal import SHARED_STATES

        return SHARED_STATES


def needs_keys(kinds: Mapping[str, SealedKind]) -> bool:
    """Whether any of these entity types has personal fields."""
    return any(each.is_personal for each in kinds.values())
