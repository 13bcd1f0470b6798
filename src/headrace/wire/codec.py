"""Readers and writers of whole messages, compiled once from kio's dataclasses."""

import dataclasses
import struct
from collections.abc import Mapping
from functools import cache
from pkgutil import resolve_name
from typing import Any, get_args, get_origin

from kio.schema.index import api_key_map, schema_name_map

from headrace.wire.union import default_of, union, without_none
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
    read_uvarint,
    write_uvarint,
)

__all__ = ["decoder", "encoder", "message"]

_read_int8, _write_int8, _ = FIXED["int8"]


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    tag: int | None
    codec: Codec
    default: Any


def _value_codec(annotation: Any, kind: str | None, flexible: bool, nullable: bool) -> Codec:
    if dataclasses.is_dataclass(annotation):
        codec: Codec = _structure(annotation)  # type: ignore[arg-type]
        return _nullable_structure(codec) if nullable else codec
    assert kind is not None
    if kind in FIXED:
        return Codec(*FIXED[kind])
    if kind == "uuid":
        return UUID
    return Codec(*blob(kind, flexible, nullable), 1 if flexible else 2)


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


def _field(field: Any, flexible: bool, legacy_text: bool) -> _Field:
    annotation, nullable = without_none(field.type)
    kind = field.metadata.get("kafka_type")
    tag = field.metadata.get("tag")
    default = default_of(field, annotation, nullable, kind)
    if get_origin(annotation) is tuple:
        item, _ = without_none(get_args(annotation)[0])
        codec = Codec(
            *array(_value_codec(item, kind, flexible, False), flexible, nullable), 1 if flexible else 4
        )
    else:
        codec = _value_codec(annotation, kind, flexible and not legacy_text, nullable and tag is None)
    return _Field(field.name, tag, codec, default)


@cache
def _structure(entity: Any) -> Codec:
    """The codec of one dataclass of kio's."""
    header = entity.__name__ == "RequestHeader"
    fields = [
        _field(field, entity.__flexible__, header and field.name == "client_id")
        for field in dataclasses.fields(entity)
    ]
    plain = [field for field in fields if field.tag is None]
    tagged = {field.tag: field for field in fields if field.tag is not None}
    least = sum(field.codec.least_bytes for field in plain) + bool(entity.__flexible__)
    return Codec(
        _structure_reader(union(entity), plain, tagged, entity.__flexible__),
        _structure_writer(union(entity), plain, tagged, entity.__flexible__),
        least,
    )


def _structure_reader(
    shape: type[Fields], plain: list[_Field], tagged: Mapping[int, _Field], flexible: bool
) -> Reader:
    steps = [(field.name, field.codec.read) for field in plain]
    new = shape.__new__

    def read(cursor: Cursor) -> Fields:
        values = {name: read_field(cursor) for name, read_field in steps}
        if flexible:
            _read_tagged(cursor, tagged, values)
        fields = new(shape)
        fields.__dict__ = values
        return fields

    return read


def _read_tagged(cursor: Cursor, tagged: Mapping[int, _Field], values: dict[str, Any]) -> None:
    for _ in range(read_uvarint(cursor)):
        tag, size = read_uvarint(cursor), read_uvarint(cursor)
        start = cursor.position
        if size > cursor.end - start:
            raise MalformedError(f"tagged field {tag} of {size} bytes does not fit the message")
        if tag in tagged:
            values[tagged[tag].name] = tagged[tag].codec.read(cursor)
            if cursor.position != start + size:
                raise MalformedError(f"tagged field {tag} is not of the {size} bytes it claims")
        cursor.position = start + size


def _structure_writer(
    shape: type[Fields], plain: list[_Field], tagged: Mapping[int, _Field], flexible: bool
) -> Writer:
    steps = [(field.name, field.codec.write, field.default) for field in plain]
    known: frozenset[str] = shape.known  # type: ignore[attr-defined]

    def write(out: Frame, values: Mapping[str, Any]) -> None:
        if not values.keys() <= known:
            raise TypeError(f"{shape.__name__} has no field {', '.join(sorted(values.keys() - known))}")
        for name, write_field, default in steps:
            write_field(out, values.get(name, default))
        if flexible:
            _write_tagged(out, tagged, values)

    return write


def _given(values: Mapping[str, Any], field: _Field) -> bool:
    """Whether a tagged field differs from its default; an empty list is an empty tuple."""
    value = values.get(field.name, field.default)
    return bool(value != (list(field.default) if isinstance(value, list) else field.default))


def _write_tagged(out: Frame, tagged: Mapping[int, _Field], values: Mapping[str, Any]) -> None:
    present = [(tag, field) for tag, field in sorted(tagged.items()) if _given(values, field)]
    write_uvarint(out, len(present))
    for tag, field in present:
        inner = Frame()
        field.codec.write(inner, values[field.name])
        write_uvarint(out, tag)
        write_uvarint(out, len(inner))
        out += inner


@cache
def message(api_key: int, version: int, kind: str) -> Any:
    """kio's dataclass of a message: kind is "request" or "response"."""
    versions = schema_name_map[api_key_map[api_key]]
    return next(resolve_name(path) for entity, path in versions[version].items() if entity.name == kind)


def decoder(entity: Any) -> Reader:
    """Reads one entity from a cursor; raises MalformedError on anything that does not fit."""
    read = _structure(entity).read

    def checked(cursor: Cursor) -> Any:
        try:
            return read(cursor)
        except (struct.error, IndexError):
            raise MalformedError("the message ends in the middle of a field") from None
        except UnicodeDecodeError:
            raise MalformedError("a string of the message is not UTF-8") from None

    return checked


def encoder(entity: Any) -> Writer:
    """Appends one entity, given as a dict of the fields that differ from their defaults."""
    return _structure(entity).write
