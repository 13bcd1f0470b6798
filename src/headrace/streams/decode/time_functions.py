"""The functions of an event-time expression, on Arrow columns: Spark's names, and what they do in Spark.

A function is checked against the types of its arguments once, and computed for many rows.
Rows for which Spark would raise fail with a sentence, and are null.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["DATE", "FUNCTIONS", "SPAN", "TIME", "Computed", "Function", "cast_function"]

TIME: Final = pa.timestamp("us", tz="UTC")
DATE: Final = pa.date32()
SPAN: Final = pa.duration("us")
TEXT: Final = pa.string()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLAIN = r"^\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,6})?$"
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})"
    r"(?:[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?\s*(Z|UTC|[+-]\d\d:\d\d)?)?"
)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})")
_RANGES = {pa.int32(): 2**31, pa.int64(): 2**63}


@dataclass(frozen=True, slots=True)
class Computed:
    """Values, null where there is none; and of the rows that failed, why."""

    values: pa.Array
    failed: dict[int, str] = field(default_factory=dict)


Compute = Callable[[list[Computed], int], Computed]


@dataclass(frozen=True, slots=True)
class Function:
    """A function for arguments of certain types: the type of its values, and how they are computed."""

    kind: pa.DataType
    compute: Compute


Check = Callable[[Sequence[pa.DataType], Sequence[Any]], Function | None]


def cast_function(source: pa.DataType, target: pa.DataType) -> Function | None:
    """`CAST(source AS target)`; None if that is not known here."""
    if source == target:
        return Function(target, lambda given, _: given[0])
    if target == TIME:
        return _to_time(source)
    if target == DATE:
        return _to_date(source)
    if target == TEXT and (pa.types.is_integer(source) or source == DATE):
        return Function(TEXT, lambda given, _: Computed(given[0].values.cast(TEXT), given[0].failed))
    if target in _RANGES and (source == TEXT or pa.types.is_integer(source)):
        return _each(lambda value: _within(int(value), target), target)
    if target == pa.float64() and (source == TEXT or _is_number(source)):
        return _each(float, target)
    return None


# --- texts into times -----------------------------------------------------------------------------


def _to_time(source: pa.DataType) -> Function | None:
    if source == TEXT:
        return Function(TIME, _parse_times)
    if source == DATE:
        return Function(TIME, lambda given, _: Computed(_utc(given[0].values), given[0].failed))
    return _since_epoch(1_000_000)((source,), ()) if _is_number(source) else None


def _to_date(source: pa.DataType) -> Function | None:
    if source == TIME:
        return _each(lambda value: value.date(), DATE)
    return _each(_date_in, DATE) if source == TEXT else None


def _parse_times(given: list[Computed], count: int) -> Computed:
    """ISO 8601 as Spark reads it; at once if all are plain, else one by one."""
    texts = given[0].values
    if pc.all(pc.match_substring_regex(texts, _PLAIN), min_count=0).as_py():
        try:
            return Computed(_utc(texts), given[0].failed)
        except pa.ArrowInvalid:
            pass  # a day that no month has: which row it is, is found out below
    return _mapped(_time_in, TIME, given, count)


def _utc(values: pa.Array) -> pa.Array:
    """Texts without a zone, or dates, as times in UTC."""
    return values.cast(pa.timestamp("us")).cast(pa.int64()).cast(TIME)


def _time_in(text: str) -> datetime:
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is not a timestamp")
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    clock = [int(each) for each in (hour, minute, second) if each is not None]
    micros = int((fraction or "")[:6].ljust(6, "0"))
    return _moment(text, [int(year), int(month), int(day), *clock], micros, zone)


def _moment(text: str, parts: Sequence[int], micros: int, zone: str | None) -> datetime:
    try:
        local = datetime(*parts, tzinfo=_zone(zone))  # type: ignore[arg-type, misc]
        return local.astimezone(UTC) + timedelta(microseconds=micros)
    except (ValueError, OverflowError):
        raise ValueError(f"{text!r} is not a timestamp") from None


def _zone(text: str | None) -> timezone:
    if text in (None, "Z", "UTC"):
        return UTC
    hours, minutes = text[1:].split(":") if ":" in text else (text[1:3], text[3:] or "0")
    span = timedelta(hours=int(hours), minutes=int(minutes))
    return timezone(-span if text[0] == "-" else span)


def _date_in(text: str) -> date:
    found = _DATE.fullmatch(text.strip())
    try:
        if found is not None:
            return date(*map(int, found.groups()))
    except ValueError:
        pass
    raise ValueError(f"{text!r} is not a date")


# --- patterns -------------------------------------------------------------------------------------

_LETTERS = {
    "yyyy": r"(?P<year>\d{4})",
    "MM": r"(?P<month>\d\d)",
    "M": r"(?P<month>\d{1,2})",
    "dd": r"(?P<day>\d\d)",
    "d": r"(?P<day>\d{1,2})",
    "HH": r"(?P<hour>\d\d)",
    "H": r"(?P<hour>\d{1,2})",
    "hh": r"(?P<half>\d\d)",
    "h": r"(?P<half>\d{1,2})",
    "a": r"(?P<noon>AM|PM|am|pm)",
    "mm": r"(?P<minute>\d\d)",
    "m": r"(?P<minute>\d{1,2})",
    "ss": r"(?P<second>\d\d)",
    "s": r"(?P<second>\d{1,2})",
    "XXX": r"(?P<zone>Z|[+-]\d\d:\d\d)",
    "XX": r"(?P<zone>Z|[+-]\d{4})",
}
_PATTERN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']")


def _pattern(text: str) -> re.Pattern[str] | None:
    """One of Java's patterns of times as a regular expression; None if it has what is not known here."""
    parts, at = [], 0
    while at < len(text):
        found = _PATTERN.match(text, at)
        if found is None:
            return None
        word, at = found[0], found.end()
        if found[2] is None:
            quoted = "'" if word == "''" else (found[1] or "").replace("''", "'")
            parts.append(re.escape(quoted if word.startswith("'") else word))
        elif set(word) == {"S"} and len(word) <= 6:
            parts.append(rf"(?P<fraction>\d{{{len(word)}}})")
        elif word in _LETTERS:
            parts.append(_LETTERS[word])
        else:
            return None
    try:
        pattern = re.compile("".join(parts))
    except re.error:  # a letter twice
        return None
    needed = {"year", "month", "day"} <= pattern.groupindex.keys()
    return pattern if needed and ("half" in pattern.groupindex) == ("noon" in pattern.groupindex) else None


def _time_by(pattern: re.Pattern[str]) -> Callable[[str], datetime]:
    def read(text: str) -> datetime:
        found = pattern.fullmatch(text)
        if found is None:
            raise ValueError(f"{text!r} is not of that pattern")
        named = found.groupdict()
        hour = int(named.get("hour") or 0)
        if named.get("half") is not None:
            if not 1 <= int(named["half"]) <= 12:
                raise ValueError(f"{text!r} is not a timestamp")
            hour = int(named["half"]) % 12 + (12 if named["noon"].upper() == "PM" else 0)
        clock = [hour, int(named.get("minute") or 0), int(named.get("second") or 0)]
        day = [int(named[each]) for each in ("year", "month", "day")]
        micros = int((named.get("fraction") or "").ljust(6, "0"))
        return _moment(text, [*day, *clock], micros, named.get("zone"))

    return read


# --- functions ------------------------------------------------------------------------------------


def _to_timestamp(*, lenient: bool = False) -> Check:
    def check(kinds: Sequence[pa.DataType], literals: Sequence[Any]) -> Function | None:
        if len(kinds) == 1:
            found = _to_time(kinds[0]) if kinds[0] != TIME else cast_function(TIME, TIME)
        else:
            is_pattern = len(kinds) == 2 and kinds[0] == TEXT and isinstance(literals[1], str)
            pattern = _pattern(literals[1]) if is_pattern else None
            found = None if pattern is None else _by_pattern(_time_by(pattern))
        if found is None or not lenient:
            return found
        compute = found.compute
        return Function(TIME, lambda given, count: _forgiven(compute(given, count), given))

    return check


def _by_pattern(read: Callable[[str], datetime]) -> Function:
    return Function(TIME, lambda given, count: _mapped(read, TIME, given[:1], count))


def _forgiven(computed: Computed, given: list[Computed]) -> Computed:
    """What fails here is null; what an argument has failed with stays."""
    before = {row for each in given for row in each.failed}
    return Computed(computed.values, {row: why for row, why in computed.failed.items() if row in before})


def _as_date(kinds: Sequence[pa.DataType], literals: Sequence[Any]) -> Function | None:
    del literals
    return cast_function(kinds[0], DATE) if len(kinds) == 1 else None


def _since_epoch(unit_us: int) -> Check:
    """Numbers since the epoch, of units of that many microseconds, or as many to a microsecond."""

    def check(kinds: Sequence[pa.DataType], literals: Sequence[Any]) -> Function | None:
        del literals
        is_whole = len(kinds) == 1 and pa.types.is_integer(kinds[0])
        slow = _each(lambda value: _EPOCH + timedelta(microseconds=int(value * unit_us)), TIME)
        if is_whole:
            return _at_once(lambda each: pc.multiply_checked(each.cast(pa.int64()), unit_us).cast(TIME), slow)
        return slow if list(kinds) == [pa.float64()] and unit_us == 1_000_000 else None

    return check


def _concat(kinds: Sequence[pa.DataType], literals: Sequence[Any]) -> Function | None:
    del literals
    casts = [cast_function(each, TEXT) for each in kinds]
    if not casts or any(each is None for each in casts):
        return None
    known = [each for each in casts if each is not None]

    def compute(given: list[Computed], count: int) -> Computed:
        texts = [cast.compute([each], count) for cast, each in zip(known, given, strict=True)]
        joined = pc.binary_join_element_wise(*[each.values for each in texts], "")
        return Computed(joined, _failures(texts))

    return Function(TEXT, compute)


def _coalesce(kinds: Sequence[pa.DataType], literals: Sequence[Any]) -> Function | None:
    del literals
    if len(set(kinds)) != 1:
        return None

    def compute(given: list[Computed], count: int) -> Computed:
        values, failed = given[0].values, dict(given[0].failed)
        for each in given[1:]:  # one behind a value, or behind a failure, is never asked
            missing = set(pc.indices_nonzero(values.is_null()).to_pylist()) - failed.keys()
            failed |= {row: why for row, why in each.failed.items() if row in missing}
            values = pc.coalesce(values, each.values)
        mask = pa.array([row in failed for row in range(count)]) if failed else None
        return Computed(values if mask is None else pc.if_else(mask, None, values), failed)

    return Function(kinds[0], compute)


def _substring(kinds: Sequence[pa.DataType], literals: Sequence[Any]) -> Function | None:
    numbers = [each for each in literals[1:] if isinstance(each, int) and each >= 1]
    if kinds[:1] != [TEXT] or len(numbers) != len(kinds) - 1 or not 1 <= len(numbers) <= 2:
        return None
    start = numbers[0] - 1
    stop = None if len(numbers) == 1 else start + numbers[1]
    return Function(
        TEXT,
        lambda given, _: Computed(pc.utf8_slice_codeunits(given[0].values, start, stop), given[0].failed),
    )


def _trim(kinds: Sequence[pa.DataType], literals: Sequence[Any]) -> Function | None:
    del literals
    return _each(lambda text: text.strip(" "), TEXT) if list(kinds) == [TEXT] else None


def _arithmetic(of: Callable[[Any, Any], Any], at_once: Callable[..., pa.Array]) -> Check:
    def check(kinds: Sequence[pa.DataType], literals: Sequence[Any]) -> Function | None:
        del literals
        if not all(map(_is_number, kinds)):
            return None
        if not all(map(pa.types.is_integer, kinds)):
            return _each(lambda left, right: float(of(left, right)), pa.float64())
        kind = pa.int64() if pa.int64() in kinds else pa.int32()
        slow = _each(lambda left, right: _within(of(left, right), kind), kind)
        return _at_once(lambda left, right: at_once(left.cast(kind), right.cast(kind)), slow)

    return check


def _moved(sign: int) -> Check:
    """A time, and a span that is added or taken away; or plain numbers."""
    at_once = pc.add_checked if sign > 0 else pc.subtract_checked
    numbers = _arithmetic(lambda left, right: left + sign * right, at_once)

    def check(kinds: Sequence[pa.DataType], literals: Sequence[Any]) -> Function | None:
        if list(kinds) == [TIME, SPAN] or (list(kinds) == [SPAN, TIME] and sign > 0):
            slow = _each(lambda left, right: left + right if sign > 0 else left - right, TIME)
            return _at_once(at_once, slow)
        return numbers(kinds, literals)

    return check


def _divide(left: float, right: float) -> float:
    return left / right


def _quotient(kinds: Sequence[pa.DataType], literals: Sequence[Any]) -> Function | None:
    del literals
    return _each(_divide, pa.float64()) if all(map(_is_number, kinds)) else None


FUNCTIONS: Final[dict[str, Check]] = {
    "to_timestamp": _to_timestamp(),
    "try_to_timestamp": _to_timestamp(lenient=True),
    "to_date": _as_date,
    "timestamp_seconds": _since_epoch(1_000_000),
    "timestamp_millis": _since_epoch(1_000),
    "timestamp_micros": _since_epoch(1),
    "concat": _concat,
    "coalesce": _coalesce,
    "substring": _substring,
    "trim": _trim,
    "+": _moved(1),
    "-": _moved(-1),
    "*": _arithmetic(lambda left, right: left * right, pc.multiply_checked),
    "/": _quotient,
    "||": _concat,
}


# --- rows one by one ------------------------------------------------------------------------------


def _each(of: Callable[..., Any], kind: pa.DataType) -> Function:
    return Function(kind, lambda given, count: _mapped(of, kind, given, count))


def _at_once(vector: Callable[..., pa.Array], slow: Function) -> Function:
    """A function of whole columns; row by row only if Arrow refuses them, to tell which row it is."""

    def compute(given: list[Computed], count: int) -> Computed:
        try:
            return Computed(vector(*[each.values for each in given]), _failures(given))
        except pa.ArrowInvalid:
            return slow.compute(given, count)

    return Function(slow.kind, compute)


def _mapped(of: Callable[..., Any], kind: pa.DataType, given: list[Computed], count: int) -> Computed:
    """A function of the arguments of each row; null if one is, failed if it raises."""
    failed = _failures(given)
    found: list[Any] = []
    for row, values in enumerate(zip(*[each.values.to_pylist() for each in given], strict=True)):
        value = None
        if row not in failed and None not in values:
            try:
                value = of(*values)
            except (ValueError, ArithmeticError) as error:
                failed[row] = _sentence(error, values)
        found.append(value)
    assert len(found) == count
    return Computed(pa.array(found, kind), failed)


def _sentence(error: Exception, values: Sequence[Any]) -> str:
    if type(error) is ValueError and " is not " in str(error):
        return str(error)
    shown = ", ".join(repr(each) for each in values)
    return f"{shown} is divided by zero" if isinstance(error, ZeroDivisionError) else f"{shown} does not fit"


def _failures(given: Sequence[Computed]) -> dict[int, str]:
    """Of each row the failure of its first argument that has failed."""
    return {row: why for each in reversed(given) for row, why in each.failed.items()}


def _within(value: int, kind: pa.DataType) -> int:
    if not -_RANGES[kind] <= value < _RANGES[kind]:
        raise OverflowError
    return value


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind)) or kind == pa.float64()
