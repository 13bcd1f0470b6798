"""How a value of PostgreSQL is written in JSON: from the server's text for it, by its type.

The same as Debezium's, with decimals as strings (`docs/reference/capture-postgres.md` has the
table). What has no encoding of its own stands as PostgreSQL writes it. Infinite dates and
times, which are no numbers, stand as `infinity` and `-infinity`. A float stands with the
digits that the server writes, so that a key has the same bytes whoever encodes it. Pure.
"""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import orjson

from headrace.errors import CorruptionError

__all__ = ["MALFORMED", "TYPES", "Encoding", "Kind", "TypeFacts", "encode", "encoder", "encoding_of"]

MALFORMED = (ValueError, IndexError, KeyError)

_DAY_US = 86_400_000_000
_COMMON_MOMENT = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?\+00", re.ASCII)
_MONTH_US = 2_629_800_000_000  # a twelfth of 365.25 days, as Debezium counts


class Kind(IntEnum):
    """How the text of one value is turned into JSON, as `rows.c` numbers it."""

    TEXT = 0
    INTEGER = 1
    BOOLEAN = 2
    FLOAT = 3
    DECIMAL = 4
    DECIMAL_AS_DOUBLE = 5
    DATE = 6
    TIME_MS = 7
    TIME_US = 8
    TIMETZ = 9
    TIMESTAMP_MS = 10
    TIMESTAMP_US = 11
    TIMESTAMPTZ = 12
    INTERVAL = 13
    BYTES = 14
    BITS = 15
    BIT = 16
    MONEY = 17


@dataclass(frozen=True, slots=True)
class Encoding:
    """The kind of a value, or of the elements of an array, which `delimiter` separates."""

    kind: Kind
    is_array: bool = False
    delimiter: str = ","


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """What the catalog says of a type: what a domain is of, what an array is of."""

    base_oid: int = 0
    base_modifier: int = -1
    element_oid: int = 0
    delimiter: str = ","


# Types whose values are not simply text, by oid; arrays and domains come from the catalog.
TYPES: Mapping[int, Kind] = {
    16: Kind.BOOLEAN,
    17: Kind.BYTES,
    20: Kind.INTEGER,
    21: Kind.INTEGER,
    23: Kind.INTEGER,
    26: Kind.INTEGER,
    700: Kind.FLOAT,
    701: Kind.FLOAT,
    790: Kind.MONEY,
    1082: Kind.DATE,
    1083: Kind.TIME_US,
    1114: Kind.TIMESTAMP_US,
    1184: Kind.TIMESTAMPTZ,
    1186: Kind.INTERVAL,
    1266: Kind.TIMETZ,
    1560: Kind.BITS,
    1562: Kind.BITS,
    1700: Kind.DECIMAL,
}
_BIT = 1560
_MOST_DOMAINS = 32  # of domains; the server does not let them go in circles
_MS_DIGITS = range(4)


def encoding_of(
    type_oid: int, type_modifier: int, facts: Mapping[int, TypeFacts], *, decimals: str = "string"
) -> Encoding:
    """How values of a column are encoded; `facts` has every domain and array among the types."""
    for _ in range(_MOST_DOMAINS):
        known = facts.get(type_oid)
        if known is None or not known.base_oid:
            break
        type_oid = known.base_oid
        type_modifier = known.base_modifier if type_modifier < 0 else type_modifier
    known = facts.get(type_oid)
    if known is not None and known.element_oid:
        inner = encoding_of(known.element_oid, type_modifier, facts, decimals=decimals)
        return Encoding(inner.kind, True, known.delimiter)
    return Encoding(_kind(type_oid, type_modifier, decimals))


def _kind(type_oid: int, type_modifier: int, decimals: str) -> Kind:
    kind = TYPES.get(type_oid, Kind.TEXT)
    if kind is Kind.TIMESTAMP_US and type_modifier in _MS_DIGITS:
        return Kind.TIMESTAMP_MS
    if kind is Kind.TIME_US and type_modifier in _MS_DIGITS:
        return Kind.TIME_MS
    if type_oid == _BIT and type_modifier == 1:
        return Kind.BIT
    if kind is Kind.DECIMAL and decimals == "double":
        return Kind.DECIMAL_AS_DOUBLE
    return kind


def encoder(encoding: Encoding) -> Callable[[bytes], bytes]:
    """What makes JSON of a value's text; it raises one of MALFORMED for a text that is none of its type."""
    scalar, delimiter = _SCALARS[encoding.kind], encoding.delimiter
    if encoding.is_array:
        return lambda text: _array(text.decode(), scalar, delimiter)
    if encoding.kind is Kind.INTEGER:
        return lambda text: text if text.isdigit() else _integer(text.decode())
    return lambda text: scalar(text.decode())


def encode(encoding: Encoding, text: bytes) -> bytes:
    """The JSON of a value; CorruptionError if the text is not one of its type."""
    try:
        return encoder(encoding)(text)
    except MALFORMED as error:
        raise CorruptionError(
            f"a value of PostgreSQL cannot be read as {encoding.kind.name.lower()}: {error}"
        ) from None


# --- one value ------------------------------------------------------------------------------------


def _text(text: str) -> bytes:
    return orjson.dumps(text)


def _integer(text: str) -> bytes:
    return b"%d" % int(text)


def _boolean(text: str) -> bytes:
    if text not in ("t", "f"):
        raise ValueError("neither t nor f")
    return b"true" if text == "t" else b"false"


def _float(text: str) -> bytes:
    if text in ("NaN", "Infinity", "-Infinity"):
        return orjson.dumps(text)
    float(text)
    return text.encode()


def _money(text: str) -> bytes:
    return orjson.dumps(text.replace("$", "").replace(",", ""))


def _date(text: str) -> bytes:
    return orjson.dumps(text) if _is_infinite(text) else b"%d" % _days(*_calendar(text)[:3])


def _time_us(text: str) -> bytes:
    return b"%d" % _clock_us(text)


def _time_ms(text: str) -> bytes:
    return b"%d" % (_clock_us(text) // 1000)


def _timetz(text: str) -> bytes:
    sign_at = max(text.rfind("+"), text.rfind("-"))
    offset = [int(part) for part in text[sign_at + 1 :].split(":")] + [0, 0]
    offset_s = (offset[0] * 60 + offset[1]) * 60 + offset[2]
    hours, minutes, seconds = text[:sign_at].split(":")
    whole, dot, fraction = seconds.partition(".")
    second = (int(hours) * 60 + int(minutes)) * 60 + int(whole)
    second = (second + (offset_s if text[sign_at] == "-" else -offset_s)) % 86_400
    clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}{dot}{fraction}Z"
    return orjson.dumps(clock)


def _timestamp_us(text: str) -> bytes:
    return orjson.dumps(text) if _is_infinite(text) else b"%d" % _since_1970_us(text)


def _timestamp_ms(text: str) -> bytes:
    return orjson.dumps(text) if _is_infinite(text) else b"%d" % (_since_1970_us(text) // 1000)


def _timestamptz(text: str) -> bytes:
    if _COMMON_MOMENT.fullmatch(text):
        return f'"{text[:10]}T{text[11:19]}.{text[20:-3]:0<6}Z"'.encode()
    if _is_infinite(text):
        return orjson.dumps(text)
    moment, era = (text[:-3], " BC") if text.endswith(" BC") else (text, "")
    if not moment.endswith("+00"):
        raise ValueError("not in UTC")
    year, month, day, clock = _calendar(moment[:-3] + era)
    whole, _, fraction = clock.partition(".")
    if len(whole) != len("00:00:00"):
        raise ValueError("no time of day")
    sign = "+" if year > 9999 else "-" if year < 0 else ""
    return f'"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{whole}.{fraction:0<6}Z"'.encode()


def _interval(text: str) -> bytes:
    if _is_infinite(text):
        return orjson.dumps(text)
    total, words = 0, text.split()
    while words:
        if ":" in words[0]:
            clock = words.pop(0)
            us = _clock_us(clock.lstrip("+-"))
            total += -us if clock.startswith("-") else us
            continue
        count, unit = int(words.pop(0)), words.pop(0)
        total += count * _UNITS[unit.rstrip("s")]
    return b"%d" % total


_UNITS = {"year": 12 * _MONTH_US, "mon": _MONTH_US, "day": _DAY_US}


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("no hexadecimal digits")
    return b'"%b"' % base64.b64encode(bytes.fromhex(text[2:]))


def _bits(text: str) -> bytes:
    """The lowest byte first."""
    return b'"%b"' % base64.b64encode(int(text or "0", 2).to_bytes((len(text) + 7) // 8, "little"))


def _bit(text: str) -> bytes:
    if text not in ("0", "1"):
        raise ValueError("neither 0 nor 1")
    return b"true" if text == "1" else b"false"


_SCALARS: Mapping[Kind, Callable[[str], bytes]] = {
    Kind.TEXT: _text,
    Kind.INTEGER: _integer,
    Kind.BOOLEAN: _boolean,
    Kind.FLOAT: _float,
    Kind.DECIMAL: _text,
    Kind.DECIMAL_AS_DOUBLE: _float,
    Kind.DATE: _date,
    Kind.TIME_MS: _time_ms,
    Kind.TIME_US: _time_us,
    Kind.TIMETZ: _timetz,
    Kind.TIMESTAMP_MS: _timestamp_ms,
    Kind.TIMESTAMP_US: _timestamp_us,
    Kind.TIMESTAMPTZ: _timestamptz,
    Kind.INTERVAL: _interval,
    Kind.BYTES: _bytes,
    Kind.BITS: _bits,
    Kind.BIT: _bit,
    Kind.MONEY: _money,
}


# --- dates and times ------------------------------------------------------------------------------


def _is_infinite(text: str) -> bool:
    return text in ("infinity", "-infinity")


def _since_1970_us(text: str) -> int:
    year, month, day, clock = _calendar(text)
    return _days(year, month, day) * _DAY_US + _clock_us(clock)


def _clock_us(text: str) -> int:
    hours, minutes, seconds = text.split(":")
    return (int(hours) * 60 + int(minutes)) * 60_000_000 + _seconds_us(seconds)


def _calendar(text: str) -> tuple[int, int, int, str]:
    """Year (0 is 1 BC), month, day, and the time of day or nothing."""
    is_bc = text.endswith(" BC")
    date, _, clock = (text[:-3] if is_bc else text).partition(" ")
    year, month, day = (int(part) for part in date.split("-"))
    if not (1 <= month <= 12 and 1 <= day <= 31):
        raise ValueError("no date")
    return (1 - year if is_bc else year), month, day, clock


def _days(year: int, month: int, day: int) -> int:
    """Days since 1970 in the Gregorian calendar, for any year."""
    year -= month <= 2
    era, of_era = divmod(year, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def _seconds_us(text: str) -> int:
    whole, _, fraction = text.partition(".")
    if len(fraction) > 6:
        raise ValueError("more than six digits of a second")
    return int(whole) * 1_000_000 + int(f"{fraction:0<6}")


# --- arrays ---------------------------------------------------------------------------------------


def _array(text: str, element: Callable[[str], bytes], delimiter: str) -> bytes:
    """`{1,NULL,"a b"}`, nested, perhaps behind its bounds (`[2:3]=`), which JSON cannot show."""
    at = text.index("{")
    if at and not (text[0] == "[" and text[at - 1] == "="):
        raise ValueError("no array")
    parts, depth = [], 0
    while at < len(text):
        if text[at] == "{":
            depth, at = depth + 1, at + 1
            parts.append(b"[")
        elif text[at] == "}":
            depth, at = depth - 1, at + 1
            parts.append(b"]")
        elif text[at] == delimiter:
            at += 1
            parts.append(b",")
        else:
            item, at = _quoted(text, at) if text[at] == '"' else _plain(text, at, delimiter)
            parts.append(b"null" if item is None else element(item))
        if not depth and at < len(text):
            raise ValueError("braces that do not match")
    if depth:
        raise ValueError("braces that do not match")
    return b"".join(parts)


def _quoted(text: str, at: int) -> tuple[str, int]:
    parts: list[str] = []
    at += 1
    while text[at] != '"':
        at += text[at] == "\\"
        parts.append(text[at])
        at += 1
    return "".join(parts), at + 1


def _plain(text: str, at: int, delimiter: str) -> tuple[str | None, int]:
    end = at
    while text[end] not in (delimiter, "}"):
        end += 1
    return (None if text[at:end] == "NULL" else text[at:end]), end
