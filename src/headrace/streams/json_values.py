"""JSON values of records into Arrow columns, a block at a time; no Spark, no I/O.

Values that look alike are read as a table (`json_shapes`), which is faster than any JSON
parser. The others are joined into one text and parsed by Arrow in one go. A bad value
must not take its neighbours with it, nor shift them: each value is wrapped as

    {"v":<value>}

on a line of its own. A value that is not JSON breaks the parse, and the block is
halved until the value stands alone. A wrapper can never be swallowed by the value
before it (a string may not contain a line end, and no comma stands before the
wrapper), so there are never fewer rows than values, and an equal number means that
row and value correspond.

Arrow's parser crashes the process on `null` between two objects. A value can bring that
about only by closing its wrapper, so that `}` stands before `null`, which no value that
is one JSON document has outside of a string: such blocks are halved before they are parsed,
and such a value alone is parsed only if Python's own parser takes it for one document.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headrace.errors import ConfigError
from headrace.records.columns import Places
from headrace.streams.json_shapes import Shape, can_be_shaped

__all__ = ["Parsed", "check_fields", "parse_json"]

_OPEN, _CLOSE = b'{"v":', b"}\n"
_NULL_BEHIND_OBJECT = re.compile(rb"\}[ \t\r\n]*null")
_MAX_SHAPES = 8  # after so many the rest is left to the parser
_MIN_SHAPED = 8  # fewer values are not worth a table
_MAX_TEXT_BYTES = 256 << 20  # Arrow's positions inside one block have 32 bits


@dataclass(frozen=True, slots=True)
class Parsed:
    """One column per field, and the reason why a value could not be read (null where it could)."""

    columns: tuple[pa.Array, ...]
    reasons: pa.Array

    @property
    def bad_count(self) -> int:
        return len(self.reasons) - int(self.reasons.null_count)


def check_fields(fields: pa.Schema) -> None:
    """Raises ConfigError naming a field whose type cannot be read from JSON."""
    for field in fields:
        try:
            _parse_block(pa.array([b"{}"], pa.binary()), pa.schema([field]))
        except pa.ArrowNotImplementedError:
            raise ConfigError(
                f"column {field.name!r} of type {field.type} cannot be read from JSON values; "
                "declare it as string, number, boolean, date, timestamp, or array or struct of these"
            ) from None


def parse_json(values: Places, fields: pa.Schema) -> Parsed:
    """The fields of every value, in order; null where a value is null, lacks the field or is bad.

    Fields that the schema does not name are ignored. A value of another type than
    declared makes the whole value bad: nothing is guessed.
    """
    pieces = list(_pieces(values, fields))
    if len(pieces) == 1:
        return Parsed(pieces[0].columns, pieces[0].reasons)
    columns = tuple(
        pa.concat_arrays([piece.columns[at] for piece in pieces]) if pieces else pa.nulls(0, field.type)
        for at, field in enumerate(fields)
    )
    reasons = pa.concat_arrays([piece.reasons for piece in pieces] or [pa.nulls(0, pa.string())])
    if not pieces:
        return Parsed(columns, reasons)
    order = pa.array(np.argsort(np.concatenate([piece.rows for piece in pieces])))
    return Parsed(tuple(column.take(order) for column in columns), reasons.take(order))


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some of a block's values, read: their rows in the block, and what was found."""

    rows: npt.NDArray[np.int64]
    columns: tuple[pa.Array, ...]
    reasons: pa.Array


def _pieces(values: Places, fields: pa.Schema) -> Iterator[_Piece]:
    """The values of a few shapes first, then the rest; together, each value once."""
    rows = np.arange(len(values))
    for _ in range(_MAX_SHAPES if can_be_shaped(fields) else 0):
        if len(values) < _MIN_SHAPED:
            break
        shape = _shape(values)
        read = None if shape is None else shape.read(values, fields)
        if read is None:
            break
        alike, columns = read
        found = int(np.count_nonzero(alike))
        if found < max(_MIN_SHAPED, len(values) // _MAX_SHAPES):
            break
        yield _Piece(rows[alike], columns, pa.nulls(found, pa.string()))
        if found == len(values):
            return
        values, rows = values.at(~alike), rows[~alike]
    if len(values):
        parts = _parse_halving(values.column().fill_null(b"{}"), fields)
        structs = pa.concat_arrays([struct for struct, _ in parts])
        reasons = pa.concat_arrays([reason for _, reason in parts])
        yield _Piece(rows, tuple(structs.flatten()), reasons)


def _shape(values: Places) -> Shape | None:
    """The shape of the first, the middle or the last value: one of them may be or hold a null, or be bad."""
    for at in (0, len(values) // 2, len(values) - 1):
        shape = Shape.of(values[at] or b"")
        if shape is not None:
            return shape
    return None


def _parse_halving(values: pa.Array, fields: pa.Schema) -> list[tuple[pa.StructArray, pa.Array]]:
    try:
        return [(_parse_block(values, fields), pa.nulls(len(values), pa.string()))]
    except pa.ArrowInvalid as error:
        if len(values) == 1:
            return [(pa.nulls(1, pa.struct(list(fields))), pa.array([_reason(error)]))]
    middle = len(values) // 2
    return _parse_halving(values[:middle], fields) + _parse_halving(values[middle:], fields)


def _parse_block(values: pa.Array, fields: pa.Schema) -> pa.StructArray:
    """One struct per value; raises ArrowInvalid if any value is bad."""
    wanted = pa.struct(list(fields))
    readable = _readable(wanted)
    text = _text(values)
    if _NULL_BEHIND_OBJECT.search(text) and not _is_one_document(values):
        raise pa.ArrowInvalid("more than one JSON document in a value")
    table = pj.read_json(
        pa.BufferReader(text),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pj.ParseOptions(
            explicit_schema=pa.schema([("v", readable)]), unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != len(values):
        raise pa.ArrowInvalid("more than one JSON document in a value")
    struct = pa.concat_arrays(table["v"].chunks)
    struct.validate(full=True)  # Arrow's parser lets text through that is not UTF-8
    return struct if readable == wanted else struct.cast(wanted)


def _is_one_document(values: pa.Array) -> bool:
    if len(values) > 1:
        return False
    try:
        json.loads(values[0].as_py())
    except (ValueError, RecursionError):
        return False
    return True


def _text(values: pa.Array) -> bytes:
    whole = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)
    joined = pc.binary_join(whole, pa.scalar(_CLOSE + _OPEN, pa.binary()))[0].as_buffer()
    if joined.size > _MAX_TEXT_BYTES:
        raise pa.ArrowInvalid(f"a value larger than {_MAX_TEXT_BYTES} bytes")
    return b"".join((_OPEN, joined, _CLOSE))


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type to parse: dates, at any depth, are read as text first and then as dates."""
    if pa.types.is_date32(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_readable(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_readable(kind.value_type)))
    return kind


def _reason(error: pa.ArrowInvalid) -> str:
    text = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
    return text.replace("Column(/v/", "Column(/").replace("Column(/v)", "The value")
