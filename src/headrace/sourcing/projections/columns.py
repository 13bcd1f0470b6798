"""Rows of a projection as columns: the types of their fields, their values, and back. Pure.

Decimals have nine places, and times are kept in microseconds, in UTC. What has no type of its own in a
view store, such as a UUID, is text.
"""

import enum
import types
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pyarrow as pa

from headrace.errors import ConfigError, RequestError
from headrace.sourcing.values import fields_of, from_json, is_model, to_json

__all__ = ["arrow_type", "plain_value", "row_from_plain"]

_PLACES = Decimal("1e-9")
_LARGEST = 1 << 63
_ARROW = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    datetime: pa.timestamp("us", "UTC"),
    date: pa.date32(),
    Decimal: pa.decimal128(38, 9),
    uuid.UUID: pa.string(),
    bytes: pa.binary(),
}


def arrow_type(hint: Any, where: str) -> pa.DataType:
    """The column type of a field; raises ConfigError, naming `where`, if a view cannot keep its values."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return arrow_type(arguments[0], where)
    if origin in (Union, types.UnionType):
        return _only({arrow_type(each, where) for each in arguments if each is not type(None)}, where)
    if origin is Literal:
        return _only({arrow_type(type(each), where) for each in arguments}, where)
    if origin in (dict, Mapping):
        return pa.map_(pa.string(), arrow_type(arguments[1], where))
    if origin in (list, set, frozenset, Sequence) or (origin is tuple and arguments[-1] is Ellipsis):
        return pa.list_(arrow_type(arguments[0], where))
    if is_model(hint):
        return pa.struct(
            [(name, arrow_type(each, f"{where}.{name}")) for name, each in fields_of(hint).items()]
        )
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _only({arrow_type(type(each.value), where) for each in hint}, where)
    if hint in _ARROW:
        return _ARROW[hint]
    raise ConfigError(
        f"{where} is of type {getattr(hint, '__name__', hint)}, which no view keeps; use text, numbers, "
        "booleans, decimals, dates, times, UUIDs, bytes, enumerations, dataclasses, lists, and mappings "
        "from text"
    )


def _only(kinds: set[pa.DataType], where: str) -> pa.DataType:
    if len(kinds) != 1:
        names = ", ".join(sorted(map(str, kinds))) or "nothing"
        raise ConfigError(f"{where} may be {names}; a column has one type")
    return kinds.pop()


def plain_value(value: Any) -> Any:
    """The value as Arrow takes it; raises RequestError if a column cannot hold it."""
    if isinstance(value, enum.Enum):
        return plain_value(value.value)
    if isinstance(value, int) and not isinstance(value, bool) and not -_LARGEST <= value < _LARGEST:
        raise RequestError(f"{value} has more than 64 bits")
    if isinstance(value, datetime):
        return value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
    if isinstance(value, Decimal):
        return value.quantize(_PLACES)
    if isinstance(value, uuid.UUID):
        return str(value)
    if is_model(type(value)):
        return {name: plain_value(getattr(value, name)) for name in fields_of(type(value))}
    if isinstance(value, Mapping):
        return {str(plain_value(name)): plain_value(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain_value(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted((plain_value(each) for each in value), key=repr)
    return value


def row_from_plain(kind: type, plain: Mapping[str, Any]) -> Any:
    """A row from its values; raises RequestError if a field is not of its type."""
    return from_json(kind, to_json(plain))
