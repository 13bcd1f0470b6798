"""How a value of MySQL stands in JSON: from the server's text for it, or from the binary log, alike.

The same as Debezium's, with decimals as strings (`docs/reference/capture-mysql.md` has the
table). A `Kind` says what the JSON is like. `text_encoder` makes it of what a SELECT answers,
`log_reader` of what an event has. Dates that are none (`0000-00-00`) are null. Pure.
"""

import base64
import ipaddress
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from functools import lru_cache

import orjson

from headrace.capture.mysql.decode.charsets import BINARY, decoder
from headrace.capture.mysql.decode.column_types import BLOBS, INTEGER_BYTES, STRINGS, type_code
from headrace.capture.mysql.decode.column_types import TypeCode as T
from headrace.capture.mysql.decode.decimals import decimal_bytes, read_decimal
from headrace.capture.mysql.decode.json_binary import json_text

__all__ = [
    "MALFORMED",
    "Kind",
    "LoggedColumn",
    "Reader",
    "kind_of",
    "log_reader",
    "text_encoder",
]

MALFORMED = (ValueError, IndexError, KeyError, OverflowError, struct.error, zlib.error, RecursionError)
Reader = Callable[[bytes, int], tuple[bytes, int]]

_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY_S = 86_400
_MS_DIGITS = 3


class Kind(StrEnum):
    """What values of a column are in JSON."""

    INTEGER = "integer"
    YEAR = "year"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    BIT = "bit"
    BITS = "bits"
    DATE = "date"
    TIME = "time"
    DATETIME = "datetime"
    TIMESTAMP = "timestamp"
    TEXT = "text"
    BYTES = "bytes"
    ENUM = "enum"
    SET = "set"
    JSON = "json"
    GEOMETRY = "geometry"
    POINT = "point"
    VECTOR = "vector"
    UUID = "uuid"
    INET4 = "inet4"
    INET6 = "inet6"


# --- JSON of one value ----------------------------------------------------------------------------


def _text(text: str) -> bytes:
    return orjson.dumps(text)


def _bytes(data: bytes) -> bytes:
    return b'"%b"' % base64.b64encode(data)


def _bit(data: bytes) -> bytes:
    return b"true" if data[-1] & 1 else b"false"


def _bits(data: bytes) -> bytes:
    """The lowest byte first."""
    return _bytes(data[::-1])


def _single(value: float) -> bytes:
    """The fewest digits that mean this number of four bytes."""
    packed = struct.pack("<f", value)
    for digits in range(6, 10):
        said = float(f"{value:.{digits}g}")
        if struct.pack("<f", said) == packed:
            break
    return orjson.dumps(said)


def _days(year: int, month: int, day: int) -> int | None:
    """Days since 1970; None for what is no date."""
    if not (year and month and day):
        return None
    return date(year, month, day).toordinal() - _EPOCH_DAY


def _date(year: int, month: int, day: int) -> bytes:
    days = _days(year, month, day)
    return b"null" if days is None else b"%d" % days


def _datetime(days: int | None, second: int, micros: int, digits: int) -> bytes:
    """Milliseconds since 1970 with up to three digits of a second, else microseconds."""
    if days is None:
        return b"null"
    whole = days * _DAY_S + second
    if digits <= _MS_DIGITS:
        return b"%d" % (whole * 1000 + micros // 1000)
    return b"%d" % (whole * 1_000_000 + micros)


def _timestamp(seconds: int, micros: int, digits: int) -> bytes:
    if not seconds and not micros:
        return b"null"
    days, second = divmod(seconds, _DAY_S)
    fraction = f".{micros:06d}"[: digits + 1] if digits else ""
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f'"{_iso_day(days)}T{clock}{fraction}Z"'.encode()


@lru_cache(4096)
def _iso_day(days: int) -> str:
    return date.fromordinal(days + _EPOCH_DAY).isoformat()


def _geometry(data: bytes) -> bytes:
    """The number of the spatial reference system, and the well-known binary of the value."""
    return b'{"wkb":%b,"srid":%b}' % (_bytes(data[4:]), _srid(data))


def _srid(data: bytes) -> bytes:
    number = int.from_bytes(data[:4], "little")
    return b"%d" % number if number else b"null"


def _point(data: bytes) -> bytes:
    order = "<" if data[4] == 1 else ">"
    x, y = struct.unpack_from(f"{order}dd", data, 9)
    said = orjson.dumps(x), orjson.dumps(y), _bytes(data[4:]), _srid(data)
    return b'{"x":%b,"y":%b,"wkb":%b,"srid":%b}' % said


def _vector(data: bytes) -> bytes:
    numbers = struct.unpack(f"<{len(data) // 4}f", data)
    return b"[" + b",".join(_single(each) for each in numbers) + b"]"


# --- from text ------------------------------------------------------------------------------------


def text_encoder(kind: Kind, digits: int = 0) -> Callable[[bytes], bytes]:
    """What makes JSON of the text that a SELECT answers; it raises one of MALFORMED for another text.

    `digits` are those of a second's fraction.
    """
    if kind is Kind.DATETIME:
        return lambda text: _datetime_text(text.decode(), digits)
    if kind is Kind.TIMESTAMP:
        return lambda text: _timestamp_text(text.decode(), digits)
    return _FROM_TEXT[kind]


def _integer_text(text: bytes) -> bytes:
    return b"%d" % int(text)


def _decimal_text(text: bytes) -> bytes:
    sign, digits = (b"-", text[1:]) if text[:1] == b"-" else (b"", text)
    float(digits)
    whole, point, fraction = digits.partition(b".")
    return b'"%b%b%b%b"' % (sign, whole.lstrip(b"0") or b"0", point, fraction)


def _date_text(text: bytes) -> bytes:
    year, month, day = text.split(b"-")
    return _date(int(year), int(month), int(day))


def _clock(text: str) -> tuple[int, int]:
    """Seconds and microseconds of `12:34:56.789`."""
    hours, minutes, seconds = text.split(":")
    whole, _, fraction = seconds.partition(".")
    return (int(hours) * 60 + int(minutes)) * 60 + int(whole), int(f"{fraction:0<6}")


def _time_text(text: bytes) -> bytes:
    said = text.decode()
    second, micros = _clock(said.lstrip("-"))
    whole = second * 1_000_000 + micros
    return b"%d" % (-whole if said[0] == "-" else whole)


def _moment_text(text: str) -> tuple[int | None, int, int]:
    day, _, clock = text.partition(" ")
    year, month, of_month = (int(each) for each in day.split("-"))
    return (_days(year, month, of_month), *_clock(clock))


def _datetime_text(text: str, digits: int) -> bytes:
    return _datetime(*_moment_text(text), digits)


def _timestamp_text(text: str, digits: int) -> bytes:
    days, second, micros = _moment_text(text)
    return b"null" if days is None else _timestamp(days * _DAY_S + second, micros, digits)


_FROM_TEXT: dict[Kind, Callable[[bytes], bytes]] = {
    Kind.INTEGER: _integer_text,
    Kind.YEAR: _integer_text,
    Kind.FLOAT: lambda text: _single(float(text)),
    Kind.DOUBLE: lambda text: orjson.dumps(float(text)),
    Kind.DECIMAL: _decimal_text,
    Kind.BIT: _bit,
    Kind.BITS: _bits,
    Kind.DATE: _date_text,
    Kind.TIME: _time_text,
    Kind.TEXT: lambda text: _text(text.decode("utf-8", "replace")),
    Kind.BYTES: _bytes,
    Kind.ENUM: lambda text: _text(text.decode("utf-8", "replace")),
    Kind.SET: lambda text: _text(text.decode("utf-8", "replace")),
    Kind.JSON: lambda text: _text(text.decode("utf-8", "replace")),
    Kind.GEOMETRY: _geometry,
    Kind.POINT: _point,
    Kind.VECTOR: _vector,
    Kind.UUID: lambda text: _text(text.decode("ascii")),
    Kind.INET4: lambda text: _text(text.decode("ascii")),
    Kind.INET6: lambda text: _text(text.decode("ascii")),
}


# --- from the binary log --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedColumn:
    """A column as a table map describes it: `code` and `meta` are MySQL's type and its parameters.

    `kind` is what only the catalog knows, of types that look like others in the log.
    """

    name: str
    code: int
    meta: int
    is_unsigned: bool = False
    charset: str = BINARY
    labels: Sequence[str] = ()
    geometry: int = 0
    kind: Kind | None = None


_POINT_TYPE = 1


def kind_of(column: LoggedColumn) -> Kind | None:
    """What values of a logged column are in JSON; None for an unknown type."""
    code, meta = type_code(column.code, column.meta)
    if column.kind is not None:
        return column.kind
    if code in INTEGER_BYTES:
        return Kind.INTEGER
    if code == T.BIT:
        return Kind.BIT if (meta >> 8) * 8 + (meta & 0xFF) == 1 else Kind.BITS
    if code == T.GEOMETRY:
        return Kind.POINT if column.geometry == _POINT_TYPE else Kind.GEOMETRY
    if code in (*STRINGS, T.VARCHAR_COMPRESSED, T.BLOB_COMPRESSED, *BLOBS):
        return Kind.BYTES if column.charset == BINARY else Kind.TEXT
    return _KINDS.get(code)


def log_reader(column: LoggedColumn) -> Reader:
    """What reads a value at a position: its JSON, and where it ends. ValueError for an unknown type."""
    code, meta = type_code(column.code, column.meta)
    if code in INTEGER_BYTES:
        return _integer_reader(INTEGER_BYTES[code], is_unsigned=column.is_unsigned)
    if code in _FIXED:
        return _FIXED[code]
    if code == T.DECIMAL:
        return _decimal_reader(meta & 0xFF, meta >> 8)
    if code == T.BIT:
        bits = (meta >> 8) * 8 + (meta & 0xFF)
        return _fixed((bits + 7) // 8, _bit if bits == 1 else _bits)
    if code in (T.TIMESTAMP, T.DATETIME, T.TIME):
        return _moment_reader(code, meta)
    if code in (T.ENUM, T.SET):
        choose = _label if code == T.ENUM else _labels
        return _fixed(meta, lambda data: _text(choose(int.from_bytes(data, "little"), column.labels)))
    encode = _encode_bytes(column, code, meta)
    if code in (*STRINGS, T.VARCHAR_COMPRESSED):
        return _counted(1 if meta < 256 else 2, encode)
    if code in (*BLOBS, T.BLOB_COMPRESSED, T.JSON, T.GEOMETRY, T.VECTOR) and 1 <= meta <= 4:
        return _counted(meta, encode)
    raise ValueError(f"type {code} of column {column.name}")


def _encode_bytes(column: LoggedColumn, code: int, meta: int) -> Callable[[bytes], bytes]:
    """What makes JSON of the bytes of a value whose length is written before it."""
    if code == T.JSON:
        return lambda data: _text(json_text(data))
    if code == T.GEOMETRY:
        return _point if column.geometry == _POINT_TYPE else _geometry
    if code == T.VECTOR:
        return _vector
    if column.kind in _NAMED:
        return _NAMED[column.kind]
    encode = _bytes
    if column.charset != BINARY:
        decode = decoder(column.charset)
        if decode is None:
            raise ValueError(f"the character set {column.charset} of column {column.name}")
        known = decode
        encode = lambda data: _text(known(data))  # noqa: E731
    if code in (T.VARCHAR_COMPRESSED, T.BLOB_COMPRESSED):
        plain = encode
        return lambda data: plain(_inflated(data))
    if code == T.STRING and column.charset == BINARY:  # the log leaves zeros at its end out
        return lambda data: _bytes(data.ljust(meta, b"\0"))
    return encode


def _fixed(size: int, encode: Callable[[bytes], bytes]) -> Reader:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        end = at + size
        if end > len(data):
            raise IndexError("it ends too early")
        return encode(data[at:end]), end

    return read


def _counted(width: int, encode: Callable[[bytes], bytes]) -> Reader:
    def read(data: bytes, at: int) -> tuple[bytes, int]:
        begin = at + width
        end = begin + (data[at] if width == 1 else int.from_bytes(data[at:begin], "little"))
        if end > len(data):
            raise IndexError("it ends too early")
        return encode(data[begin:end]), end

    return read


def _integer_reader(size: int, *, is_unsigned: bool) -> Reader:
    letter = {1: "b", 2: "h", 4: "i", 8: "q"}.get(size)
    if letter is None:
        return _fixed(size, lambda data: b"%d" % int.from_bytes(data, "little", signed=not is_unsigned))
    unpack = struct.Struct("<" + (letter.upper() if is_unsigned else letter)).unpack_from

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        return b"%d" % unpack(data, at)[0], at + size

    return read


def _decimal_reader(precision: int, scale: int) -> Reader:
    decimal_bytes(precision, scale)

    def read(data: bytes, at: int) -> tuple[bytes, int]:
        text, end = read_decimal(data, at, precision, scale)
        return b'"%b"' % text.encode(), end

    return read


def _date_log(data: bytes) -> bytes:
    packed = int.from_bytes(data, "little")
    return _date(packed >> 9, packed >> 5 & 15, packed & 31)


def _old_time(data: bytes) -> bytes:
    said = int.from_bytes(data, "little", signed=True)
    whole = abs(said)
    second = whole // 10_000 * 3600 + whole // 100 % 100 * 60 + whole % 100
    return b"%d" % ((-second if said < 0 else second) * 1_000_000)


def _old_datetime(data: bytes) -> bytes:
    said = int.from_bytes(data, "little")
    day, clock = divmod(said, 1_000_000)
    days = _days(day // 10_000, day // 100 % 100, day % 100)
    return _datetime(days, clock // 10_000 * 3600 + clock // 100 % 100 * 60 + clock % 100, 0, 0)


def _moment_reader(code: int, digits: int) -> Reader:
    fraction = (digits + 1) // 2
    if not 0 <= digits <= 6:
        raise ValueError(f"{digits} digits of a second")
    head = _MOMENT_BYTES[code]
    encode = _MOMENTS[code]
    unit = 10 ** (6 - 2 * fraction)
    return _fixed(head + fraction, lambda data: encode(data, head, unit, digits))


def _timestamp_log(data: bytes, head: int, unit: int, digits: int) -> bytes:
    return _timestamp(int.from_bytes(data[:head], "big"), int.from_bytes(data[head:], "big") * unit, digits)


def _datetime_log(data: bytes, head: int, unit: int, digits: int) -> bytes:
    packed = int.from_bytes(data[:head], "big") - (1 << 39)
    months, day, clock = packed >> 22, packed >> 17 & 31, packed & 0x1FFFF
    second = (clock >> 12) * 3600 + (clock >> 6 & 63) * 60 + (clock & 63)
    micros = int.from_bytes(data[head:], "big") * unit
    return _datetime(_days(months // 13, months % 13, day), second, micros, digits)


def _time_log(data: bytes, head: int, unit: int, digits: int) -> bytes:  # noqa: ARG001 - as the others
    """One number for both parts, above the middle of its range if it is not negative."""
    bits = 8 * (len(data) - head)
    packed = int.from_bytes(data, "big") - (1 << (23 + bits))
    whole, fraction = abs(packed) >> bits, abs(packed) & ((1 << bits) - 1)
    second = (whole >> 12 & 0x3FF) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
    micros = second * 1_000_000 + fraction * unit
    return b"%d" % (-micros if packed < 0 else micros)


def _label(number: int, labels: Sequence[str]) -> str:
    return labels[number - 1] if number else ""


def _labels(bits: int, labels: Sequence[str]) -> str:
    if bits >> len(labels):
        raise ValueError("a SET has more than its members")
    return ",".join(each for place, each in enumerate(labels) if bits >> place & 1)


def _inflated(data: bytes) -> bytes:
    """A value of a COMPRESSED column of MariaDB: how it is compressed, its length, and itself."""
    if not data or not data[0]:
        return data[1:]
    size, is_raw = data[0] & 7, bool(data[0] & 8)
    length = int.from_bytes(data[1 : 1 + size], "big")
    return zlib.decompressobj(-15 if is_raw else 15).decompress(data[1 + size :], length)


def _uuid_log(data: bytes) -> bytes:
    """MariaDB turns the parts of a UUID around, so that those of a node stand together."""
    raw = data.ljust(16, b"\0")
    turned = raw[12:16] + raw[10:12] + raw[8:10] + raw[6:8] + raw[0:6]
    has_time = turned[6] >> 4 in range(1, 6) and turned[8] & 0x80
    digits = (turned if has_time or raw[8] < 0x80 else raw).hex()
    return _text("-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])))


_NAMED: dict[Kind | None, Callable[[bytes], bytes]] = {
    Kind.UUID: _uuid_log,
    Kind.INET4: lambda data: _text(str(ipaddress.IPv4Address(data.ljust(4, b"\0")))),
    Kind.INET6: lambda data: _text(str(ipaddress.IPv6Address(data.ljust(16, b"\0")))),
}
_MOMENT_BYTES: dict[int, int] = {T.TIMESTAMP: 4, T.DATETIME: 5, T.TIME: 3}
_MOMENTS: dict[int, Callable[[bytes, int, int, int], bytes]] = {
    T.TIMESTAMP: _timestamp_log,
    T.DATETIME: _datetime_log,
    T.TIME: _time_log,
}
_KINDS: dict[int, Kind] = {
    T.FLOAT: Kind.FLOAT, T.DOUBLE: Kind.DOUBLE, T.DATE: Kind.DATE, T.NEWDATE: Kind.DATE, T.YEAR: Kind.YEAR,
    T.OLD_TIMESTAMP: Kind.TIMESTAMP, T.OLD_TIME: Kind.TIME, T.OLD_DATETIME: Kind.DATETIME,
    T.TIMESTAMP: Kind.TIMESTAMP,
    T.DATETIME: Kind.DATETIME, T.TIME: Kind.TIME, T.DECIMAL: Kind.DECIMAL, T.ENUM: Kind.ENUM, T.SET: Kind.SET,
    T.JSON: Kind.JSON, T.VECTOR: Kind.VECTOR,
}  # fmt: skip
_FIXED: dict[int, Reader] = {
    T.FLOAT: _fixed(4, lambda data: _single(struct.unpack("<f", data)[0])),
    T.DOUBLE: _fixed(8, lambda data: orjson.dumps(struct.unpack("<d", data)[0])),
    T.DATE: _fixed(3, _date_log),
    T.NEWDATE: _fixed(3, _date_log),
    T.YEAR: _fixed(1, lambda data: b"%d" % (data[0] + 1900 if data[0] else 0)),
    T.OLD_TIMESTAMP: _fixed(4, lambda data: _timestamp(int.from_bytes(data, "little"), 0, 0)),
    T.OLD_TIME: _fixed(3, _old_time),
    T.OLD_DATETIME: _fixed(8, _old_datetime),
    T.NULL: lambda _, at: (b"null", at),
}
