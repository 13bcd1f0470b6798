"""NaN and the infinities in JSON, which has no numbers for them; no Spark, no I/O.

They are written as the strings "NaN", "Infinity" and "-Infinity", as Spark and protobuf do,
and read as numbers where a double or a float is declared. Arrow's parser knows them without
the quotes only: so these are taken off, at places of such columns and nowhere else.
"""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["unquoted_specials"]

_SPECIALS = frozenset({"NaN", "Infinity", "-Infinity"})
_QUOTED = r'"(?:NaN|-?Infinity)"'


class _Number(str):
    """A number as it is written."""

    __slots__ = ()


def unquoted_specials(values: pa.Array, fields: pa.Schema) -> pa.Array:
    """The same values, with bare NaN and Infinity where a column of floating numbers has them as text."""
    if not any(_has_floats(field.type) for field in fields):
        return values
    holding = pc.match_substring_regex(values, _QUOTED)
    if not pc.any(holding).as_py():
        return values
    kind = pa.struct(list(fields))
    found = [_rewritten(each, kind) for each in values.filter(holding).to_pylist()]
    return pc.replace_with_mask(values, holding, pa.array(found, values.type))


def _has_floats(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(
        _has_floats(kind.field(at).type) for at in range(kind.num_fields)
    )


def _rewritten(value: bytes, kind: pa.DataType) -> bytes:
    """One value, token by token the same but for the quotes; what is not JSON is left to the parser."""
    try:
        document = json.loads(
            value, parse_float=_Number, parse_int=_Number, parse_constant=_Number, object_pairs_hook=tuple
        )
        return "".join(_tokens(document, kind)).encode()
    except (ValueError, RecursionError):
        return value


def _tokens(found: Any, kind: pa.DataType | None) -> Iterator[str]:
    """JSON of what was read; `kind` is the type wanted here, None where nobody asks for it."""
    if isinstance(found, tuple):
        yield "{"
        for number, (name, member) in enumerate(found):
            yield f"{', ' if number else ''}{json.dumps(name)}: "
            yield from _tokens(member, _member_kind(kind, name))
        yield "}"
    elif isinstance(found, list):
        yield "["
        of_list = kind is not None and pa.types.is_list(kind)
        for number, item in enumerate(found):
            yield ", " if number else ""
            yield from _tokens(item, kind.value_type if of_list and kind is not None else None)
        yield "]"
    elif isinstance(found, _Number) or (_is_floating(kind) and found in _SPECIALS):
        yield str(found)
    else:
        yield json.dumps(found)


def _member_kind(kind: pa.DataType | None, name: str) -> pa.DataType | None:
    if kind is None or not pa.types.is_struct(kind):
        return None
    at = kind.get_field_index(name)
    return None if at < 0 else kind.field(at).type


def _is_floating(kind: pa.DataType | None) -> bool:
    return kind is not None and bool(pa.types.is_floating(kind))
