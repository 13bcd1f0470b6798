"""One JSON value read field by field, in Python: what is wrong with it, or what is in it. No I/O.

The parser of whole blocks (`json_values`) says no more of a value than that it cannot be
read. Here it is said in the words of the schema: which field, what was
expected there and what was found. A fault has a *kind*, which is the same for all values
with the same fault, so that they can be counted, and a text that begins with it and quotes
the value. Texts are short and hold no control characters, whatever is in the value.

Also read here is what the parser of blocks does not know: maps, times with more digits than
microseconds have, and streams that are *lenient*, where

- numbers and booleans may be written as strings, and where a string is wanted as themselves;
- a whole number may be written as 3.0 or 1e3;
- a decimal with more digits than its scale is rounded, half to even;
- a timestamp may be written with small letters, `t` and `z`.

Where both can read a value, strict or lenient, they find the same.
"""

import json
import re
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_EVEN, Context, Decimal, InvalidOperation
from typing import Any, Never

import pyarrow as pa

__all__ = ["BOM", "Fault", "has_map", "read_document"]

BOM = b"\xef\xbb\xbf"

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WHOLE = re.compile(r"-?(?:0|[1-9][0-9]*)")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)(?:[ T](\d\d)(?::(\d\d)(?::(\d\d)(?:\.(\d+))?)?)?(Z|[+-]\d\d(?::?\d\d)?)?)?", re.ASCII
)
_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_NOT_FINITE = ("NaN", "Infinity", "-Infinity")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DIGITS = {"s": (9, 10), "ms": (12, 13), "us": (15, 16), "ns": (18, 19)}  # from 1973 to 2286
_QUOTED = 60
_MOST_DIGITS = 1_000  # of a number that becomes an integer or a decimal: more fit none
_EXACT = Context(prec=_MOST_DIGITS + 100)
_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
}


class Fault(Exception):  # noqa: N818 - what is wrong with a value, no failure of ours
    """Why a value cannot be read: `kind` for all alike, `text` for this one, which begins with the kind."""

    def __init__(self, kind: str, rest: str = "") -> None:
        super().__init__(kind + rest)
        self.kind = kind
        self.text = kind + rest


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


class _Twice:
    """What stands for a member that is there more than once."""


def has_map(kind: pa.DataType) -> bool:
    """Whether there is a map in a type, at any depth."""
    if pa.types.is_map(kind):
        return True
    return any(has_map(kind.field(at).type) for at in range(kind.num_fields))


def read_document(raw: bytes | None, fields: pa.Schema, *, lenient: bool = False) -> dict[str, Any]:
    """The fields of a value, each null where the value is null or lacks it; raises Fault if it is bad."""
    if raw is None:
        return dict.fromkeys(fields.names)
    document = _document(raw)
    if document is None:
        return dict.fromkeys(fields.names)
    if not isinstance(document, dict):
        raise Fault("value is not an object", f", but {_shown(document)}")
    return {field.name: _member(document, field, "", lenient) for field in fields}


# --- the document ---------------------------------------------------------------------------------


def _document(raw: bytes) -> Any:
    if not raw.strip():
        raise Fault("value is empty")
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise Fault("not UTF-8", f" at byte {error.start}") from None
    try:
        return json.loads(
            text, parse_float=_Number, parse_int=_Number, parse_constant=_Number, object_pairs_hook=_members
        )
    except json.JSONDecodeError as error:
        raise _syntax_fault(text, error) from None
    except RecursionError:
        raise Fault("nested too deeply") from None


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        found |= {name: _Twice() for name in found if names.count(name) > 1}
    return found


def _syntax_fault(text: str, error: json.JSONDecodeError) -> Fault:
    at = len(text[: error.pos].encode())
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated string"):
        return Fault("unexpected end of JSON", f" at byte {len(text.encode())}")
    if error.msg == "Extra data":
        return Fault("more than one JSON document in a value", f": the second begins at byte {at}")
    return Fault("not JSON", f" at byte {at}: {_quoted(text[error.pos : error.pos + 20])}")


# --- its fields -----------------------------------------------------------------------------------


def _member(document: dict[str, Any], field: pa.Field, path: str, lenient: bool) -> Any:
    return _value(document.get(field.name), field.type, path + field.name, lenient)


def _value(found: Any, kind: pa.DataType, path: str, lenient: bool) -> Any:
    if found is None:
        return None
    if isinstance(found, _Twice):
        raise Fault(f"{path}: given twice")
    if pa.types.is_struct(kind):
        _require(found, dict, kind, path)
        return {each.name: _member(found, each, f"{path}.", lenient) for each in kind}
    if pa.types.is_map(kind):
        return [
            (_text(name, f"{path}.*"), _value(each, kind.item_type, f"{path}.*", lenient))
            for name, each in _entries(found, kind, path)
        ]
    if pa.types.is_list(kind):
        _require(found, list, kind, path)
        return [_value(each, kind.value_type, f"{path}[]", lenient) for each in found]
    try:
        return _scalar(found, kind, path, lenient)
    except Fault as fault:
        if lenient or not _is_read_leniently(found, kind):
            raise
        raise Fault(fault.kind, fault.text.removeprefix(fault.kind) + "; lenient=True reads it") from None


def _is_read_leniently(found: Any, kind: pa.DataType) -> bool:
    """Whether a value that is refused would do for a lenient stream."""
    try:
        _scalar(found, kind, "", lenient=True)
    except Fault:
        return False
    return True


def _entries(found: Any, kind: pa.DataType, path: str) -> list[tuple[str, Any]]:
    """The entries of a map: an object, or, as derived topics have them, an array of [key, value]."""
    if not isinstance(found, list):
        _require(found, dict, kind, path)
        return list(found.items())
    if not all(isinstance(each, list) and len(each) == 2 and _is_string(each[0]) for each in found):
        _wrong(found, kind, path)
    return [(name, each) for name, each in found]


def _require(found: Any, wanted: type, kind: pa.DataType, path: str) -> None:
    if not isinstance(found, wanted):
        _wrong(found, kind, path)


def _scalar(found: Any, kind: pa.DataType, path: str, lenient: bool) -> Any:
    if pa.types.is_boolean(kind):
        return _boolean(found, kind, path, lenient)
    if pa.types.is_integer(kind):
        return _integer(found, kind, path, lenient)
    if pa.types.is_floating(kind):
        return _float(found, kind, path, lenient)
    if pa.types.is_decimal(kind):
        return _decimal(found, kind, path, lenient)
    if lenient and pa.types.is_string(kind) and isinstance(found, _Number | bool):
        return json.dumps(found) if isinstance(found, bool) else str(found)
    if not _is_string(found):
        _wrong(found, kind, path, _epoch_hint(found) if pa.types.is_timestamp(kind) else "")
    if pa.types.is_timestamp(kind):
        return _timestamp(found, path, lenient)
    if pa.types.is_date32(kind):
        return _date(found, path)
    text = _text(found, path)
    return text if pa.types.is_string(kind) else text.encode()


def _is_string(found: Any) -> bool:
    return isinstance(found, str) and not isinstance(found, _Number)


def _text(found: str, path: str) -> str:
    try:
        found.encode()
    except UnicodeEncodeError:
        raise Fault(f"{path}: half of a surrogate pair") from None
    return found


def _boolean(found: Any, kind: pa.DataType, path: str, lenient: bool) -> bool:
    if isinstance(found, bool):
        return found
    if not lenient or not _is_string(found) or found.strip().lower() not in ("true", "false"):
        _wrong(found, kind, path)
    return bool(found.strip().lower() == "true")


def _written_number(found: Any, lenient: bool) -> str | None:
    """The number as it is written; in a string, too, if that is allowed. None if it is no number."""
    if isinstance(found, _Number):
        return str(found)
    if lenient and _is_string(found) and _NUMBER.fullmatch(found.strip()):
        return str(found.strip())
    return None


def _integer(found: Any, kind: pa.DataType, path: str, lenient: bool) -> int:
    text = _written_number(found, lenient)
    if text is None or text in _NOT_FINITE or len(text) > _MOST_DIGITS:
        _wrong(found, kind, path)
    if _WHOLE.fullmatch(text):
        number = int(text)
    else:
        exact = Decimal(text)
        if not lenient or exact.adjusted() > _MOST_DIGITS or exact != exact.to_integral_value(context=_EXACT):
            _wrong(found, kind, path)
        number = int(exact)
    if not -(1 << kind.bit_width - 1) <= number < 1 << kind.bit_width - 1:
        raise Fault(f"{path}: out of range of {_name(kind)}", f": {_cut(text)}")
    return number


def _float(found: Any, kind: pa.DataType, path: str, lenient: bool) -> float:
    if found in _NOT_FINITE:  # in quotes, as derived topics have them, or bare, as Python writes them
        return float(found)
    text = _written_number(found, lenient)
    if text is None:
        _wrong(found, kind, path)
    number = float(text)
    if kind == pa.float32():  # from the text at once: a double between rounds twice
        number = pa.scalar(text).cast(kind).as_py()
    if number in (float("inf"), float("-inf")):
        raise Fault(f"{path}: out of range of {_name(kind)}", f": {_cut(text)}")
    return number


def _decimal(found: Any, kind: pa.DataType, path: str, lenient: bool) -> Decimal:
    if isinstance(found, _Number):
        text = str(found)
    elif _is_string(found):
        text = found.strip() if lenient else found
    else:
        _wrong(found, kind, path)
    if not _DECIMAL.fullmatch(text) or len(text) > _MOST_DIGITS:
        raise Fault(f"{path}: not a {_name(kind)}", f": {_shown(found)}")
    exact, unit = Decimal(text), Decimal(1).scaleb(-kind.scale)
    try:
        rounded = exact.quantize(unit, ROUND_HALF_EVEN, _EXACT)
    except InvalidOperation:
        rounded = None
    if rounded is None or len(rounded.as_tuple().digits) > kind.precision:
        raise Fault(f"{path}: too many digits for {_name(kind)}", f": {_cut(text)}")
    if rounded != exact and not lenient:
        raise Fault(f"{path}: too many digits behind the point for {_name(kind)}", f": {_cut(text)}")
    return rounded


def _timestamp(found: str, path: str, lenient: bool) -> int:
    matched = _TIMESTAMP.fullmatch(found.strip().upper() if lenient else found)
    if matched is None:
        _not_a("timestamp", found, path)
    day, hours, minutes, seconds, fraction, zone = matched.groups()
    try:
        moment = datetime.fromisoformat(f"{day}T{hours or '00'}:{minutes or '00'}:{seconds or '00'}+00:00")
        moment -= _offset(zone)
    except (ValueError, OverflowError):
        _not_a("timestamp", found, path)
    return (moment - _EPOCH) // timedelta(microseconds=1) + int(f"{fraction or '0':0<6}"[:6])


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone == "Z":
        return timedelta()
    hours, minutes = int(zone[1:3]), int(zone[-2:]) if len(zone) > 3 else 0
    if hours > 23 or minutes > 59:
        raise ValueError(zone)
    offset = timedelta(hours=hours, minutes=minutes)
    return -offset if zone.startswith("-") else offset


def _date(found: str, path: str) -> date:
    if not _DATE.fullmatch(found):
        _not_a("date", found, path)
    try:
        return date.fromisoformat(found)
    except ValueError:
        _not_a("date", found, path)


# --- words ----------------------------------------------------------------------------------------


def _wrong(found: Any, kind: pa.DataType, path: str, hint: str = "") -> Never:
    raise Fault(f"{path}: expected {_name(kind)}", f", got {_shown(found)}{hint}")


def _epoch_hint(found: Any) -> str:
    """How to declare a number where a timestamp is wanted: in which unit it is of our days, give or take."""
    if not isinstance(found, _Number) or not _WHOLE.fullmatch(found):
        return ""
    unit = next((unit for unit, digits in _EPOCH_DIGITS.items() if len(found) in digits), None)
    return "" if unit is None else f'; if it is time since 1970, declare it as long, with time_unit="{unit}"'


def _not_a(what: str, found: str, path: str) -> Never:
    raise Fault(f"{path}: not a {what}", f": {_quoted(found)}")


def _name(kind: pa.DataType) -> str:
    """The type as a schema has it."""
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_struct(kind):
        return "struct (an object)"
    if pa.types.is_map(kind):
        return "map (an object)"
    return "array" if pa.types.is_list(kind) else _NAMES.get(kind, str(kind))


def _shown(found: Any) -> str:
    if isinstance(found, dict | list):
        return "an object" if isinstance(found, dict) else "an array"
    if isinstance(found, _Number):
        return f"number {_cut(found)}"
    if isinstance(found, bool):
        return f"boolean {str(found).lower()}"
    return f"string {_quoted(found)}" if isinstance(found, str) else "null"


def _quoted(text: str) -> str:
    """As JSON writes it, in ASCII: nothing in it moves a terminal's cursor."""
    quoted = json.dumps(text[:_QUOTED])
    return quoted if len(text) <= _QUOTED else quoted[:-1] + '…"'


def _cut(number: str) -> str:
    return str(number) if len(number) <= _QUOTED else number[:_QUOTED] + "…"
