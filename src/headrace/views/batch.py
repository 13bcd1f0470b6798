"""The changes that one micro-batch makes to a view, and their net effect per key. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.change_kind import ChangeKind
from headrace.errors import RequestError
from headrace.views.schema import ViewSchema

__all__ = [
    "ChangedRows",
    "NetChanges",
    "Offsets",
    "StagedChanges",
    "ViewBatch",
    "changed_rows",
    "last_rows",
    "net_changes",
    "overlaid",
    "rows_as_changes",
]

Offsets = Mapping[str, Mapping[int, int]]

# The years 1 to 9999, which is what Spark, SQL and Python all have.
_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896
_PARTS = ("before", "after", "kind")
_DAY_US = 86_400_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedChanges:
    """Changes of a batch that a task has written where the store keeps them, out of readers' sight.

    `changed` is their number, `place` where they are, in the store's own words. Both are plain JSON.
    """

    changed: int
    place: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ViewBatch:
    """What one micro-batch of one query does to one view.

    `changes` has the columns `before` and `after` (structs, null where there is no
    row), `kind` (see `ChangeKind`) and the key; None or an empty table where nothing changed.
    Fields of a row come from `after`, or from the column of that name beside it.
    Changes of one key apply in the order of the table; with `distinct`, no key is in it
    twice, and that is not checked. `offsets` are the next offsets to be read, per topic and
    partition, once this batch has been applied; `counters` are counts that the store adds up.
    `staged` are further changes, of other keys, that are in the store already (`StagingStore`).
    Of a query over several topics, `inputs` are these counts by input, and `watermarks` the
    event-time watermarks that it has reached, by topic.
    """

    query_id: str
    batch_id: int
    changes: pa.Table | None = None
    offsets: Offsets = field(default_factory=dict)
    watermark_us: int | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    distinct: bool = False
    inputs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    watermarks: Mapping[str, int] = field(default_factory=dict)
    staged: Sequence[StagedChanges] = ()

    @property
    def changed(self) -> int:
        """How many changes it has."""
        own = 0 if self.changes is None else int(self.changes.num_rows)
        return own + sum(each.changed for each in self.staged)


@dataclass(frozen=True, slots=True)
class NetChanges:
    """The net effect of a batch: rows to upsert and keys to remove; no key is in it twice."""

    rows: pa.Table
    removed: pa.Table

    @property
    def empty(self) -> bool:
        return not (self.rows.num_rows or self.removed.num_rows)


def net_changes(schema: ViewSchema, changes: pa.Table | None, *, distinct: bool = False) -> NetChanges:
    """The net effect of the changes; raises RequestError if they do not fit the view.

    `distinct` is that of `ViewBatch`.
    """
    if changes is None or changes.num_rows == 0:
        return NetChanges(schema.columns.empty_table(), pa.schema(schema.key_fields()).empty_table())
    changes = changes.combine_chunks()
    removes = _removes(schema, changes)
    keys = _normalized(schema, _key_table(schema, changes, removes))
    last = None if distinct else last_rows(keys)
    if last is not None:
        changes, keys, removes = changes.take(last), keys.take(last), pc.take(removes, last)
    if not pc.any(removes).as_py():
        return NetChanges(_rows(schema, "after", changes, keys), keys.slice(0, 0))
    kept = pc.invert(removes)
    rows = _rows(schema, "after", changes.filter(kept), keys.filter(kept))
    return NetChanges(rows, keys.filter(removes))


def overlaid(schema: ViewSchema, batches: Sequence[NetChanges]) -> NetChanges:
    """Several batches as one: for each key, the last of them counts."""
    if len(batches) == 1:
        return batches[0]
    key = list(schema.key)
    keys = pa.concat_tables([part for net in batches for part in (net.removed, net.rows.select(key))])
    rows = pa.concat_tables([net.rows for net in batches])
    newest = last_rows(keys)
    if newest is None:
        return NetChanges(rows, pa.concat_tables([net.removed for net in batches]))
    positions = _positions(batches)[newest.to_numpy()]
    kept = rows.take(pa.array(positions[positions >= 0]))
    return NetChanges(kept, keys.take(newest.filter(pa.array(positions < 0))))


def _positions(batches: Sequence[NetChanges]) -> npt.NDArray[np.int64]:
    """For each key of the concatenated batches, its row among all rows; -1 if it is removed."""
    parts, start = [], 0
    for net in batches:
        parts.append(np.full(net.removed.num_rows, -1, np.int64))
        parts.append(np.arange(start, start + net.rows.num_rows, dtype=np.int64))
        start += net.rows.num_rows
    return np.concatenate(parts)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Changes one by one, each with its key and its whole rows; missing rows are masked."""

    keys: pa.Table
    kinds: list[int]
    before: pa.Table
    had_before: list[bool]
    after: pa.Table
    has_after: list[bool]


def changed_rows(schema: ViewSchema, changes: pa.Table) -> ChangedRows:
    """Every single change of a batch; raises RequestError as `net_changes` does."""
    changes = changes.combine_chunks()
    removes = _removes(schema, changes)
    keys = _normalized(schema, _key_table(schema, changes, removes))
    if "before" in changes.column_names and pa.types.is_struct(changes["before"].type):
        had_before = pc.is_valid(changes["before"]).to_pylist()
        before = _rows(schema, "before", changes, keys)
    else:
        had_before, before = [False] * changes.num_rows, keys
    return ChangedRows(
        keys=keys,
        kinds=pc.cast(changes["kind"], pa.int64()).to_pylist(),
        before=before,
        had_before=had_before,
        after=_rows(schema, "after", changes, keys),
        has_after=pc.invert(removes).to_pylist(),
    )


def rows_as_changes(rows: pa.Table) -> pa.Table:
    """Whole rows, each as the change that brings it."""
    chunks = rows.combine_chunks().to_struct_array().chunks
    after = chunks[0] if chunks else pa.array([], pa.struct(list(rows.schema)))
    kind = pa.repeat(pa.scalar(int(ChangeKind.CLOSE), pa.int8()), rows.num_rows)
    return pa.table({"kind": kind, "before": pa.nulls(rows.num_rows, after.type), "after": after})


def last_rows(keys: pa.Table) -> pa.Array | None:
    """Indices, ascending, of the last row of each key; None if every key occurs once."""
    numbered = keys.append_column("", pa.array(np.arange(keys.num_rows)))
    names = [f"k{index}" for index in range(keys.num_columns)]
    numbered = numbered.rename_columns([*names, "row"])
    grouped = numbered.group_by(names, use_threads=False).aggregate([("row", "max")])
    if grouped.num_rows == keys.num_rows:
        return None
    return pa.array(np.sort(grouped["row_max"].to_numpy()))


def _normalized(schema: ViewSchema, keys: pa.Table) -> pa.Table:
    """Keys normalized so that equal ones have equal bits: one NaN, no -0.0."""
    for index, each in enumerate(schema.key_fields()):
        if pa.types.is_floating(each.type):
            column = pc.add(keys.column(index), pa.scalar(0.0, each.type))  # -0.0 + 0.0 is 0.0
            nan = pa.scalar(float("nan"), each.type)
            column = pc.if_else(pc.is_nan(column), nan, column)
            keys = keys.set_column(index, each, column)
    return keys


def _removes(schema: ViewSchema, changes: pa.Table) -> pa.Array:
    if "after" not in changes.column_names or "kind" not in changes.column_names:
        raise RequestError(
            f"view {schema.name!r}: changes need the columns after and kind, and have "
            f"{', '.join(changes.column_names)}"
        )
    retracted = pc.equal(changes["kind"], pa.scalar(int(ChangeKind.RETRACTION), changes["kind"].type))
    return pc.or_(pc.is_null(changes["after"]), pc.fill_null(retracted, False)).combine_chunks()


def _key_table(schema: ViewSchema, changes: pa.Table, removes: pa.Array) -> pa.Table:
    """The key of every change: from its own columns, else from `after`, or from `before` if removed."""
    columns = []
    for each in schema.key_fields():
        if each.name in changes.column_names and each.name not in _PARTS:
            column = changes[each.name]
        else:
            after = _field(changes["after"], each.name)
            before = _field(changes["before"], each.name) if "before" in changes.column_names else None
            if after is None or before is None:
                raise RequestError(f"view {schema.name!r}: the changes have no key column {each.name!r}")
            column = pc.if_else(removes, before, after)
        columns.append(_cast(schema, each, column))
    return pa.table(columns, schema=pa.schema(schema.key_fields()))


def _rows(schema: ViewSchema, which: str, changes: pa.Table, keys: pa.Table) -> pa.Table:
    columns = []
    for each in schema.columns:
        if each.name in schema.key:
            columns.append(keys.column(schema.key.index(each.name)))
            continue
        column = _field(changes[which], each.name)
        if column is None and each.name in changes.column_names and each.name not in _PARTS:
            column = changes[each.name]
        if column is None:
            raise RequestError(f"view {schema.name!r}: the changes have no column {each.name!r}")
        columns.append(_cast(schema, each, column))
    return pa.table(columns, schema=schema.columns)


def _field(structs: pa.ChunkedArray, name: str) -> pa.ChunkedArray | None:
    if not pa.types.is_struct(structs.type) or structs.type.get_field_index(name) < 0:
        return None
    return pc.struct_field(structs, structs.type.get_field_index(name))


def _cast(schema: ViewSchema, wanted: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        if not column.type.equals(wanted.type):
            column = column.cast(wanted.type)
        _check_years(column)
        return column
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise RequestError(
            f"view {schema.name!r}: column {wanted.name!r} is {column.type} in the changes and "
            f"{wanted.type} in the view: {error}"
        ) from error


def _check_years(column: pa.ChunkedArray) -> None:
    if pa.types.is_timestamp(column.type):
        numbers, first, last = column.cast(pa.int64()), _FIRST_DAY * _DAY_US, (_LAST_DAY + 1) * _DAY_US - 1
    elif pa.types.is_date(column.type):
        numbers, first, last = column.cast(pa.int32()), _FIRST_DAY, _LAST_DAY
    else:
        return
    range_ = pc.min_max(numbers)
    if range_["min"].is_valid and not first <= range_["min"].as_py() <= range_["max"].as_py() <= last:
        raise pa.ArrowInvalid("a time outside the years 1 to 9999")
