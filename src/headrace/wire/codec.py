"""Readers and writers compiled from kio's dataclasses.

A reader takes a `Cursor` and returns the value; a writer appends to a
bytearray. Both are compiled once per entity. Readers are bounded: an array may
not claim more elements than the bytes left could hold, nor may a message hold
more than `MAX_ELEMENTS` of them in all, so that what a message costs in memory
follows from its size and not from what it says.
"""

import dataclasses
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from kio.schema.index import api_key_map, schema_name_map

from headrace.errors import RequestError

__all__ = ["MAX_ELEMENTS", "Cursor", "Fields", "MalformedError", "decoder", "encoder"]

MAX_ELEMENTS = 200_000

INVALID_REQUEST = 42


class MalformedError(RequestError):
    """The bytes are not a message of the stated API and version; close the connection."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=INVALID_REQUEST)


class Fields:
    """A decoded structure: one attribute a field, for the union of all versions."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({inside})"


class Cursor:
    """A position in a message, and how many array elements it may still yield."""

    __slots__ = ("buffer", "elements_left", "end", "position")

    def __init__(self, buffer: bytes | bytearray | memoryview, position: int = 0) -> None:
        self.buffer = buffer
        self.position = position
        self.end = len(buffer)
        self.elements_left = MAX_ELEMENTS

    def take(self, size: int) -> bytes:
        """The next `size` bytes, copied."""
        start = self.position
        if size < 0 or size > self.end - start:
            raise MalformedError(f"a field of {size} bytes at {start} does not fit the message of {self.end}")
        self.position = start + size
        return bytes(self.buffer[start : self.position])


Reader = Callable[[Cursor], Any]
Writer = Callable[[bytearray, Any], None]


# --- primitives -------------------------------------------------------------------------------


def _fixed(form: str) -> tuple[Reader, Writer, int]:
    packer = struct.Struct(">" + form)
    unpack_from, pack, size = packer.unpack_from, packer.pack, packer.size

    def read(cursor: Cursor) -> Any:
        value = unpack_from(cursor.buffer, cursor.position)[0]
        cursor.position += size
        return value

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return read, write, size


_FIXED = {
    "bool": _fixed("?"),
    "int8": _fixed("b"),
    "int16": _fixed("h"),
    "int32": _fixed("i"),
    "int64": _fixed("q"),
    "uint16": _fixed("H"),
    "uint32": _fixed("I"),
    "uint64": _fixed("Q"),
    "float64": _fixed("d"),
    "error_code": _fixed("h"),
    "timedelta_i32": _fixed("i"),
    "timedelta_i64": _fixed("q"),
    "datetime_i64": _fixed("q"),
}
_read_int16, _write_int16, _ = _FIXED["int16"]
_read_int32, _write_int32, _ = _FIXED["int32"]
_read_int8, _write_int8, _ = _FIXED["int8"]


def read_uvarint(cursor: Cursor) -> int:
    """An unsigned varint of at most five bytes."""
    buffer, position, value = cursor.buffer, cursor.position, 0
    for shift in (0, 7, 14, 21, 28):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            cursor.position = position
            return value
    raise MalformedError(f"the varint at {cursor.position} has more than five bytes")


def write_uvarint(out: bytearray, value: int) -> None:
    """Appends an unsigned varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _read_uuid(cursor: Cursor) -> uuid.UUID | None:
    raw = cursor.take(16)
    return uuid.UUID(bytes=raw) if any(raw) else None


def _write_uuid(out: bytearray, value: uuid.UUID | None) -> None:
    out += value.bytes if value is not None else bytes(16)


# --- lengths: legacy (fixed width, -1 is null) and compact (varint of length + 1, 0 is null) --


def _read_legacy_short(cursor: Cursor) -> int:
    length: int = _read_int16(cursor)
    return length


def _read_legacy_length(cursor: Cursor) -> int:
    length: int = _read_int32(cursor)
    return length


def _read_compact_length(cursor: Cursor) -> int:
    return read_uvarint(cursor) - 1


def _write_compact_length(out: bytearray, length: int) -> None:
    write_uvarint(out, length + 1)


def _blob(kind: str, flexible: bool, nullable: bool) -> tuple[Reader, Writer]:
    """Strings and byte strings, which differ in their length field and in being text."""
    text = kind == "string"
    if flexible:
        read_length, write_length = _read_compact_length, _write_compact_length
    elif text:
        read_length, write_length = _read_legacy_short, _write_int16
    else:
        read_length, write_length = _read_legacy_length, _write_int32

    def read(cursor: Cursor) -> Any:
        length = read_length(cursor)
        if length == -1 and nullable:
            return None
        raw = cursor.take(length)
        return raw.decode() if text else raw

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            write_length(out, -1)
            return
        raw = value.encode() if text else value
        write_length(out, len(raw))
        out += raw

    return read, write


def _array(item: "Codec", flexible: bool, nullable: bool) -> tuple[Reader, Writer]:
    read_length = _read_compact_length if flexible else _read_legacy_length
    write_length = _write_compact_length if flexible else _write_int32
    read_item, write_item, least_bytes = item.read, item.write, max(item.least_bytes, 1)

    def read(cursor: Cursor) -> Any:
        length = read_length(cursor)
        if length == -1:
            # Some clients send null where the schema wants an array; both mean "none given".
            return None if nullable else ()
        if length < 0 or length * least_bytes > cursor.end - cursor.position:
            raise MalformedError(f"an array of {length} elements does not fit the message")
        cursor.elements_left -= length
        if cursor.elements_left < 0:
            raise MalformedError(f"a message holds more than {MAX_ELEMENTS} array elements")
        return tuple([read_item(cursor) for _ in range(length)])

    def write(out: bytearray, value: Sequence[Any] | None) -> None:
        if value is None:
            write_length(out, -1)
            return
        write_length(out, len(value))
        for element in value:
            write_item(out, element)

    return read, write


# --- structures -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Codec:
    """How one type is read and written, and the fewest bytes it takes."""

    read: Reader
    write: Writer
    least_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    tag: int | None
    codec: Codec
    default: Any


def _without_none(annotation: Any) -> tuple[Any, bool]:
    """The annotation without `| None`, and whether it had it."""
    if get_origin(annotation) is UnionType:
        inner = [part for part in get_args(annotation) if part is not NoneType]
        return inner[0], len(inner) < len(get_args(annotation))
    return annotation, False


def _plain(value: Any) -> Any:
    """A default of kio's in our vocabulary: milliseconds and integers."""
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime):
        return round(value.timestamp() * 1000)
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _default(field: Any, annotation: Any, nullable: bool, kind: str | None) -> Any:
    if field.default is not dataclasses.MISSING:
        value = _plain(field.default)
        return -1 if value is None and kind == "datetime_i64" else value
    if get_origin(annotation) is tuple:
        return ()
    if nullable or kind == "uuid":
        return -1 if kind == "datetime_i64" else None
    if kind is None:
        return {}
    return {"string": "", "bytes": b"", "records": b"", "bool": False}.get(kind, 0)


def _value_codec(annotation: Any, kind: str | None, flexible: bool, nullable: bool) -> Codec:
    if dataclasses.is_dataclass(annotation):
        codec = _structure(annotation)
        return _nullable_structure(codec) if nullable else codec
    assert kind is not None
    if kind in _FIXED:
        return Codec(*_FIXED[kind])
    if kind == "uuid":
        return Codec(_read_uuid, _write_uuid, 16)
    return Codec(*_blob(kind, flexible, nullable), 1 if flexible else 2)


def _nullable_structure(codec: Codec) -> Codec:
    """A structure behind a byte that says whether it is there (KIP-893)."""
    read_inner, write_inner = codec.read, codec.write

    def read(cursor: Cursor) -> Any:
        return None if _read_int8(cursor) < 0 else read_inner(cursor)

    def write(out: bytearray, value: Any) -> None:
        _write_int8(out, -1 if value is None else 1)
        if value is not None:
            write_inner(out, value)

    return Codec(read, write, 1)


def _field(field: Any, flexible: bool, legacy_text: bool) -> _Field:
    annotation, nullable = _without_none(field.type)
    kind = field.metadata.get("kafka_type")
    tag = field.metadata.get("tag")
    default = _default(field, annotation, nullable, kind)
    if get_origin(annotation) is tuple:
        item, _ = _without_none(get_args(annotation)[0])
        codec = Codec(*_array(_value_codec(item, kind, flexible, False), flexible, nullable), 1 if flexible else 4)
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
        _structure_reader(_union(entity), plain, tagged, entity.__flexible__),
        _structure_writer(_union(entity), plain, tagged, entity.__flexible__),
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

    def write(out: bytearray, values: Mapping[str, Any]) -> None:
        if not values.keys() <= known:
            raise TypeError(f"{shape.__name__} has no field {', '.join(sorted(values.keys() - known))}")
        for name, write_field, default in steps:
            write_field(out, values.get(name, default))
        if flexible:
            _write_tagged(out, tagged, values)

    return write


def _write_tagged(out: bytearray, tagged: Mapping[int, _Field], values: Mapping[str, Any]) -> None:
    present = [(tag, field) for tag, field in sorted(tagged.items()) if values.get(field.name, field.default) != field.default]
    write_uvarint(out, len(present))
    for tag, field in present:
        inner = bytearray()
        field.codec.write(inner, values[field.name])
        write_uvarint(out, tag)
        write_uvarint(out, len(inner))
        out += inner


# --- the union of a structure over all versions -----------------------------------------------


def _walk(entity: Any, path: tuple[str, ...]) -> Any:
    """The dataclass that stands at a path of field names below an entity, or None."""
    for name in path:
        field = next((field for field in dataclasses.fields(entity) if field.name == name), None)
        if field is None:
            return None
        annotation, _ = _without_none(field.type)
        if get_origin(annotation) is tuple:
            annotation, _ = _without_none(get_args(annotation)[0])
        if not dataclasses.is_dataclass(annotation):
            return None
        entity = annotation
    return entity


def _path_to(entity: Any, wanted: Any, path: tuple[str, ...] = ()) -> tuple[str, ...] | None:
    if entity is wanted:
        return path
    for field in dataclasses.fields(entity):
        below = _walk(entity, (field.name,))
        if below is not None:
            found = _path_to(below, wanted, (*path, field.name))
            if found is not None:
                return found
    return None


def _roots(entity: Any) -> list[Any]:
    """The same message in every version that has a schema, oldest first."""
    from pkgutil import resolve_name

    module = entity.__module__
    name = module.split(".")[2]
    versions = schema_name_map[name]
    kind = module.rsplit(".", 1)[1]
    found = []
    for version in sorted(versions):
        for entity_type, target in versions[version].items():
            if entity_type.name == kind:
                found.append(resolve_name(target))
    return found


@cache
def _union(entity: Any) -> type[Fields]:
    """A `Fields` class whose class attributes are the defaults of all versions' fields."""
    module = entity.__module__
    if not module.endswith((".request", ".response")):
        return _shape(entity.__name__, [entity])
    own_root = next(root for root in _roots(entity) if root.__module__ == module)
    path = _path_to(own_root, entity) or ()
    return _union_at(_roots(entity)[-1], path)


@cache
def _union_at(newest_root: Any, path: tuple[str, ...]) -> type[Fields]:
    twins = [twin for root in _roots(newest_root) if (twin := _walk(root, path)) is not None]
    return _shape(twins[-1].__name__, twins)


def _shape(name: str, twins: list[Any]) -> type[Fields]:
    defaults: dict[str, Any] = {}
    for twin in twins:
        for field in dataclasses.fields(twin):
            annotation, nullable = _without_none(field.type)
            default = _default(field, annotation, nullable, field.metadata.get("kafka_type"))
            defaults[field.name] = None if isinstance(default, dict) else default
    return type(name, (Fields,), {**defaults, "known": frozenset(defaults)})


# --- the surface ------------------------------------------------------------------------------


@cache
def message(api_key: int, version: int, kind: str) -> Any:
    """kio's dataclass of a message: kind is "request" or "response"."""
    from pkgutil import resolve_name

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
