"""The last row of each key of a stream's rows, whatever the batches: what a view with a key shows.

Of rows with one key the greatest counts: by event time, partition and offset, and of several rows
of one record by the hash of their values. So which row is shown depends on the log alone.

Where rows are never taken back, the order of the row that a key shows is all that is held; a row
that is behind it is put out, and takes the place of the one before. As a table, which others follow, the
row itself is held, and taken back when another replaces it. Where rows are taken back, one that goes
lets the one before it in again: all rows are held.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.nearest import no_such
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.groups.top import Top, TopState
from headrace.streams.operators.hashing import distinct, normal_type
from headrace.streams.operators.joins.columns import ROW, keyed
from headrace.streams.operators.keys import HASH, grouped, hashes_of
from headrace.streams.operators.operator import (
    STAMPS,
    WEIGHT,
    OperatorDefaults,
    OperatorStep,
    decode_state,
    encode_state,
    own_fields,
    stamp_fields,
)
from headrace.streams.operators.runs import Held, Runs, held_rows, in_one_chunk

__all__ = ["LastRow"]

_PLACE = ("_event_time", "_partition", "_offset")
_ORDER = (*_PLACE, ROW)
_HIDDEN = {name: f"#{name}" for name in _ORDER}  # the order as columns of a row


@dataclass(frozen=True)
class LastRow(OperatorDefaults):
    """Rows of which each is the last of its key; `append_only` says that none is ever taken back.

    What comes out is for a view, where a row replaces the one with its key; `as_table`, the row
    before is taken back.
    """

    keys: tuple[str, ...]
    append_only: bool = True
    as_table: bool = False

    @property
    def inputs(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        fields = {each.name: each for each in own_fields(schemas[0])}
        for name in self.keys:
            if name not in fields:
                raise RequestError(no_such("column", name, list(fields)))
            fields[name] = fields[name].with_type(normal_type(fields[name].type, name))
        return pa.schema(list(fields.values()))

    def new_state(self, schemas: Sequence[pa.Schema]) -> "OrderState | RowsState":
        schema = self.result(schemas)
        if self.append_only and not self.as_table:
            return OrderState(self.keys, schema)
        return RowsState(self.keys, schema, append_only=self.append_only)

    def describe(self) -> dict[str, Any]:
        kept = "rows" if not self.append_only else "last row" if self.as_table else "order"
        return {"operator": "last row", "version": 1, "by": list(self.keys), "kept": kept}


class OrderState:
    """The order of the row that each key of one bucket shows."""

    def __init__(self, keys: tuple[str, ...], schema: pa.Schema) -> None:
        self._keys = keys
        self._schema = schema
        self._beside = [name for name in schema.names if name not in keys]
        self._runs = Runs(lambda table: table.take(pa.array(_last(table, keys))))

    @property
    def row_count(self) -> int:
        return self._runs.row_count

    def held(self) -> tuple[Held, ...]:
        return (held_rows(self._runs.tables, ""),)

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:  # noqa: ARG002
        rows = arrived[0]
        if rows is None or not rows.num_rows:
            return OperatorStep(changes=None, delta=encode_state({}, {}))
        rows = keyed(rows.combine_chunks(), self._keys, self._beside)
        news = rows.take(pa.array(_last(rows, self._keys)))
        behind = self._behind(news)
        if len(behind) < news.num_rows:
            news = news.take(pa.array(behind))
        run = news.select([*self._keys, HASH, *_ORDER])
        self._runs.add(run)
        names = [*self._schema.names, *STAMPS]
        changes = news.select(names).cast(pa.schema([*self._schema, *stamp_fields()]))
        delta = encode_state({"seen": run.drop_columns([HASH])}, {})
        return OperatorStep(changes=changes if changes.num_rows else None, delta=delta)

    def snapshot(self) -> bytes:
        merged = self._runs.merged()
        return encode_state({"seen": None if merged is None else merged.drop_columns([HASH])}, {})

    def replay(self, stored: bytes) -> None:
        tables, _ = decode_state(stored)
        if "seen" in tables:
            run = keyed(tables["seen"], self._keys, None)
            self._runs.add(run.select([*self._keys, HASH, *_ORDER]))

    def _behind(self, news: pa.Table) -> Ints:
        """Those of the rows, one a key, that are behind what their key shows."""
        held = self._runs.find(distinct(hashes_of(news)))
        if held is None:
            return np.arange(news.num_rows)
        both = in_one_chunk([held, news.select(held.column_names)])
        found = _last(both, self._keys) - held.num_rows
        return np.asarray(np.sort(found[found >= 0]))


class RowsState:
    """The rows of one bucket of keys: the first of each by descending order is its last.

    Where rows only come, no more than that one is held.
    """

    def __init__(self, keys: tuple[str, ...], schema: pa.Schema, *, append_only: bool) -> None:
        self._schema = schema
        self._keys = keys
        self._beside = [name for name in schema.names if name not in keys]
        stamps = {each.name: each.type for each in stamp_fields()} | {ROW: pa.uint64()}
        hidden = [pa.field(_HIDDEN[name], stamps[name]) for name in _ORDER]
        by = tuple((name, True) for name in _HIDDEN.values())
        self._first = TopState(Top(1, keys, by, append_only=append_only), pa.schema([*schema, *hidden]))

    @property
    def row_count(self) -> int:
        return self._first.row_count

    def held(self) -> tuple[Held, ...]:
        return (Held(self.row_count),)

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        rows = arrived[0]
        if rows is not None and rows.num_rows:
            rows = keyed(rows.combine_chunks(), self._keys, self._beside)
            columns = {name: rows[name] for name in (*self._schema.names, WEIGHT)}
            rows = pa.table(columns | {hidden: rows[name] for name, hidden in _HIDDEN.items()})
        step = self._first.advance([rows], watermarks)
        changes = None if step.changes is None else self._shown(step.changes)
        return OperatorStep(changes=changes, delta=step.delta)

    def snapshot(self) -> bytes:
        return self._first.snapshot()

    def replay(self, stored: bytes) -> None:
        self._first.replay(stored)

    def _shown(self, changes: pa.Table) -> pa.Table:
        columns = [changes[name] for name in self._schema.names]
        columns += [changes[_HIDDEN[name] if name in _PLACE else name] for name in STAMPS]
        return pa.Table.from_arrays(columns, schema=pa.schema([*self._schema, *stamp_fields()]))


def _last(table: pa.Table, keys: Sequence[str]) -> Ints:
    """The greatest row of each key by order, ascending by the hash of the keys; of equal ones the first."""
    order, groups = grouped(table, keys)
    last = order[groups.representatives]
    many = np.flatnonzero(groups.sizes > 1)
    if len(many):  # most keys are there once
        at = np.flatnonzero(groups.sizes[groups.ids] > 1)
        rows = order[at]
        columns = [one_chunk(table[name]).to_numpy(zero_copy_only=False)[rows] for name in _ORDER]
        ranked = np.lexsort((-np.arange(len(rows)), *reversed(columns), groups.ids[at]))
        last[many] = rows[ranked[np.cumsum(groups.sizes[many]) - 1]]
    return np.asarray(last)
