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

What is left of a block that cannot be parsed is read value by value (`json_documents`),
which knows some forms more, and says what is wrong with the others. So are all values of
a lenient stream, and of a schema with maps.
"""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from headrace.errors import ConfigError
from headrace.records import Places
from headrace.streams.decode.json_documents import BOM, Fault, has_map, read_document
from headrace.streams.decode.json_shapes import JsonShape, can_be_shaped
from headrace.streams.decode.json_specials import unquoted_specials
from headrace.streams.decode.years import check_years

__all__ = ["Parsed", "check_fields", "parse_json"]

_OPEN, _CLOSE = b'{"v":', b"}\n"
_NULL_BEHIND_OBJECT = re.compile(rb"\}[ \t\r\n]*null")
_MAX_SHAPES = 8  # after so many the rest is left to the parser
_MIN_SHAPED = 8  # fewer values are not worth a table
_FEW = 32  # so many values of a block that holds a bad one are read one by one
_MAX_TEXT_BYTES = 256 << 20  # Arrow's positions inside one block have 32 bits


@dataclass(frozen=True, slots=True)
class Parsed:
    """One column per field, and the reason why a value could not be read (null where it could).

    `kinds` are the reasons without what is special to each value, so that they can be counted.
    """

    columns: tuple[pa.Array, ...]
    reasons: pa.Array
    kinds: pa.Array

    @property
    def bad_count(self) -> int:
        return len(self.reasons) - int(self.reasons.null_count)


def check_fields(fields: pa.Schema) -> None:
    """Raises ConfigError naming a field whose type cannot be read from JSON."""
    for field in fields:
        if has_map(field.type):
            _check_maps(field.type, field.name)
            continue
        try:
            _parse_block(pa.array([b"{}"], pa.binary()), pa.schema([field]))
        except pa.ArrowNotImplementedError:
            raise ConfigError(
                f"column {field.name!r} of type {field.type} cannot be read from JSON values; "
                "declare it as string, number, boolean, date, timestamp, or array, struct or map of these"
            ) from None


def _check_maps(kind: pa.DataType, name: str) -> None:
    if pa.types.is_map(kind) and not pa.types.is_string(kind.key_type):
        raise ConfigError(f"column {name!r} is a map with keys of {kind.key_type}; names in JSON are strings")
    for at in range(kind.num_fields):
        _check_maps(kind.field(at).type, name)


def parse_json(values: Places, fields: pa.Schema, *, lenient: bool = False) -> Parsed:
    """The fields of every value, in order; null where a value is null, lacks the field or is bad.

    Fields that the schema does not name are ignored. A value of another type than
    declared makes the whole value bad: nothing is guessed, unless it is `lenient`.
    A byte order mark before a value is passed over.
    """
    if lenient or any(has_map(field.type) for field in fields):
        raw = _without_marks(values).column().to_pylist()
        struct, reasons, kinds = _joined([_read_one(each, fields, lenient=lenient) for each in raw], fields)
        return Parsed(tuple(struct.flatten()), reasons, kinds)
    pieces = list(_pieces(values, fields))
    if len(pieces) == 1:
        return Parsed(pieces[0].columns, pieces[0].reasons, pieces[0].kinds)
    columns = tuple(
        pa.concat_arrays([piece.columns[at] for piece in pieces]) if pieces else pa.nulls(0, field.type)
        for at, field in enumerate(fields)
    )
    reasons, kinds = (
        pa.concat_arrays([getattr(piece, name) for piece in pieces] or [pa.nulls(0, pa.string())])
        for name in ("reasons", "kinds")
    )
    if not pieces:
        return Parsed(columns, reasons, kinds)
    order = pa.array(np.argsort(np.concatenate([piece.rows for piece in pieces])))
    return Parsed(tuple(column.take(order) for column in columns), reasons.take(order), kinds.take(order))


def _without_marks(values: Places) -> Places:
    """The values without the byte order marks that some programs write before them."""
    longer = np.flatnonzero(values.lengths >= len(BOM))
    marked = longer[values.octets[values.starts[longer]] == BOM[0]] if len(longer) else longer
    marked = np.array([row for row in marked.tolist() if (values[row] or b"").startswith(BOM)], np.int64)
    if not len(marked):
        return values
    starts, lengths = values.starts.copy(), values.lengths.copy()
    starts[marked] += len(BOM)
    lengths[marked] -= len(BOM)
    return Places(values.octets, starts, lengths)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some of a block's values, read: their rows in the block, and what was found."""

    rows: npt.NDArray[np.int64]
    columns: tuple[pa.Array, ...]
    reasons: pa.Array
    kinds: pa.Array


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
        none = pa.nulls(found, pa.string())
        yield _Piece(rows[alike], columns, none, none)
        if found == len(values):
            return
        values, rows = values.at(~alike), rows[~alike]
    if len(values):
        texts = _without_marks(values).column().fill_null(b"{}")  # no value of a shape has a mark
        parts = _parse_halving(unquoted_specials(texts, fields), fields)
        structs, reasons, kinds = (pa.concat_arrays(each) for each in zip(*parts, strict=True))
        yield _Piece(rows, tuple(structs.flatten()), reasons, kinds)


def _shape(values: Places) -> JsonShape | None:
    """The shape of the first, the middle or the last value: one of them may be or hold a null, or be bad."""
    for at in (0, len(values) // 2, len(values) - 1):
        shape = JsonShape.of(values[at] or b"")
        if shape is not None:
            return shape
    return None


_Part = tuple[pa.StructArray, pa.Array, pa.Array]  # structs, reasons, kinds


def _parse_halving(values: pa.Array, fields: pa.Schema) -> list[_Part]:
    try:
        none = pa.nulls(len(values), pa.string())
        return [(_parse_block(values, fields), none, none)]
    except pa.ArrowInvalid:
        if len(values) <= _FEW:
            return [_read_alone(each, fields) for each in values.to_pylist()]
    middle = len(values) // 2
    return _parse_halving(values[:middle], fields) + _parse_halving(values[middle:], fields)


_Read = dict[str, Any] | Fault


def _read_alone(raw: bytes, fields: pa.Schema) -> _Part:
    """What is in a value of a block that holds a bad one; it is bad if neither reader can read it."""
    read = _read_one(raw, fields)
    if isinstance(read, Fault):
        none = pa.nulls(1, pa.string())
        with contextlib.suppress(pa.ArrowInvalid):
            return _parse_block(pa.array([raw], pa.binary()), fields), none, none
    return _joined([read], fields)


def _read_one(raw: bytes | None, fields: pa.Schema, *, lenient: bool = False) -> _Read:
    try:
        return read_document(raw, fields, lenient=lenient)
    except Fault as fault:
        return fault


def _joined(read: list[_Read], fields: pa.Schema) -> _Part:
    """Values that were read one by one as columns; a bad one is null."""
    faults = [each if isinstance(each, Fault) else None for each in read]
    rows = [None if isinstance(each, Fault) else each for each in read]
    return (
        pa.array(rows, pa.struct(list(fields))),
        pa.array([None if each is None else each.text for each in faults], pa.string()),
        pa.array([None if each is None else each.kind for each in faults], pa.string()),
    )


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
    read = struct if readable == wanted else struct.cast(wanted)
    check_years(read)
    return read


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
