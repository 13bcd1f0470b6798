"""Rows of SQLite as JSON, value by value as they are stored, whatever their column declares.

| stored as | becomes |
|---|---|
| NULL | null |
| INTEGER | a number, all 64 bits of it; true and false for 1 and 0 in a column declared BOOLEAN |
| REAL | a number; "Infinity" and "-Infinity" as text (SQLite stores NaN as NULL) |
| TEXT | text; bytes that are not UTF-8 are replaced by U+FFFD |
| BLOB | text, base64 |
"""

import base64
import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from headrace.capture.change import Column

__all__ = [
    "ReplacedText",
    "Value",
    "cursor_of",
    "cursor_values",
    "is_infinite",
    "key_candidates",
    "row_encoder",
    "text",
]

Value = int | float | str | bytes | None

_INFINITE = (math.inf, -math.inf)


class ReplacedText(str):
    """Text that was stored otherwise: its bytes are not UTF-8."""

    __slots__ = ()


def text(raw: bytes) -> str:
    """Text as it is stored, or `ReplacedText`."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return ReplacedText(raw.decode("utf-8", "replace"))


def is_infinite(value: Value) -> bool:
    """Whether this is a number that JSON has no number for."""
    return value in _INFINITE


def row_encoder(columns: Sequence[Column]) -> Callable[[Sequence[Value]], bytes]:
    """A function from the values of these columns to a JSON object."""
    names = [each.name for each in columns]
    booleans = [at for at, each in enumerate(columns) if each.spark_type == "boolean"]

    def encode(values: Sequence[Value]) -> bytes:
        if booleans or any(each.__class__ is float and each in _INFINITE for each in values):
            values = [_special(each) for each in values]
            for at in booleans:
                values[at] = bool(values[at]) if values[at] in (0, 1) else values[at]
        return orjson.dumps(dict(zip(names, values, strict=True)), default=_base64)

    return encode


def _special(value: Value) -> Value:
    if isinstance(value, float) and is_infinite(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _base64(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is not a type of SQLite's")


def cursor_of(values: Sequence[Value]) -> list[list[Any]]:
    """Values of a key so that JSON keeps their types."""
    return [
        ["b", _base64(each)]
        if isinstance(each, bytes)
        else ["f", repr(each)]
        if isinstance(each, float)
        else ["v", each]
        for each in values
    ]


def cursor_values(cursor: Sequence[Sequence[Any]]) -> list[Value]:
    """The values that a cursor was made of."""
    made: dict[str, Callable[[Any], Value]] = {"b": base64.b64decode, "f": float, "v": lambda each: each}
    return [made[kind](said) for kind, said in cursor]


def key_candidates(said: Any) -> list[Value]:
    """The values that may have been encoded as this one."""
    if isinstance(said, bool):
        return [int(said)]
    if not isinstance(said, str):
        return [said]
    found: list[Value] = [said]
    if said in ("Infinity", "-Infinity"):
        found.append(float(said.replace("Infinity", "inf")))
    with contextlib.suppress(ValueError):
        found.append(base64.b64decode(said, validate=True))
    return found
