"""Arrow columns as PostgreSQL keeps them, and back, and what it cannot keep. Pure.

Every type has PostgreSQL's own of the same meaning; text is compared by its bytes
(COLLATE "C"). Arrays, structs and maps are `json`, not `jsonb`, which would lose the
sign of -0.0. Rows travel as CSV made by Arrow, without an object a value.
"""

import functools
import io
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from headrace.views.formats import dumps, from_json, to_json
from headrace.views.schema import is_nested

__all__ = ["declared_type", "decode", "misfits", "to_csv"]

LARGEST_KEY_BYTES = 2_600  # an entry of a B-tree has at most a third of a page, 2,704 bytes with its head


def declared_type(kind: pa.DataType) -> str:
    """PostgreSQL's type for a column."""
    types = pa.types
    if is_nested(kind):
        return "json"
    if types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if types.is_binary(kind) or types.is_large_binary(kind):
        return "bytea"
    return _PLAIN.get(kind.id, 'text COLLATE "C"')


_PLAIN = {
    pa.bool_().id: "boolean",
    pa.int8().id: "smallint",
    pa.int16().id: "smallint",
    pa.int32().id: "integer",
    pa.int64().id: "bigint",
    pa.float32().id: "real",
    pa.float64().id: "double precision",
    pa.date32().id: "date",
}


def to_csv(rows: pa.Table) -> bytes:
    """The rows for COPY … (FORMAT csv): nulls are empty, everything else is quoted."""
    columns = [_text(column) for column in rows.columns]
    table = pa.table(columns, names=[str(index) for index in range(len(columns))])
    out = io.BytesIO()
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="all_valid")
    pyarrow.csv.write_csv(table, out, options)
    return out.getvalue()


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    kind, types = column.type, pa.types
    if is_nested(kind):
        texts = [None if each is None else dumps(each) for each in to_json(column)]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if types.is_binary(kind) or types.is_large_binary(kind):
        texts = [None if each is None else "\\x" + each.hex() for each in column.to_pylist()]
        return pa.chunked_array([pa.array(texts, pa.string())])
    if types.is_timestamp(kind):
        # Without a zone first: Arrow asks its zone database for every value otherwise.
        plain = column.cast(pa.int64()).cast(pa.timestamp("us")).cast(pa.string())
        return pc.binary_join_element_wise(plain, "Z", "") if kind.tz else plain
    return column if types.is_string(kind) else column.cast(pa.string())


def decode(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An Arrow array of what the driver gave back."""
    return from_json(values, kind) if is_nested(kind) else pa.array(values, kind)


def misfits(rows: pa.Table, key: Sequence[str]) -> pa.Array | None:
    """`LimitedStore.misfits`: text has no U+0000, and an index takes keys up to a size."""
    causes = {}
    for name in rows.column_names:
        if pa.types.is_string(rows[name].type):
            causes[f"{name}: PostgreSQL's text cannot hold U+0000"] = pc.match_substring(rows[name], "\0")
    sizes = [pc.fill_null(pc.binary_length(rows[name]), 0) for name in key if _has_length(rows[name].type)]
    if sizes:
        size = functools.reduce(pc.add, sizes)
        words = f"the key has more than {LARGEST_KEY_BYTES:,} bytes, which PostgreSQL cannot index"
        causes[words] = pc.greater(size, LARGEST_KEY_BYTES)
    none = pa.scalar(None, pa.string())
    found = [pc.if_else(are, words, none) for words, are in causes.items() if pc.any(are).as_py()]
    return pc.coalesce(*found).combine_chunks() if found else None


def _has_length(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))
