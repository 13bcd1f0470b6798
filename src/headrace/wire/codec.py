"""Readers and writers of whole messages, compiled once from `schemas`."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from headrace.wire.schemas import MESSAGES, Field
from headrace.wire.values import (
    FIXED,
    UUID,
    Codec,
    Cursor,
    Fields,
    Frame,
    MalformedError,
    Reader,
    Writer,
    array,
    blob,
    checked,
    read_uvarint,
    write_uvarint,
)

__all__ = ["REQUEST", "RESPONSE", "decoder", "encoder", "is_flexible", "read_tags"]

REQUEST, RESPONSE = "request", "response"

_read_int8, _write_int8, _ = FIXED["int8"]


# --- the surface ------------------------------------------------------------------------------


def is_flexible(api_key: int, version: int, kind: str) -> bool:
    """Whether a message has compact lengths and tagged fields in this version."""
    message = MESSAGES[api_key]
    return version >= (message.flexible_request if kind == REQUEST else message.flexible_response)


@cache
def _message(api_key: int, version: int, kind: str) -> Codec:
    fields = MESSAGES[api_key].request if kind == REQUEST else MESSAGES[api_key].response
    return _structure((api_key, kind), fields, fields, version, is_flexible(api_key, version, kind))


def decoder(api_key: int, version: int, kind: str) -> Reader:
    """Reads one message from a cursor; raises MalformedError on anything that does not fit."""
    return checked(_message(api_key, version, kind).read)


def encoder(api_key: int, version: int, kind: str) -> Writer:
    """Appends one message, given as a dict of the fields that differ from their defaults."""
    return _message(api_key, version, kind).write


# --- one shape for all versions ---------------------------------------------------------------


@cache
def _shape(path: tuple[Any, ...], fields: tuple[Field, ...]) -> type[Fields]:
    """A `Fields` class whose class attributes are the defaults of all versions' fields.

    A decoded body thus has every field that any version has, and handlers are
    written once.
    """
    name = "".join(word.title() for word in str(path[-1]).split("_"))
    defaults = {field.name: field.default for field in fields}
    return type(name, (Fields,), {**defaults, "known": frozenset(defaults)})


# --- structures -------------------------------------------------------------------------------


def _structure(
    path: tuple[Any, ...], fields: tuple[Field, ...], family: tuple[Field, ...], version: int, flexible: bool
) -> Codec:
    """The codec of one version's fields; its shape has those of the whole family, all versions' fields."""
    shape = _shape(path, family)
    present = [
        (field, _field((*path, field.name), field, _inside(family, field.name), version, flexible))
        for field in fields
        if field.first <= version <= field.last
    ]
    plain = [(field, codec) for field, codec in present if field.tag is None]
    tagged = {field.tag: (field, codec) for field, codec in present if field.tag is not None}
    return Codec(
        _structure_reader(shape, plain, tagged, flexible),
        _structure_writer(shape, plain, tagged, flexible),
        sum(codec.least_bytes for _, codec in plain) + flexible,
    )


def _inside(family: tuple[Field, ...], name: str) -> tuple[Field, ...]:
    """The fields of a structure in all versions, also those in which it is spelt otherwise."""
    return tuple(inner for twin in family if twin.name == name for inner in twin.of)


def _field(
    path: tuple[Any, ...], field: Field, family: tuple[Field, ...], version: int, flexible: bool
) -> Codec:
    if field.kind == "struct":
        codec = _structure(path, field.of, family, version, flexible)
    else:
        codec = _value(field, flexible, field.nullable and not field.array)
    if field.array:
        return Codec(*array(codec, flexible, field.nullable), 1 if flexible else 4)
    return _nullable_structure(codec) if field.kind == "struct" and field.nullable else codec


def _value(field: Field, flexible: bool, nullable: bool) -> Codec:
    if field.kind in FIXED:
        return Codec(*FIXED[field.kind])
    if field.kind == "uuid":
        return UUID
    return Codec(*blob(field.kind, flexible, nullable), 1 if flexible else 2)


def _nullable_structure(codec: Codec) -> Codec:
    """A structure behind a byte that says whether it is there (KIP-893)."""
    read_inner, write_inner = codec.read, codec.write

    def read(cursor: Cursor) -> Any:
        return None if _read_int8(cursor) < 0 else read_inner(cursor)

    def write(out: Frame, value: Any) -> None:
        _write_int8(out, -1 if value is None else 1)
        if value is not None:
            write_inner(out, value)

    return Codec(read, write, 1)


Tagged = Mapping[int, tuple[Field, Codec]]


def _structure_reader(
    shape: type[Fields], plain: list[tuple[Field, Codec]], tagged: Tagged, flexible: bool
) -> Reader:
    steps = [(field.name, codec.read) for field, codec in plain]
    new = shape.__new__

    def read(cursor: Cursor) -> Fields:
        values = {name: read_field(cursor) for name, read_field in steps}
        if flexible:
            read_tags(cursor, tagged, values)
        fields = new(shape)
        fields.__dict__ = values
        return fields

    return read


def read_tags(cursor: Cursor, tagged: Tagged, values: dict[str, Any]) -> None:
    """Takes the tagged fields that are known; the others are skipped."""
    for _ in range(read_uvarint(cursor)):
        tag, size = read_uvarint(cursor), read_uvarint(cursor)
        start = cursor.position
        if size > cursor.end - start:
            raise MalformedError(f"tagged field {tag} of {size} bytes does not fit the message")
        if tag in tagged:
            field, codec = tagged[tag]
            values[field.name] = codec.read(cursor)
            if cursor.position != start + size:
                raise MalformedError(f"tagged field {tag} is not of the {size} bytes it claims")
        cursor.position = start + size


def _structure_writer(
    shape: type[Fields], plain: list[tuple[Field, Codec]], tagged: Tagged, flexible: bool
) -> Writer:
    # A structure that is not given is written with its fields' defaults.
    steps = [
        (field.name, codec.write, {} if _is_struct(field) and field.default is None else field.default)
        for field, codec in plain
    ]
    known: frozenset[str] = shape.known  # type: ignore[attr-defined]

    def write(out: Frame, values: Mapping[str, Any]) -> None:
        if not values.keys() <= known:
            raise TypeError(f"{shape.__name__} has no field {', '.join(sorted(values.keys() - known))}")
        for name, write_field, default in steps:
            write_field(out, values.get(name, default))
        if flexible:
            _write_tagged(out, tagged, values)

    return write


def _is_struct(field: Field) -> bool:
    return field.kind == "struct" and not field.array and not field.nullable


def _given(values: Mapping[str, Any], field: Field) -> bool:
    """Whether a tagged field differs from its default; an empty list is an empty tuple."""
    value = values.get(field.name, field.default)
    return bool(value != (list(field.default) if isinstance(value, list) else field.default))


def _write_tagged(out: Frame, tagged: Tagged, values: Mapping[str, Any]) -> None:
    present = [(tag, *tagged[tag]) for tag in sorted(tagged) if _given(values, tagged[tag][0])]
    write_uvarint(out, len(present))
    for tag, field, codec in present:
        inner = Frame()
        codec.write(inner, values[field.name])
        write_uvarint(out, tag)
        write_uvarint(out, len(inner))
        out += inner
