"""Records of a topic that is a table: upserts, deletes and changes in Debezium's envelope, into rows.

A record of the format "upserts" is a row as it now is, or, with a null value, says that its key is
gone. One of the format "debezium" is a change: `op` c (create), r (read, in a snapshot) and u
(update) bring the row in `after`; d (delete) takes it away. The envelope may stand in `payload`,
as it does where schemas are sent along. The tombstone that follows a delete repeats it.

A change need not tell the value of a field that it left as it was, if the value is stored apart from
its row (PostgreSQL's TOAST). Debezium then has a placeholder in its place; a change may also leave the
field out and name it in `unchanged`. Such fields are null here, and marked.

The key of a deleted row is read from the record's key: a JSON object with the key's columns, or,
where the key is one column, its plain value.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.records import Places
from headrace.streams.decode.json_values import Parsed, parse_json

__all__ = ["DEBEZIUM", "PLACEHOLDER", "UPSERTS", "TableParsed", "parse_table"]

UPSERTS, DEBEZIUM = "upserts", "debezium"
PLACEHOLDER = "__debezium_unavailable_value"
_PLACEHOLDERS = (PLACEHOLDER, base64.b64encode(PLACEHOLDER.encode()).decode())  # of text, and of bytes
_NO_OP = "op is missing or unknown: not a change in Debezium's envelope"
_NO_ROW = "after is null, though the change is no delete"
_TRUNCATE = "a truncate names no key: rebuild the table from a new snapshot"

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TableParsed:
    """The rows of records: what was parsed, which of them are deletes, and when the source changed them.

    `changed_us` is -1 where the record does not say. `unchanged` has a bit for each field, set where
    the record leaves its value as it was, and null where there is none such.
    """

    parsed: Parsed
    deleted: Bools
    changed_us: npt.NDArray[np.int64]
    unchanged: pa.Array


def parse_table(
    keys: Places, values: Places, fields: pa.Schema, key: Sequence[str], *, style: str, lenient: bool = False
) -> TableParsed:
    """The rows of these records; those that cannot be read have a reason."""
    if style == DEBEZIUM:
        return _with_keys(_changes(values, fields), keys, fields, key)
    parsed = parse_json(values, fields, lenient=lenient)
    unknown = np.full(len(values), -1, np.int64)
    none = pa.nulls(len(values), pa.binary())
    return _with_keys(TableParsed(parsed, values.lengths < 0, unknown, none), keys, fields, key)


def _changes(values: Places, fields: pa.Schema) -> TableParsed:
    row = pa.struct(list(fields))
    envelope = pa.schema(
        [
            ("before", row),
            ("after", row),
            ("op", pa.string()),
            ("ts_ms", pa.int64()),
            ("source", pa.struct([("ts_ms", pa.int64()), ("ts_us", pa.int64())])),
            ("unchanged", pa.list_(pa.string())),
        ]
    )
    whole = pa.schema([*envelope, ("payload", pa.struct(list(envelope)))])
    parsed = parse_json(values, whole)
    payload = parsed.columns[-1]
    parts = {
        each.name: _either(pc.struct_field(payload, [each.name]), column)
        for each, column in zip(envelope, parsed.columns[:-1], strict=True)
    }
    tombstones, op = values.lengths < 0, parts["op"]
    deleted = tombstones | _is(op, "d")
    taken = pc.if_else(pa.array(_is(op, "d")), parts["before"], parts["after"])
    reasons = _faults(parsed, op, parts["after"], deleted)
    columns = [pc.struct_field(taken, [each.name]) for each in fields]
    masks = [_is_placeholder(each) & ~deleted for each in columns]
    _mark_named(masks, parts["unchanged"], fields, deleted)
    whole_columns = tuple(
        pc.if_else(pa.array(mask), pa.scalar(None, each.type), each) if mask.any() else each
        for each, mask in zip(columns, masks, strict=True)
    )
    return TableParsed(
        Parsed(whole_columns, reasons, reasons), deleted, _changed_us(parts), _packed_bits(masks, len(values))
    )


def _is_placeholder(column: pa.Array) -> Bools:
    """Which values stand for one that did not change: text, bytes, or a list of one such."""
    if pa.types.is_list(column.type):
        if not _is_text(column.type.value_type):
            return np.zeros(len(column), np.bool_)
        alone = pc.equal(pc.list_value_length(column), 1).fill_null(False)
        first = pc.list_element(pc.if_else(alone, column, pa.scalar([""], column.type)), 0)
        return np.asarray(alone.to_numpy(zero_copy_only=False)) & _is_placeholder(first)
    if not _is_text(column.type):
        return np.zeros(len(column), np.bool_)
    wanted = pa.array(_PLACEHOLDERS, pa.string()).cast(column.type)
    return np.asarray(pc.is_in(column, wanted).to_numpy(zero_copy_only=False))


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _mark_named(masks: list[Bools], named: pa.Array, fields: pa.Schema, deleted: Bools) -> None:
    """Marks the fields that changes name in `unchanged`; others than the table's own are nobody's concern."""
    places = {name: number for number, name in enumerate(fields.names)}
    for row in np.flatnonzero(named.is_valid().to_numpy(zero_copy_only=False) & ~deleted).tolist():
        for name in named[row].as_py():
            if name in places:
                masks[places[name]][row] = True


def _packed_bits(masks: Sequence[Bools], count: int) -> pa.Array:
    """A bit for each field, by row; null where none is set."""
    if not any(mask.any() for mask in masks):
        return pa.nulls(count, pa.binary())
    rows = np.stack(masks, axis=1)
    packed = np.packbits(rows, axis=1, bitorder="little")
    values = [packed[number].tobytes() if rows[number].any() else None for number in range(count)]
    return pa.array(values, pa.binary())


def _faults(parsed: Parsed, op: pa.Array, after: pa.Array, deleted: Bools) -> pa.Array:
    """Why a record is no change; what could not be read at all comes first."""
    known = deleted | _is(op, "c") | _is(op, "r") | _is(op, "u")
    truncate = _is(op, "t")
    rowless = known & ~deleted & after.is_null().to_numpy(zero_copy_only=False)
    found = np.full(len(op), None, object)
    found[~known] = _NO_OP
    found[truncate] = _TRUNCATE
    found[rowless] = _NO_ROW
    return pc.coalesce(parsed.reasons, pa.array(found, pa.string()))


def _changed_us(parts: Mapping[str, pa.Array]) -> npt.NDArray[np.int64]:
    """When the source committed the change: to the microsecond where it says so."""
    source = parts["source"]
    exact = pc.struct_field(source, ["ts_us"])
    rough = pc.multiply(pc.coalesce(pc.struct_field(source, ["ts_ms"]), parts["ts_ms"]), 1000)
    return np.asarray(pc.coalesce(exact, rough).fill_null(-1).to_numpy())


def _either(first: pa.Array, second: pa.Array) -> pa.Array:
    return pc.if_else(first.is_valid(), first, second)


def _is(column: pa.Array, value: str) -> Bools:
    return np.asarray(pc.equal(column, value).fill_null(False).to_numpy(zero_copy_only=False))


def _with_keys(found: TableParsed, keys: Places, fields: pa.Schema, key: Sequence[str]) -> TableParsed:
    """The key columns of deleted rows, from the records' keys; and nobody's key is null."""
    parsed = found.parsed
    columns = list(parsed.columns)
    reasons, kinds = parsed.reasons.to_pylist(), parsed.kinds.to_pylist()
    rows = np.flatnonzero(found.deleted & parsed.reasons.is_null().to_numpy(zero_copy_only=False))
    read = [_read_key(keys[row], fields, key) for row in rows.tolist()]
    for name in key:
        at = fields.names.index(name)
        values = np.full(len(reasons), None, object)
        for row, each in zip(rows.tolist(), read, strict=True):
            values[row] = None if each is None else each.get(name)
        given = _typed(values, fields.field(name).type, reasons, kinds, name)
        columns[at] = pc.if_else(pa.array(found.deleted), given, columns[at])
        empty = np.flatnonzero(columns[at].is_null().to_numpy(zero_copy_only=False))
        for row in empty.tolist():
            if reasons[row] is None:
                reasons[row] = kinds[row] = f"key column {name} is missing or null"
    strings = pa.array(reasons, pa.string()), pa.array(kinds, pa.string())
    return replace(found, parsed=Parsed(tuple(columns), *strings))


def _read_key(key: bytes | None, fields: pa.Schema, names: Sequence[str]) -> Mapping[str, Any] | None:
    """The values of the key's columns by name; None if the record's key says nothing of them."""
    if key is None:
        return None
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return {names[0]: key} if len(names) == 1 else None
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    if isinstance(value, dict):
        inner = value.get("payload")
        return inner if isinstance(inner, dict) else value
    if len(names) != 1:
        return None
    is_text = pa.types.is_string(fields.field(names[0]).type)
    return {names[0]: text if is_text and not isinstance(value, str) else value}


def _typed(
    values: npt.NDArray[np.object_],
    kind: pa.DataType,
    reasons: list[str | None],
    kinds: list[str | None],
    name: str,
) -> pa.Array:
    """Values of keys in the column's type; a record whose key is of another has a reason."""
    try:
        return pa.array(values.tolist(), kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
        found = []
        for row, value in enumerate(values.tolist()):
            try:
                found.append(pa.scalar(_parsed(value, kind), kind))
            except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError):
                reasons[row] = kinds[row] = f"key column {name}: expected {kind} in the record's key"
                found.append(pa.scalar(None, kind))
        return pa.array([each.as_py() for each in found], kind)


def _parsed(value: Any, kind: pa.DataType) -> Any:
    """Text of a key as Arrow would cast it; other values as they are."""
    return pa.scalar(value, pa.string()).cast(kind).as_py() if isinstance(value, str) else value
