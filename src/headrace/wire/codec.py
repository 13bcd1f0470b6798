"""Readers and writers of whole messages, compiled once from `schemas`."""

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import groupby
from typing import Any

from headrace.wire import fast_codec
from headrace.wire.schemas import MESSAGES, Field
from headrace.wire.structures import fields_of, shape
from headrace.wire.values import (
    FIXED,
    FORMS,
    UUID,
    Cursor,
    Fields,
    Frame,
    MalformedError,
    Reader,
    ValueCodec,
    Writer,
    array,
    blob,
    checked,
    read_uvarint,
    write_uvarint,
)

__all__ = [
    *("REQUEST", "RESPONSE", "decoder", "encoder", "general_decoder", "general_encoder"),
    *("is_flexible", "read_tags"),
]

REQUEST, RESPONSE = "request", "response"

_read_int8, _write_int8, _ = FIXED["int8"]


# --- the surface ------------------------------------------------------------------------------


def is_flexible(api_key: int, version: int, kind: str) -> bool:
    """Whether a message has compact lengths and tagged fields in this version."""
    message = MESSAGES[api_key]
    return version >= (message.flexible_request if kind == REQUEST else message.flexible_response)


@cache
def _message(api_key: int, version: int, kind: str) -> ValueCodec:
    fields = MESSAGES[api_key].request if kind == REQUEST else MESSAGES[api_key].response
    return _structure((api_key, kind), fields, fields, version, is_flexible(api_key, version, kind))


def decoder(api_key: int, version: int, kind: str) -> Reader:
    """Reads one message from a cursor; raises MalformedError on anything that does not fit."""
    read = general_decoder(api_key, version, kind)
    read_fast = fast_codec.reader_of(api_key, version) if kind == REQUEST else None
    if read_fast is None:
        return read
    return lambda cursor: read_fast(cursor) or read(cursor)


def encoder(api_key: int, version: int, kind: str) -> Writer:
    """Appends one message, given as a dict of the fields that differ from their defaults."""
    write = general_encoder(api_key, version, kind)
    write_fast = fast_codec.writer_of(api_key, version) if kind == RESPONSE else None
    if write_fast is None:
        return write

    def write_either(out: Frame, fields: Mapping[str, Any]) -> None:
        if not write_fast(out, fields):
            write(out, fields)

    return write_either


def general_decoder(api_key: int, version: int, kind: str) -> Reader:
    """The decoder of any message, by its schema."""
    return checked(_message(api_key, version, kind).read)


def general_encoder(api_key: int, version: int, kind: str) -> Writer:
    """The encoder of any message, by its schema."""
    return _message(api_key, version, kind).write


# --- structures -------------------------------------------------------------------------------


def _structure(
    path: tuple[Any, ...], fields: tuple[Field, ...], family: tuple[Field, ...], version: int, flexible: bool
) -> ValueCodec:
    """The codec of one version's fields; its shape has those of the whole family, all versions' fields."""
    kind = shape(path, family)
    present = [
        (field, _field((*path, field.name), field, fields_of(family, field.name), version, flexible))
        for field in fields
        if field.first <= version <= field.last
    ]
    plain = [(field, codec) for field, codec in present if field.tag is None]
    tagged = {field.tag: (field, codec) for field, codec in present if field.tag is not None}
    return ValueCodec(
        _structure_reader(kind, plain, tagged, flexible),
        _structure_writer(kind, plain, tagged, flexible),
        sum(codec.least_bytes for _, codec in plain) + flexible,
    )


def _field(
    path: tuple[Any, ...], field: Field, family: tuple[Field, ...], version: int, flexible: bool
) -> ValueCodec:
    if field.kind == "struct":
        codec = _structure(path, field.of, family, version, flexible)
    else:
        codec = _value(field, flexible, field.nullable and not field.array)
    if field.array:
        return ValueCodec(*array(codec, flexible, field.nullable), 1 if flexible else 4)
    return _nullable_structure(codec) if field.kind == "struct" and field.nullable else codec


def _value(field: Field, flexible: bool, nullable: bool) -> ValueCodec:
    if field.kind in FIXED:
        return ValueCodec(*FIXED[field.kind])
    if field.kind == "uuid":
        return UUID
    return ValueCodec(*blob(field.kind, flexible, nullable), 1 if flexible else 2)


def _nullable_structure(codec: ValueCodec) -> ValueCodec:
    """A structure behind a byte that says whether it is there (KIP-893)."""
    read_inner, write_inner = codec.read, codec.write

    def read(cursor: Cursor) -> Any:
        return None if _read_int8(cursor) < 0 else read_inner(cursor)

    def write(out: Frame, value: Any) -> None:
        _write_int8(out, -1 if value is None else 1)
        if value is not None:
            write_inner(out, value)

    return ValueCodec(read, write, 1)


Tagged = Mapping[int, tuple[Field, ValueCodec]]


def _runs(
    plain: list[tuple[Field, ValueCodec]],
) -> Iterator[tuple[struct.Struct | None, list[Field], ValueCodec]]:
    """Neighbours of a fixed width together, to be read and written in one go; the others one by one."""
    for fixed, run in groupby(plain, key=lambda each: each[0].kind in FORMS and not each[0].array):
        if fixed:
            fields, codecs = zip(*run, strict=True)
            yield struct.Struct(">" + "".join(FORMS[field.kind] for field in fields)), list(fields), codecs[0]
        else:
            yield from ((None, [field], codec) for field, codec in run)


def _structure_reader(
    kind: type[Fields], plain: list[tuple[Field, ValueCodec]], tagged: Tagged, flexible: bool
) -> Reader:
    steps = [
        _run_reader(form, fields) if form is not None else _field_reader(fields[0].name, codec.read)
        for form, fields, codec in _runs(plain)
    ]
    new = kind.__new__

    def read(cursor: Cursor) -> Fields:
        values: dict[str, Any] = {}
        for step in steps:
            step(cursor, values)
        if flexible:
            position = cursor.position
            if cursor.buffer[position]:
                read_tags(cursor, tagged, values)
            else:  # no tagged fields, as almost always
                cursor.position = position + 1
        fields = new(kind)
        fields.__dict__ = values
        return fields

    return read


FieldStep = Callable[[Cursor, dict[str, Any]], None]


def _run_reader(form: struct.Struct, fields: list[Field]) -> FieldStep:
    names, unpack_from, size = [field.name for field in fields], form.unpack_from, form.size

    def step(cursor: Cursor, values: dict[str, Any]) -> None:
        position = cursor.position
        values.update(zip(names, unpack_from(cursor.buffer, position), strict=True))
        cursor.position = position + size

    return step


def _field_reader(name: str, read: Reader) -> FieldStep:
    def step(cursor: Cursor, values: dict[str, Any]) -> None:
        values[name] = read(cursor)

    return step


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
    kind: type[Fields], plain: list[tuple[Field, ValueCodec]], tagged: Tagged, flexible: bool
) -> Writer:
    steps = [
        _run_writer(form, fields) if form is not None else _field_writer(fields[0], codec.write)
        for form, fields, codec in _runs(plain)
    ]
    known: frozenset[str] = kind.known  # type: ignore[attr-defined]
    tagged_names = frozenset(field.name for field, _ in tagged.values())

    def write(out: Frame, values: Mapping[str, Any]) -> None:
        if not values.keys() <= known:
            raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(values.keys() - known))}")
        for step in steps:
            step(out, values)
        if flexible:
            if tagged_names.isdisjoint(values):
                out.append(0)
            else:
                _write_tagged(out, tagged, values)

    return write


def _run_writer(form: struct.Struct, fields: list[Field]) -> Writer:
    pairs, pack = [(field.name, field.default) for field in fields], form.pack

    def step(out: Frame, values: Mapping[str, Any]) -> None:
        get = values.get
        out += pack(*[get(name, default) for name, default in pairs])

    return step


def _field_writer(field: Field, write: Writer) -> Writer:
    # A structure that is not given is written with its fields' defaults.
    name, default = field.name, {} if _is_struct(field) and field.default is None else field.default

    def step(out: Frame, values: Mapping[str, Any]) -> None:
        write(out, values.get(name, default))

    return step


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
