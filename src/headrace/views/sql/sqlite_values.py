"""Arrow columns as values that SQLite keeps, exactly and readable, and back. Pure.

| type | in SQLite |
|---|---|
| integers | INTEGER (declared BIGINT) |
| boolean | INTEGER, 0 or 1 |
| double, float | REAL; NaN as the text 'NaN', since SQLite would make it null |
| string | TEXT |
| decimal | TEXT with all digits of its scale: 12.50 |
| timestamp | TEXT, 2026-01-31 12:00:00.000000Z; without the Z if it has no zone |
| date | TEXT, 2026-01-31 |
| binary | BLOB |
| array, struct, map | TEXT, JSON |

All of these sort as they should but decimals, which need `DECIMAL_COLLATION`. Columns
of doubles are declared without a type: SQLite would turn -0.0 into 0 in a REAL one.
"""

import decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headrace.views.arrow_lists import numbers, objects, through_dictionary, time_texts
from headrace.views.formats import dumps, from_json, to_json
from headrace.views.schema import is_nested

__all__ = ["DECIMAL_COLLATION", "compare_decimals", "declared_type", "decode", "encode", "encode_value"]

DECIMAL_COLLATION = "headrace_decimal"


def declared_type(kind: pa.DataType) -> str:
    """What stands behind the column's name in CREATE TABLE."""
    types = pa.types
    if types.is_integer(kind):
        return "BIGINT"  # a single INTEGER as primary key would be the row's number, and refuse null
    if types.is_boolean(kind):
        return "BOOLEAN"
    if types.is_floating(kind):
        return ""
    return "BLOB" if types.is_binary(kind) or types.is_large_binary(kind) else "TEXT"


def encode(column: pa.ChunkedArray) -> list[Any]:
    """The column's values as `sqlite3` takes them."""
    kind, types = column.type, pa.types
    if is_nested(kind):
        return [None if each is None else dumps(each) for each in to_json(column)]
    if types.is_timestamp(kind) or types.is_date(kind):
        return through_dictionary(column, time_texts)
    if types.is_decimal(kind):
        return objects(column.cast(pa.string()))
    if types.is_floating(kind):
        return _floats(column)
    if types.is_boolean(kind):
        return numbers(column.cast(pa.int8()))
    return numbers(column) if types.is_integer(kind) else objects(column)


def encode_value(value: Any, kind: pa.DataType) -> Any:
    """One value, as Python has it, for a comparison."""
    if pa.types.is_decimal(kind):
        return format(value, "f")  # may have more digits than the column; compared as a number
    return encode(pa.chunked_array([pa.array([value], kind)]))[0]


def decode(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow array of what SQLite gave back; raises an error for what was never encoded."""
    types = pa.types
    if is_nested(kind):
        return from_json([None if each is None else orjson.loads(each) for each in values], kind)
    if types.is_floating(kind):
        return pa.array([_number(each) if isinstance(each, str) else each for each in values], kind)
    if types.is_boolean(kind):
        return pa.array(values, pa.int8()).cast(kind)
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_decimal(kind):
        texts = pa.array(values, pa.string()).dictionary_encode()
        return texts.dictionary.cast(kind).take(texts.indices)
    return pa.array(values, kind)


def compare_decimals(left: str, right: str) -> int:
    """Text of decimals by their number; for `sqlite3.Connection.create_collation`."""
    first, second = decimal.Decimal(left), decimal.Decimal(right)
    return (first > second) - (first < second)


def _number(text: str) -> float:
    if text != "NaN":
        raise ValueError(f"{text!r} is no number")
    return float(text)


def _floats(column: pa.ChunkedArray) -> list[Any]:
    column = column.cast(pa.float64())
    values = numbers(column)
    for index in np.flatnonzero(pc.fill_null(pc.is_nan(column), False).to_numpy()).tolist():
        values[index] = "NaN"
    return values
