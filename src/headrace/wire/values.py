"""Values on the wire: fixed-width numbers, varints, strings, arrays.

A reader takes a `Cursor` and returns the value; a writer appends to a `Frame`.
Readers are bounded: an array may not claim more elements than the bytes left
could hold, nor may a message hold more than `MAX_ELEMENTS` of them in all, so
that what a message costs in memory follows from its size, not from what it says.
"""

import dataclasses
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import RequestError

__all__ = [
    "FIXED",
    "FORMS",
    "MAX_ELEMENTS",
    "UUID",
    "Cursor",
    "Deferred",
    "Fields",
    "Frame",
    "MalformedError",
    "Reader",
    "ValueCodec",
    "Writer",
    "array",
    "blob",
    "checked",
    "read_uvarint",
    "write_uvarint",
]

MAX_ELEMENTS = 50_000

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
        fields_of = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields_of})"


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

    def view(self, size: int) -> memoryview:
        """The next `size` bytes, not copied: record batches go from the frame to the disk as they are."""
        start = self.position
        if size < 0 or size > self.end - start:
            raise MalformedError(f"records of {size} bytes at {start} do not fit the message of {self.end}")
        self.position = start + size
        return memoryview(self.buffer)[start : self.position]


class Deferred(Protocol):
    """Bytes that are sent in their place in a frame without ever being in it."""

    size_bytes: int


class Frame(bytearray):
    """An encoded frame, and the places where deferred bytes belong."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.deferred: list[tuple[int, Deferred]] = []


Reader = Callable[[Cursor], Any]
Writer = Callable[[Frame, Any], None]


def checked(read: Reader) -> Reader:
    """The same reader, with everything that bytes can do to it turned into MalformedError."""

    def read_checked(cursor: Cursor) -> Any:
        try:
            return read(cursor)
        except (struct.error, IndexError):
            raise MalformedError("the message ends in the middle of a field") from None
        except UnicodeDecodeError:
            raise MalformedError("a string of the message is not UTF-8") from None

    return read_checked


# --- primitives -------------------------------------------------------------------------------


def _fixed(form: str) -> tuple[Reader, Writer, int]:
    packer = struct.Struct(">" + form)
    unpack_from, pack, size = packer.unpack_from, packer.pack, packer.size

    def read(cursor: Cursor) -> Any:
        value = unpack_from(cursor.buffer, cursor.position)[0]
        cursor.position += size
        return value

    def write(out: Frame, value: Any) -> None:
        out += pack(value)

    return read, write, size


FORMS = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float64": "d",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
"""Kinds of a fixed width, in the letters of `struct`."""

FIXED = {kind: _fixed(form) for kind, form in FORMS.items()}
_read_int16, _write_int16, _ = FIXED["int16"]
_read_int32, _write_int32, _ = FIXED["int32"]
_read_int8, _write_int8, _ = FIXED["int8"]


def read_uvarint(cursor: Cursor) -> int:
    """An unsigned varint of at most five bytes."""
    buffer, position = cursor.buffer, cursor.position
    byte = buffer[position]
    if byte < 0x80:  # nearly all of them
        cursor.position = position + 1
        return byte
    value = 0
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


def _write_uuid(out: Frame, value: uuid.UUID | None) -> None:
    out += value.bytes if value is not None else bytes(16)


@dataclasses.dataclass(frozen=True, slots=True)
class ValueCodec:
    """How one type is read and written, and the fewest bytes it takes."""

    read: Reader
    write: Writer
    least_bytes: int


UUID = ValueCodec(_read_uuid, _write_uuid, 16)


# --- lengths: legacy (fixed width, -1 is null) and compact (varint of length + 1, 0 is null) --


def _read_legacy_short(cursor: Cursor) -> int:
    length: int = _read_int16(cursor)
    return length


def _read_legacy_length(cursor: Cursor) -> int:
    length: int = _read_int32(cursor)
    return length


def _read_compact_length(cursor: Cursor) -> int:
    return read_uvarint(cursor) - 1


def _write_compact_length(out: Frame, length: int) -> None:
    write_uvarint(out, length + 1)


def blob(kind: str, flexible: bool, nullable: bool) -> tuple[Reader, Writer]:
    """Strings and byte strings, which differ in their length field and in being text."""
    text, records = kind == "string", kind == "records"
    write_length: Writer
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
        if records:
            return cursor.view(length)
        raw = cursor.take(length)
        return raw.decode() if text else raw

    def write(out: Frame, value: Any) -> None:
        if value is None:
            write_length(out, -1)
        elif records and not isinstance(value, bytes | bytearray | memoryview):
            write_length(out, value.size_bytes)
            out.deferred.append((len(out), value))
        else:
            raw = value.encode() if text else value
            write_length(out, len(raw))
            out += raw

    return read, write


def array(item: ValueCodec, flexible: bool, nullable: bool) -> tuple[Reader, Writer]:
    read_length = _read_compact_length if flexible else _read_legacy_length
    write_length: Writer = _write_compact_length if flexible else _write_int32
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

    def write(out: Frame, value: Sequence[Any] | None) -> None:
        if value is None:
            write_length(out, -1)
            return
        write_length(out, len(value))
        for element in value:
            write_item(out, element)

    return read, write
