"""Typed values as JSON and back: dataclasses, pydantic models, and what they are made of. Pure.

A value is written as plain JSON and read again by its type, so that nothing on the log names
a Python class: decimals, times, UUIDs and bytes are strings, enumerations are their values.
Pydantic is not needed; models are recognised by their own methods.
"""

import base64
import dataclasses
import enum
import math
import types
import typing
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from headrace.errors import ConfigError, RequestError

__all__ = [
    "fields_of",
    "from_json",
    "is_model",
    "json_schema",
    "spark_type",
    "to_json",
    "union_members",
    "with_fields",
]

_PLAIN = (str, int, float, bool, type(None))
_TEXT = {Decimal: "decimal", datetime: "date-time", date: "date", uuid.UUID: "uuid", bytes: "byte"}
_SCHEMAS = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_SPARK = {str: "string", int: "bigint", float: "double", bool: "boolean", datetime: "timestamp", date: "date"}


def is_model(kind: Any) -> bool:
    """Whether a type is a dataclass or a pydantic model: something with named, typed fields."""
    return isinstance(kind, type) and (dataclasses.is_dataclass(kind) or _is_pydantic(kind))


def _is_pydantic(kind: Any) -> bool:
    return hasattr(kind, "model_validate") and hasattr(kind, "model_dump")


def union_members(hint: Any) -> tuple[Any, ...]:
    """The types of `A | B`, or the one type that the hint is."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def to_json(value: Any) -> Any:
    """The value in plain JSON; raises ConfigError for a type that has no form there."""
    if isinstance(value, enum.Enum):
        return to_json(value.value)
    if isinstance(value, _PLAIN):
        return _finite(value)
    if _is_pydantic(type(value)):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {name: to_json(getattr(value, name)) for name in _shape(type(value)).hints}
    if isinstance(value, Mapping):
        return {str(to_json(name)): to_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted((to_json(each) for each in value), key=repr)
    return _text(value)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{value} has no form in JSON; a field without a value is None")
    return value


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, date):
        return value.isoformat()
    raise ConfigError(
        f"a value of type {type(value).__name__} has no form in JSON; use dataclasses, pydantic models, "
        "text, numbers, booleans, decimals, dates, times, UUIDs, bytes, enumerations, lists and mappings"
    )


def from_json(kind: Any, data: Any, where: str = "") -> Any:
    """The value of this type; raises RequestError that names the field if the data is not of it."""
    if kind is Any or kind is None or kind is type(None) or (type(data) is kind and kind in _PLAIN):
        return data
    origin = get_origin(kind)
    if origin is typing.Annotated:
        return from_json(get_args(kind)[0], data, where)
    if origin in (Union, types.UnionType):
        return _one_of(get_args(kind), data, where)
    if origin is Literal:
        return _literal(get_args(kind), data, where)
    if origin is not None or kind in (list, tuple, set, frozenset, dict):
        return _collection(origin or kind, get_args(kind), data, where)
    if is_model(kind):
        return _model(kind, data, where)
    return _scalar(kind, data, where)


def _one_of(kinds: Sequence[Any], data: Any, where: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    failures = []
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return from_json(kind, data, where)
        except RequestError as error:
            failures.append(str(error))
    raise RequestError(failures[0])


def _literal(choices: Sequence[Any], data: Any, where: str) -> Any:
    if data not in choices:
        raise _wrong(where, "one of " + ", ".join(map(repr, choices)), data)
    return data


def _collection(origin: Any, arguments: tuple[Any, ...], data: Any, where: str) -> Any:
    if origin in (dict, Mapping) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        if not isinstance(data, dict):
            raise _wrong(where, "an object", data)
        key, value = arguments or (str, Any)
        return {_key(key, name): from_json(value, each, _in(where, name)) for name, each in data.items()}
    if not isinstance(data, list):
        raise _wrong(where, "a list", data)
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        if len(data) != len(arguments):
            raise _wrong(where, f"a list of {len(arguments)}", data)
        pairs = zip(arguments, data, strict=True)
        return tuple(from_json(each, item, f"{where}[{at}]") for at, (each, item) in enumerate(pairs))
    inner = arguments[0] if arguments else Any
    found = [from_json(inner, each, f"{where}[{at}]") for at, each in enumerate(data)]
    return origin(found) if origin in (tuple, set, frozenset) else found


def _key(kind: Any, name: str) -> Any:
    return int(name) if kind is int else from_json(kind, name, name)


def _model(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(where, "an object", data)
    if _is_pydantic(kind):
        try:
            return kind.model_validate(data)
        except ValueError as error:
            raise RequestError(f"{where or kind.__name__}: {_first_line(error)}") from error
    shape = _shape(kind)
    if unknown := data.keys() - shape.given.keys():
        raise RequestError(f"{where or kind.__name__}: there is no field {sorted(unknown)[0]!r}")
    for name in shape.required:
        if name not in data:
            raise RequestError(f"{_in(where, name)} is missing")
    given = {name: from_json(shape.given[name], each, _in(where, name)) for name, each in data.items()}
    try:
        return kind(**given)
    except ValueError as error:  # of its __post_init__, as of a model's validators
        raise RequestError(f"{where or kind.__name__}: {error}") from error


def _first_line(error: ValueError) -> str:
    return "; ".join(str(error).splitlines()[1:3]).strip() or str(error)


@dataclasses.dataclass(frozen=True, slots=True)
class _Shape:
    """The types of a dataclass's fields; of those that it is made from; and which of these must be given."""

    hints: Mapping[str, Any]
    given: Mapping[str, Any]
    required: tuple[str, ...]


@lru_cache(maxsize=1_000)
def _shape(kind: type) -> _Shape:
    fields, hints = dataclasses.fields(kind), get_type_hints(kind, include_extras=True)
    given = [each for each in fields if each.init]
    required = [
        each.name
        for each in given
        if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
    ]
    return _Shape(
        {each.name: hints[each.name] for each in fields},
        {each.name: hints[each.name] for each in given},
        tuple(required),
    )


def _scalar(kind: Any, data: Any, where: str) -> Any:
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if kind in _PLAIN:
        if type(data) is not kind:
            raise _wrong(where, _SCHEMAS[kind], data)
        return data
    try:
        return _parsed(kind, data)
    except (ValueError, ArithmeticError, TypeError, KeyError):
        raise _wrong(where, _TEXT.get(kind, getattr(kind, "__name__", str(kind))), data) from None


def _parsed(kind: Any, data: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind(data)
    if kind is Decimal and isinstance(data, str | int) and not isinstance(data, bool):
        return Decimal(data)
    if not isinstance(data, str):
        raise TypeError
    if kind is datetime:
        moment = datetime.fromisoformat(data)
        return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    if kind is date:
        return date.fromisoformat(data)
    if kind is uuid.UUID:
        return uuid.UUID(data)
    if kind is bytes:
        return base64.b64decode(data, validate=True)
    raise TypeError


def _in(where: str, name: str) -> str:
    return f"{where}.{name}" if where else name


def _wrong(where: str, wanted: str, data: Any) -> RequestError:
    shown = repr(data)
    return RequestError(
        f"{where or 'value'}: expected {wanted}, got {shown[:60]}{'…' if len(shown) > 60 else ''}"
    )


# --- descriptions of types ------------------------------------------------------------------------


def json_schema(kind: Any) -> dict[str, Any]:
    """The type as a JSON schema, for the OpenAPI document."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return json_schema(arguments[0])
    if origin in (Union, types.UnionType):
        return {"anyOf": [json_schema(each) for each in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": json_schema(arguments[1])}
    if origin is not None or kind in (list, tuple, set, frozenset):
        return {"type": "array", **({"items": json_schema(arguments[0])} if arguments else {})}
    if _is_pydantic(kind):
        return dict(kind.model_json_schema())
    if dataclasses.is_dataclass(kind):
        return _dataclass_schema(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [each.value for each in kind]}
    if kind in _TEXT:
        return {"type": "string", "format": _TEXT[kind]}
    return {"type": _SCHEMAS[kind]} if kind in _SCHEMAS else {}


def _dataclass_schema(kind: Any) -> dict[str, Any]:
    shape = _shape(kind)
    return {
        "type": "object",
        "title": kind.__name__,
        "properties": {name: json_schema(each) for name, each in shape.given.items()},
        "required": list(shape.required),
        "additionalProperties": False,
    }


def fields_of(kind: Any) -> dict[str, Any]:
    """The fields of a model and their types."""
    if _is_pydantic(kind):
        return {
            name: typing.Annotated[(each.annotation, *each.metadata)] if each.metadata else each.annotation
            for name, each in kind.model_fields.items()
        }
    return dict(_shape(kind).hints)


def with_fields(value: Any, fields: Mapping[str, Any]) -> Any:
    """The model with other values of these fields, which are not checked."""
    if _is_pydantic(type(value)):
        return value.model_copy(update=dict(fields))
    return dataclasses.replace(value, **fields)


def spark_type(kind: Any) -> str:
    """The type in Spark's DDL, as the JSON of `to_json` is read; text where there is none."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is typing.Annotated:
        return spark_type(arguments[0])
    if origin in (Union, types.UnionType):
        kinds = {spark_type(each) for each in arguments if each is not type(None)}
        return kinds.pop() if len(kinds) == 1 else "string"
    if origin in (dict, Mapping):
        return f"map<string, {spark_type(arguments[1])}>"
    if origin in (list, set, frozenset, Sequence) or (origin is tuple and arguments[-1] is Ellipsis):
        return f"array<{spark_type(arguments[0])}>"
    if is_model(kind):
        inner = ", ".join(f"{name}: {spark_type(each)}" for name, each in fields_of(kind).items())
        return f"struct<{inner}>"
    return _SPARK.get(kind, "string")
