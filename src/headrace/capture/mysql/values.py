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

from headrace.capture.mysql.charsets import BINARY, decoder
from headrace.capture.mysql.decimals import decimal_bytes, read_decimal
from headrace.capture.mysql.json_binary import json_text

__all__ = [
    "MALFORMED",
    "Kind",
    "LoggedColumn",
    "Reader",
    "kind_of",
    "log_reader",
    "text_encoder",
    "type_code",
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


_TINY, _SHORT, _LONG, _FLOAT, _DOUBLE, _NULL, _OLD_TIMESTAMP, _LONGLONG, _INT24, _DATE = range(1, 11)
_OLD_TIME, _OLD_DATETIME, _YEAR, _NEWDATE, _VARCHAR, _BIT, _TIMESTAMP, _DATETIME, _TIME = range(11, 20)
_BLOB_COMPRESSED, _VARCHAR_COMPRESSED, _VECTOR = 140, 141, 242
_JSON, _DECIMAL, _ENUM, _SET, _BLOB, _VAR_STRING, _STRING, _GEOMETRY = (
    245, 246, 247, 248, 252, 253, 254, 255,
)  # fmt: skip
_BLOBS = (249, 250, 251, 252)
_POINT_TYPE = 1
_INTEGER_BYTES = {_TINY: 1, _SHORT: 2, _INT24: 3, _LONG: 4, _LONGLONG: 8}


def type_code(code: int, meta: int) -> tuple[int, int]:
    """The type that a CHAR's parameters hide (it may be an ENUM or a SET), and its length."""
    if code != _STRING:
        return code, meta
    first, second = meta & 0xFF, meta >> 8
    if first & 0x30 != 0x30:
        return first | 0x30, second | (first & 0x30 ^ 0x30) << 4
    return first, second


def kind_of(column: LoggedColumn) -> Kind | None:
    """What values of a logged column are in JSON; None for an unknown type."""
    code, meta = type_code(column.code, column.meta)
    if column.kind is not None:
        return column.kind
    if code in _INTEGER_BYTES:
        return Kind.INTEGER
    if code == _BIT:
        return Kind.BIT if (meta >> 8) * 8 + (meta & 0xFF) == 1 else Kind.BITS
    if code == _GEOMETRY:
        return Kind.POINT if column.geometry == _POINT_TYPE else Kind.GEOMETRY
    if code in (_VARCHAR, _VAR_STRING, _STRING, _VARCHAR_COMPRESSED, _BLOB_COMPRESSED, *_BLOBS):
        return Kind.BYTES if column.charset == BINARY else Kind.TEXT
    return _KINDS.get(code)


def log_reader(column: LoggedColumn) -> Reader:
    """What reads a value at a position: its JSON, and where it ends. ValueError for an unknown type."""
    code, meta = type_code(column.code, column.meta)
    if code in _INTEGER_BYTES:
        return _integer_reader(_INTEGER_BYTES[code], is_unsigned=column.is_unsigned)
    if code in _FIXED:
        return _FIXED[code]
    if code == _DECIMAL:
        return _decimal_reader(meta & 0xFF, meta >> 8)
    if code == _BIT:
        bits = (meta >> 8) * 8 + (meta & 0xFF)
        return _fixed((bits + 7) // 8, _bit if bits == 1 else _bits)
    if code in (_TIMESTAMP, _DATETIME, _TIME):
        return _moment_reader(code, meta)
    if code in (_ENUM, _SET):
        choose = _label if code == _ENUM else _labels
        return _fixed(meta, lambda data: _text(choose(int.from_bytes(data, "little"), column.labels)))
    encode = _encode_bytes(column, code, meta)
    if code in (_VARCHAR, _VAR_STRING, _STRING, _VARCHAR_COMPRESSED):
        return _counted(1 if meta < 256 else 2, encode)
    if code in (*_BLOBS, _BLOB_COMPRESSED, _JSON, _GEOMETRY, _VECTOR) and 1 <= meta <= 4:
        return _counted(meta, encode)
    raise ValueError(f"type {code} of column {column.name}")


def _encode_bytes(column: LoggedColumn, code: int, meta: int) -> Callable[[bytes], bytes]:
    """What makes JSON of the bytes of a value whose length is written before it."""
    if code == _JSON:
        return lambda data: _text(json_text(data))
    if code == _GEOMETRY:
        return _point if column.geometry == _POINT_TYPE else _geometry
    if code == _VECTOR:
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
    if code in (_VARCHAR_COMPRESSED, _BLOB_COMPRESSED):
        plain = encode
        return lambda data: plain(_inflated(data))
    if code == _STRING and column.charset == BINARY:  # the log leaves zeros at its end out
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
    head = {_TIMESTAMP: 4, _DATETIME: 5, _TIME: 3}[code]
    encode = {_TIMESTAMP: _timestamp_log, _DATETIME: _datetime_log, _TIME: _time_log}[code]
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
_KINDS = {
    _FLOAT: Kind.FLOAT, _DOUBLE: Kind.DOUBLE, _DATE: Kind.DATE, _NEWDATE: Kind.DATE, _YEAR: Kind.YEAR,
    _OLD_TIMESTAMP: Kind.TIMESTAMP, _OLD_TIME: Kind.TIME, _OLD_DATETIME: Kind.DATETIME,
    _TIMESTAMP: Kind.TIMESTAMP,
    _DATETIME: Kind.DATETIME, _TIME: Kind.TIME, _DECIMAL: Kind.DECIMAL, _ENUM: Kind.ENUM, _SET: Kind.SET,
    _JSON: Kind.JSON, _VECTOR: Kind.VECTOR,
}  # fmt: skip
_FIXED: dict[int, Reader] = {
    _FLOAT: _fixed(4, lambda data: _single(struct.unpack("<f", data)[0])),
    _DOUBLE: _fixed(8, lambda data: orjson.dumps(struct.unpack("<d", data)[0])),
    _DATE: _fixed(3, _date_log),
    _NEWDATE: _fixed(3, _date_log),
    _YEAR: _fixed(1, lambda data: b"%d" % (data[0] + 1900 if data[0] else 0)),
    _OLD_TIMESTAMP: _fixed(4, lambda data: _timestamp(int.from_bytes(data, "little"), 0, 0)),
    _OLD_TIME: _fixed(3, _old_time),
    _OLD_DATETIME: _fixed(8, _old_datetime),
    _NULL: lambda _, at: (b"null", at),
}
