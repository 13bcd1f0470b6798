"""MySQL's binary JSON, as the binary log has it, written as the text that MySQL writes for it. Pure.

A value is a byte for its type, and its contents. Objects and arrays begin with the number of their
members and their size, and have a table of where each member is; small ones count in two
bytes, large ones in four. Offsets are from the beginning of the object.
"""

import base64
import json
import struct
from collections.abc import Iterator

from headrace.capture.mysql.decode.decimals import read_decimal
from headrace.errors import CorruptionError

__all__ = ["json_text", "number_text"]

_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_INT16, _UINT16, _INT32, _UINT32, _INT64, _UINT64, _DOUBLE, _STRING = range(5, 13)
_OPAQUE = 15
_LITERALS = {0: "null", 1: "true", 2: "false"}
_NUMBERS = {
    _INT16: struct.Struct("<h"), _UINT16: struct.Struct("<H"), _INT32: struct.Struct("<i"),
    _UINT32: struct.Struct("<I"), _INT64: struct.Struct("<q"), _UINT64: struct.Struct("<Q"),
}  # fmt: skip
_DECIMAL, _DATE, _TIME, _DATETIME, _TIMESTAMP = 246, 10, 11, 12, 7
_MOST_DEPTH = 200  # MySQL itself takes 100
_MOST_DIGITS_PLAIN = 15


def json_text(data: bytes) -> str:
    """The text of a value; CorruptionError if the bytes are none."""
    if not data:
        return "null"
    try:
        return "".join(_value(data[0], data, 1, 0))
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise CorruptionError(f"a JSON value of MySQL cannot be read: {error}") from None


def _value(kind: int, data: bytes, at: int, depth: int) -> Iterator[str]:
    if depth > _MOST_DEPTH:
        raise ValueError("it is too deep")
    if kind in _NUMBERS:
        yield str(_NUMBERS[kind].unpack_from(data, at)[0])
    elif kind == _LITERAL:
        yield _LITERALS[data[at]]
    elif kind == _DOUBLE:
        yield number_text(struct.unpack_from("<d", data, at)[0])
    elif kind == _STRING:
        yield json.dumps(_counted(data, at).decode(), ensure_ascii=False)
    elif kind == _OPAQUE:
        yield _opaque(data[at], _counted(data, at + 1))
    elif kind in (_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY):
        yield from _container(kind, data, at, depth)
    else:
        raise ValueError(f"type {kind}")


def _container(kind: int, data: bytes, at: int, depth: int) -> Iterator[str]:
    is_object = kind in (_SMALL_OBJECT, _LARGE_OBJECT)
    width = 4 if kind in (_LARGE_OBJECT, _LARGE_ARRAY) else 2
    count, size = _number(data, at, width), _number(data, at + width, width)
    if size > len(data) - at or count * (width + 1) > size:
        raise ValueError("its size is wrong")
    inner = data[at : at + size]
    keys_at = 2 * width
    values_at = keys_at + (count * (width + 2) if is_object else 0)
    yield "{" if is_object else "["
    for place in range(count):
        if place:
            yield ", "
        if is_object:
            entry = keys_at + place * (width + 2)
            begin, length = _number(inner, entry, width), _number(inner, entry + width, 2)
            yield json.dumps(inner[begin : begin + length].decode(), ensure_ascii=False) + ": "
        entry = values_at + place * (width + 1)
        member = inner[entry]
        inline = member in (_LITERAL, _INT16, _UINT16) or (width == 4 and member in (_INT32, _UINT32))
        yield from _value(member, inner, entry + 1 if inline else _number(inner, entry + 1, width), depth + 1)
    yield "}" if is_object else "]"


def _number(data: bytes, at: int, width: int) -> int:
    if at + width > len(data):
        raise IndexError("it ends too early")
    return int.from_bytes(data[at : at + width], "little")


def _counted(data: bytes, at: int) -> bytes:
    """Bytes behind their number, of which each byte has seven bits, the lowest first."""
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            break
    if at + length > len(data):
        raise IndexError("it ends too early")
    return data[at : at + length]


def _opaque(kind: int, data: bytes) -> str:
    if kind == _DECIMAL:
        return read_decimal(data, 2, data[0], data[1])[0]
    if kind in (_DATE, _DATETIME, _TIMESTAMP, _TIME):
        return f'"{_moment(kind, int.from_bytes(data[:8], "little", signed=True))}"'
    return f'"base64:type{kind}:{base64.b64encode(data).decode()}"'


def _moment(kind: int, packed: int) -> str:
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    whole, micros = packed >> 24, packed & 0xFFFFFF
    if kind == _TIME:
        clock = f"{whole >> 12 & 0x3FF:02d}:{whole >> 6 & 0x3F:02d}:{whole & 0x3F:02d}"
        return f"{sign}{clock}.{micros:06d}"
    months, day = whole >> 22, whole >> 17 & 0x1F
    date = f"{months // 13:04d}-{months % 13:02d}-{day:02d}"
    if kind == _DATE:
        return date
    return f"{date} {whole >> 12 & 0x1F:02d}:{whole >> 6 & 0x3F:02d}:{whole & 0x3F:02d}.{micros:06d}"


def number_text(value: float) -> str:
    """A double as MySQL writes it within JSON: the fewest digits, an exponent only where it is long."""
    if value == 0:
        return "-0.0" if str(value)[0] == "-" else "0.0"
    mantissa, _, exponent = f"{value!r}e".partition("e")
    sign, mantissa = ("-", mantissa[1:]) if mantissa[0] == "-" else ("", mantissa)
    whole, _, fraction = mantissa.partition(".")
    fraction = "" if fraction == "0" else fraction
    point = len(whole) + int(exponent.strip("e") or 0)
    digits = (whole + fraction).lstrip("0")
    point -= len(whole + fraction) - len(digits)
    digits = digits.rstrip("0")
    if not -_MOST_DIGITS_PLAIN + 1 <= point <= _MOST_DIGITS_PLAIN:
        tail = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{tail}e{point - 1}"
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return f"{sign}{digits}{'0' * (point - len(digits))}.0"
    return f"{sign}{digits[:point]}.{digits[point:]}"
