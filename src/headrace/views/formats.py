"""Arrow values as JSON and back, exactly; rows as CSV. Pure.

| type | in JSON |
|---|---|
| integers, boolean, string | as they are |
| double, float | a number; "NaN", "Infinity", "-Infinity" as text |
| decimal | text, with all digits of its scale |
| timestamp | text, 2026-01-31T12:00:00.000000Z; without the Z if it has no zone |
| date | text, 2026-01-31 |
| binary | text, base64 |
| array; struct; map | an array; an object; an array of [key, value] |

Null is null. Made for keys, changes and nested columns; stores convert millions of rows
column by column instead.
"""

import base64
import csv
import datetime
import decimal
import io
import math
from collections.abc import Callable
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headrace.views.arrow_lists import numbers, objects, through_dictionary, time_texts

__all__ = ["csv_line", "dumps", "from_json", "rows_to_csv", "rows_to_json", "to_json"]

Convert = Callable[[Any], Any]

_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def dumps(value: Any) -> str:
    """JSON text of what `to_json` made."""
    return orjson.dumps(value).decode()


def to_json(values: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values in JSON's types."""
    kind, types = values.type, pa.types
    if types.is_timestamp(kind) or types.is_date(kind):
        return through_dictionary(values, _time_texts)
    if types.is_string(kind) or types.is_large_string(kind):
        return objects(values)
    finite = types.is_floating(kind) and pc.all(pc.is_finite(values)).as_py()
    if finite or types.is_integer(kind) or types.is_boolean(kind):
        return numbers(values)
    convert = _encoder(kind)
    listed = values.to_pylist(maps_as_pydicts=None)
    if convert is None:
        return listed  # type: ignore[no-any-return]
    return [None if each is None else convert(each) for each in listed]


def from_json(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow array of what `to_json` made."""
    convert = _decoder(kind)
    if convert is not None:
        values = [None if each is None else convert(each) for each in values]
    return pa.array(values, kind)


def rows_to_json(rows: pa.Table) -> list[dict[str, Any]]:
    """Each row as an object."""
    names = rows.column_names
    return [
        dict(zip(names, each, strict=True))
        for each in zip(*(to_json(rows.column(index)) for index in range(len(names))), strict=True)
    ]


def rows_to_csv(rows: pa.Table) -> str:
    """CSV (RFC 4180) with a header line; null is empty, nested values are JSON."""
    columns = [to_json(column) for column in rows.columns]
    return csv_line(rows.column_names) + "".join(csv_line(row) for row in zip(*columns, strict=True))


def csv_line(values: Any) -> str:
    """One line, with its line end, of values in JSON's types."""
    text = io.StringIO(newline="")
    csv.writer(text).writerow([_cell(each) for each in values])
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return dumps(value) if isinstance(value, dict | list | tuple) else value


def _encoder(kind: pa.DataType) -> Convert | None:
    types = pa.types
    if types.is_floating(kind):
        return _encode_float
    if types.is_decimal(kind):
        return _encode_decimal
    if types.is_timestamp(kind):
        return _encode_timestamp if kind.tz else _encode_local
    if types.is_date(kind):
        return datetime.date.isoformat
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _encode_binary
    if types.is_map(kind):
        return _each_pair(_encoder(kind.key_type), _encoder(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return _each_item(_encoder(kind.value_type))
    return _each_field(kind, _encoder) if types.is_struct(kind) else None


def _decoder(kind: pa.DataType) -> Convert | None:
    types = pa.types
    if types.is_floating(kind):
        return _decode_float
    if types.is_decimal(kind):
        return decimal.Decimal
    if types.is_timestamp(kind):
        return datetime.datetime.fromisoformat
    if types.is_date(kind):
        return datetime.date.fromisoformat
    if types.is_binary(kind) or types.is_large_binary(kind):
        return base64.b64decode
    if types.is_map(kind):
        return _each_pair(_decoder(kind.key_type), _decoder(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind):
        return _each_item(_decoder(kind.value_type))
    return _each_field(kind, _decoder) if types.is_struct(kind) else None


def _time_texts(values: pa.Array) -> list[str]:
    return [each.replace(" ", "T") for each in time_texts(values)]


def _encode_float(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decode_float(value: float | str) -> float:
    return _SPECIAL[value] if isinstance(value, str) else value


def _encode_decimal(value: decimal.Decimal) -> str:
    return format(value, "f")


def _encode_timestamp(value: datetime.datetime) -> str:
    return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _encode_local(value: datetime.datetime) -> str:
    return value.isoformat(timespec="microseconds")


def _encode_binary(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _applied(convert: Convert | None, value: Any) -> Any:
    return value if value is None or convert is None else convert(value)


def _each_item(convert: Convert | None) -> Convert | None:
    if convert is None:
        return None
    return lambda items: [_applied(convert, each) for each in items]


def _each_pair(key: Convert | None, item: Convert | None) -> Convert:
    return lambda pairs: [(_applied(key, name), _applied(item, value)) for name, value in pairs]


def _each_field(kind: pa.DataType, choose: Callable[[pa.DataType], Convert | None]) -> Convert | None:
    chosen = {each.name: choose(each.type) for each in (kind.field(i) for i in range(kind.num_fields))}
    if not any(chosen.values()):
        return None
    return lambda fields: {name: _applied(chosen[name], value) for name, value in fields.items()}
