"""An entity type: a pure pair of functions, and the types of what goes in and out. No I/O.

`decide(command, state)` returns the events that follow from a command, or raises `Rejected`;
`evolve(state, event)` returns the state after an event. Types of commands and events are read
from the annotations of the two functions. An event that was written by an older version of the
application is brought up to date, version by version, before `evolve` sees it.
"""

import hashlib
import inspect
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args, get_type_hints

import orjson

from headrace.errors import ConfigError, RequestError
from headrace.nearest import no_such
from headrace.personal import is_sealed, mentions_personal, personal_fields
from headrace.sourcing.values import (
    fields_of,
    from_json,
    is_model,
    json_schema,
    spark_type,
    to_json,
    union_members,
    with_fields,
)

__all__ = ["EntityType", "Rejected", "code_of", "make_entity_type"]

Decide = Callable[..., Any]
Evolve = Callable[..., Any]
Upcast = Callable[[dict[str, Any]], dict[str, Any]]


class Rejected(RequestError):  # noqa: N818 - what has happened, not what is wrong
    """Raised by `decide`: the command may not be carried out now, because of this `rule`."""

    def __init__(self, rule: str, message: str = "") -> None:
        super().__init__(message or rule)
        self.rule = rule


@dataclass(frozen=True, slots=True)
class _Upcaster:
    """From one version of a type to the next, under the same name or another."""

    function: Upcast
    into: str


@dataclass(slots=True, kw_only=True)
class EntityType:
    """How entities of one kind decide and evolve.

    `partitions` is how many serving processes can share the type. A snapshot of every changed
    entity is written after `snapshot_every` events of a partition, and when it is idle; raise
    `snapshots` when code that `evolve` calls has changed what states mean. Of each partition
    the last `remember` answers are kept for commands that are sent again. Personal fields belong to
    the subject that the field `subject` names, else to the entity.
    """

    name: str
    decide: Decide
    evolve: Evolve
    initial: Any
    commands: Mapping[str, Any]
    events: Mapping[str, Any]
    partitions: int = 4
    snapshot_every: int = 1_000
    snapshots: int = 1
    remember: int = 100_000
    subject: str | None = None
    personal_in_commands: Mapping[str, frozenset[str]] = field(default_factory=dict)
    personal_in_events: Mapping[str, frozenset[str]] = field(default_factory=dict)
    _upcasters: dict[tuple[str, int], _Upcaster] = field(default_factory=dict)
    _versions: dict[str, int] = field(default_factory=dict)

    @property
    def is_personal(self) -> bool:
        """Whether any command or event has a personal field."""
        return bool(self.personal_in_commands or self.personal_in_events)

    # --- deciding -----------------------------------------------------------------------------

    def events_of(self, command: Any, state: Any) -> tuple[Any, ...]:
        """The events that follow from a command; raises Rejected."""
        found = self.decide(command, state)
        events = () if found is None else (found,) if is_model(type(found)) else tuple(found)
        for event in events:
            if type(event).__name__ not in self.events:
                raise ConfigError(
                    f"{self.name}: decide returned a {type(event).__name__}; "
                    f"the events that evolve takes are {', '.join(self.events)}"
                )
        return events

    def kept(self, event: Any) -> tuple[Any, Any]:
        """An event's data as the log keeps it, and the event as it is read there.

        Raises an error if that is not possible: a field that is not of its type, a number that JSON
        does not hold. What `evolve` is given is then the same now and on every replay.
        """
        name = type(event).__name__
        data = orjson.loads(orjson.dumps(to_json(event)))
        return data, self.read_event(name, self.version_of(name), data)

    def state_after(self, events: Iterable[Any], state: Any = None) -> Any:
        """The state after these events, from the beginning or from `state`."""
        state = self.initial if state is None else state
        for event in events:
            state = self.evolve(state, event)
        return state

    # --- commands and events as JSON ----------------------------------------------------------

    def upcast(self, name: str, version: int, *, into: str | None = None) -> Callable[[Upcast], Upcast]:
        """Declares how the data of a type's old `version` becomes that of the next.

        The function takes a mapping and returns one. `into` is the type's name from then on,
        where that has changed. The version of a type is one more than its last upcaster's.
        """

        def declare(function: Upcast) -> Upcast:
            if version < 1 or (name, version) in self._upcasters:
                raise ConfigError(f"{self.name}: upcasters of {name} have versions 1, 2, 3…, each once")
            self._upcasters[name, version] = _Upcaster(function, into or name)
            self._versions.clear()
            return function

        return declare

    def version_of(self, name: str) -> int:
        """The current version of a command's or an event's type."""
        found = self._versions.get(name)
        if found is None:
            found = self._versions[name] = self._counted_version(name)
        return found

    def _counted_version(self, name: str) -> int:
        arrived = [
            version + 1
            for (old, version), each in self._upcasters.items()
            if each.into == name or (old == name and each.into == old)
        ]
        return max(arrived, default=1)

    def is_old(self, name: str, schema: int) -> bool:
        """Whether data of this type and version is brought up to date when it is read."""
        known = name in self.events or name in self.commands
        return not known or schema < self.version_of(name)

    def read_event(self, name: str, version: int, data: Any) -> Any:
        """An event of any version; raises RequestError if this code does not know it."""
        return self._read("event", self.events, name, version, data)

    def read_command(self, name: str, version: int, data: Any) -> Any:
        """A command of any version; raises RequestError, whose message names the field that is wrong."""
        return self._read("command", self.commands, name, version, data)

    def read_sealed_event(self, name: str, version: int, data: Any) -> Any:
        """An event of any version whose personal fields are sealed, as texts; raises RequestError."""
        name, data = self._current("event", self.events, name, version, data)
        personal = self.personal_in_events.get(name, frozenset())
        sealed = {each: data[each] for each in personal if is_sealed(data.get(each))}
        made = from_json(self.events[name], {**data, **dict.fromkeys(sealed)})
        return with_fields(made, sealed) if sealed else made

    def _read(self, what: str, known: Mapping[str, Any], name: str, version: int, data: Any) -> Any:
        name, data = self._current(what, known, name, version, data)
        return from_json(known[name], data)

    def _current(
        self, what: str, known: Mapping[str, Any], name: str, version: int, data: Any
    ) -> tuple[str, Any]:
        """The name and the data in the current version; raises RequestError if that is not known."""
        while (step := self._upcasters.get((name, version))) is not None:
            data, name, version = step.function(dict(data)), step.into, version + 1
        if name not in known:
            raise RequestError(f"{self.name}: {no_such(what, name, known)}")
        if version > self.version_of(name):
            raise RequestError(
                f"{self.name}: {what} {name} of version {version} was written by newer code; "
                f"this one knows version {self.version_of(name)}"
            )
        return name, data

    # --- states and descriptions --------------------------------------------------------------

    def state_to_json(self, state: Any) -> Any:
        return to_json(state)

    def state_from_json(self, data: Any) -> Any:
        """A state that a snapshot holds; raises RequestError if it does not fit."""
        return from_json(type(self.initial), data)

    def fingerprint(self) -> str:
        """Changes when snapshots must not be used any more: with the state's fields, `evolve`, the upcasters
        and the number `snapshots`."""
        parts = [str(self.snapshots), repr(_schema(type(self.initial))), repr(to_json(self.initial))]
        parts += [code_of(self.evolve)]
        parts += self.upcasting()
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]

    def upcasting(self) -> list[str]:
        """What the upcasters do, as far as their own code shows."""
        return [f"{key}{each.into}{code_of(each.function)}" for key, each in sorted(self._upcasters.items())]

    def event_schema(self) -> str:
        """The columns of the events as a stream, in Spark's DDL: `data` has the fields of all types."""
        fields: dict[str, str] = {}
        for kind in self.events.values():
            personal = self.personal_in_events.get(kind.__name__, frozenset())
            for name, each in fields_of(kind).items():
                found = "string" if name in personal else spark_type(each)
                fields[name] = found if fields.get(name, found) == found else "string"
        data = ", ".join(f"`{name}`: {each}" for name, each in fields.items())
        return "entity string, version bigint, type string, at timestamp, by string, command string" + (
            f", data struct<{data}>" if data else ""
        )

    def describe(self) -> dict[str, Any]:
        """The type's name, and the JSON schema and version of every command."""
        commands = {
            name: {
                "schema": _schema(each),
                "version": self.version_of(name),
                "personal": sorted(self.personal_in_commands.get(name, ())),
            }
            for name, each in self.commands.items()
        }
        return {
            "type": self.name,
            "commands": commands,
            "subject": self.subject,
            "personal": {name: sorted(each) for name, each in self.personal_in_events.items()},
        }


def make_entity_type(name: str, decide: Decide, evolve: Evolve, initial: Any, **options: Any) -> EntityType:
    """An entity type from its functions; raises ConfigError if their annotations do not name the types."""
    commands = _annotated(name, decide, 0, "decide(command: A | B, state)")
    events = _annotated(name, evolve, 1, "evolve(state, event: A | B)")
    if not (is_model(type(initial)) or isinstance(initial, dict)):
        raise ConfigError(
            f"entity {name!r}: initial= is the state before the first event: a dataclass or a pydantic "
            f"model, not {type(initial).__name__}"
        )
    from_json(type(initial), orjson.loads(orjson.dumps(to_json(initial))))
    made = EntityType(
        name=name,
        decide=decide,
        evolve=evolve,
        initial=initial,
        commands=commands,
        events=events,
        personal_in_commands=_personal_of(name, commands),
        personal_in_events=_personal_of(name, events),
        **options,
    )
    _check_personal(made)
    return made


def _personal_of(entity: str, kinds: Mapping[str, Any]) -> dict[str, frozenset[str]]:
    """The personal fields of each type that has any."""
    found = {}
    for name, kind in kinds.items():
        fields = fields_of(kind)
        marked = personal_fields(fields)
        for each, hint in fields.items():
            if each not in marked and _has_hidden_mark(hint):
                raise ConfigError(
                    f"entity {entity!r}: {name}.{each} has Personal[…] inside; a field is personal as a "
                    "whole: mark it as Personal[…] itself"
                )
        if marked:
            found[name] = marked
    return found


def _has_hidden_mark(hint: Any) -> bool:
    if mentions_personal(hint):
        return True
    return any(
        personal_fields(fields_of(each)) or any(map(_has_hidden_mark, fields_of(each).values()))
        for each in _models_in(hint)
    )


def _models_in(hint: Any) -> list[Any]:
    return [hint] if is_model(hint) else [each for inner in get_args(hint) for each in _models_in(inner)]


def _check_personal(kind: EntityType) -> None:
    """Raises ConfigError if a personal value would be written in the clear, or have no subject."""
    personal = {field: name for name, fields in kind.personal_in_events.items() for field in fields}
    for name, command in kind.commands.items():
        for each in fields_of(command).keys() & personal.keys():
            if each not in kind.personal_in_commands.get(name, ()):
                raise ConfigError(
                    f"entity {kind.name!r}: {each} is personal in {personal[each]} and not in the command "
                    f"{name}, which would write it in the clear; make it Personal[…] there, too"
                )
    if kind.subject is None:
        return
    for name, known in ((each, kind.commands) for each in kind.personal_in_commands):
        _check_subject(kind, name, known)
    for name, known in ((each, kind.events) for each in kind.personal_in_events):
        _check_subject(kind, name, known)


def _check_subject(kind: EntityType, name: str, known: Mapping[str, Any]) -> None:
    fields = fields_of(known[name])
    if kind.subject not in fields or kind.subject in personal_fields(fields):
        raise ConfigError(
            f"entity {kind.name!r}: {name} has personal fields, so it needs the field {kind.subject!r}, "
            "which names their subject and is not personal itself"
        )


def _annotated(entity: str, function: Callable[..., Any], place: int, form: str) -> dict[str, Any]:
    """The types that a parameter may have, by name."""
    parameters = [
        each.name
        for each in inspect.signature(function).parameters.values()
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)
    ]
    hints = get_type_hints(function)
    if len(parameters) < 2 or parameters[place] not in hints:
        raise ConfigError(
            f"entity {entity!r}: {function.__name__} needs annotations, so that its types are known: {form}"
        )
    kinds = union_members(hints[parameters[place]])
    wrong = [each for each in kinds if not is_model(each)]
    if wrong:
        raise ConfigError(
            f"entity {entity!r}: {getattr(wrong[0], '__name__', wrong[0])} is neither a dataclass nor a "
            f"pydantic model; {form} names such types"
        )
    return {each.__name__: each for each in kinds}


def _schema(kind: Any) -> dict[str, Any]:
    return json_schema(kind)


def code_of(function: Callable[..., Any]) -> str:
    """What a function does, as far as its own code shows; comments and line numbers do not count."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else _flat(code)


def _flat(value: Any) -> str:
    if isinstance(value, types.CodeType):
        return f"{value.co_code.hex()}{_flat(value.co_consts)}{value.co_names}{value.co_varnames}"
    if isinstance(value, tuple):
        return f"({','.join(map(_flat, value))})"
    if isinstance(value, frozenset):
        return f"{{{','.join(sorted(map(_flat, value)))}}}"
    return repr(value)
