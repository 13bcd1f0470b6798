"""A projection: a pure function from a row and an event to the row after it. No I/O.

A row is found by the entity, and by further fields of the event where the projection names them. So it
depends on the events of one entity only, which are in one partition and in order: the same log always
gives the same rows, however its partitions are read.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.nearest import no_such
from headrace.sourcing.entity_type import EntityType, code_of
from headrace.sourcing.projections.columns import arrow_type
from headrace.sourcing.reactions import Happened
from headrace.sourcing.records import Event
from headrace.sourcing.values import fields_of, is_model, union_members
from headrace.views import ViewSchema

__all__ = ["Projection", "make_projection", "projection_group"]

_ENTITY = "entity"
_KEPT_CHANGES = 10_000


def projection_group(app: str, projection: str) -> str:
    """The group whose offsets show the progress of a projection."""
    return f"{app}.projection.{projection}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What is made of the events of an entity type: a view with `schema`, whose rows are of type `row`.

    `key` names the fields that find a row: `entity`, and fields of the events.
    """

    name: str
    function: Callable[[Any, Happened], Any]
    kind: EntityType
    events: frozenset[type]
    key: tuple[str, ...]
    row: type
    schema: ViewSchema
    store: str | None = None
    doc: str = ""

    def happened(self, event: Event) -> Happened | None:
        """The event as the function sees it, personal fields sealed; None if it is not for it."""
        if event.type in self.kind.events and self.kind.events[event.type] not in self.events:
            return None
        made = self.kind.read_sealed_event(event.type, event.schema, event.data)
        return Happened.of(event, made) if type(made) in self.events else None

    def key_of(self, happened: Happened) -> tuple[Any, ...]:
        """What finds the row of an event."""
        return tuple(
            happened.entity if name == _ENTITY else getattr(happened.event, name) for name in self.key
        )

    def fingerprint(self) -> str:
        """Changes when the rows must be made anew: with the function, the key, the columns, the upcasters."""
        parts = [code_of(self.function), ",".join(self.key), str(self.schema.columns)]
        parts += [*sorted(each.__name__ for each in self.events), *self.kind.upcasting()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def make_projection(
    function: Callable[[Any, Happened], Any],
    events: frozenset[type],
    kinds: Mapping[str, EntityType],
    *,
    key: tuple[str, ...],
    name: str,
    store: str | None,
) -> Projection:
    """A projection from its declaration; raises ConfigError if that cannot be carried out."""
    kind = _kind_of(name, events, kinds)
    row = _row_of(name, function)
    columns = {**_key_columns(name, kind, events, key), **_row_columns(name, row, key)}
    return Projection(
        name=name,
        function=function,
        kind=kind,
        events=events,
        key=key,
        row=row,
        schema=ViewSchema(name, key, pa.schema(list(columns.items())), keep_changes=_KEPT_CHANGES),
        store=store,
        doc=(function.__doc__ or "").strip().partition("\n")[0],
    )


def _kind_of(name: str, events: frozenset[type], kinds: Mapping[str, EntityType]) -> EntityType:
    """The entity type whose events these are."""
    known = {event for kind in kinds.values() for event in kind.events.values()}
    if not events or events - known:
        unknown = ", ".join(sorted(each.__name__ for each in events - known)) or "nothing"
        raise ConfigError(
            f"projection {name!r}: {unknown} is not an event of any entity; declare the entities first, and "
            "name their types of events: @app.projection(Deposited, Withdrawn)"
        )
    found = [kind for kind in kinds.values() if events <= {*kind.events.values()}]
    if len(found) != 1:
        raise ConfigError(
            f"projection {name!r}: its events are not those of one entity type, and a row is "
            " made of the events of one entity. For rows of several, declare a view: @app.view"
        )
    return found[0]


def _row_of(name: str, function: Callable[..., Any]) -> type:
    hint = get_type_hints(function).get("return")
    kinds = [each for each in union_members(hint) if each is not type(None)]
    if len(kinds) != 1 or not is_model(kinds[0]):
        raise ConfigError(
            f"projection {name!r} needs an annotation that says what its rows are, a dataclass or a pydantic "
            f"model: def {name}(row: Row | None, happened) -> Row | None"
        )
    found: type = kinds[0]
    return found


def _key_columns(
    name: str, kind: EntityType, events: frozenset[type], key: tuple[str, ...]
) -> dict[str, pa.DataType]:
    if _ENTITY not in key:
        raise ConfigError(
            f"projection {name!r}: its key has to name {_ENTITY!r}, because a row is made of the events of "
            "one entity. For rows that several entities share, declare a view: @app.view"
        )
    return {each: pa.string() if each == _ENTITY else _shared_type(name, kind, events, each) for each in key}


def _shared_type(name: str, kind: EntityType, events: frozenset[type], field: str) -> pa.DataType:
    """The type of a field that all the events have."""
    found = set()
    for event in events:
        fields = fields_of(event)
        if field not in fields:
            raise ConfigError(f"projection {name!r}: {event.__name__} has {no_such('field', field, fields)}")
        if field in kind.personal_in_events.get(event.__name__, ()):
            raise ConfigError(
                f"projection {name!r}: {event.__name__}.{field} is personal, and cannot be in the key: the "
                "same value is sealed differently each time"
            )
        found.add(arrow_type(fields[field], f"{event.__name__}.{field}"))
    if len(found) != 1:
        raise ConfigError(f"projection {name!r}: {field} is of different types in its events")
    return found.pop()


def _row_columns(name: str, row: type, key: tuple[str, ...]) -> dict[str, pa.DataType]:
    fields = fields_of(row)
    if twice := fields.keys() & set(key):
        raise ConfigError(
            f"projection {name!r}: {row.__name__}.{min(twice)} is in the key, which is a column anyway; "
            "leave it out of the row"
        )
    return {each: arrow_type(hint, f"{row.__name__}.{each}") for each, hint in fields.items()}
