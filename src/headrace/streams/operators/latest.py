"""The last row of each key, whatever the batches: what a view of a stream with a key shows.

Rows have an order of their own, which the log alone decides, and the greatest row of a key
is its last. Rows are reduced to one per key where they are read (`LatestOperator.partial`);
the state remembers the order of the row that each key shows, so that an older row which
comes later changes nothing. The rows themselves are in the view's store.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from headrace.streams.event_time import NO_WATERMARK
from headrace.streams.operators.changes import CLOSE
from headrace.streams.operators.grouping import Groups, Ints, one_chunk
from headrace.streams.operators.hashing import distinct
from headrace.streams.operators.keys import HASH, grouped, hashes_of, key_columns, numbered
from headrace.streams.operators.operator import decode_state, encode_state, numbers
from headrace.streams.operators.runs import Held, Runs, in_one_chunk
from headrace.streams.operators.windows.state import Advance

__all__ = ["LatestOperator", "LatestState"]

_ORDER = ("_time", "_partition", "_offset")
_AFTER, _SHOWN = "_after", "shown"
_NO_TIME = NO_WATERMARK >> 1  # what is before it is no watermark


@dataclass(frozen=True)
class LatestOperator:
    """The row of each key that is the greatest by time, partition and offset.

    `by` says which time: "event_time" is the row's own, "arrival" that which its partition
    had reached with it (`reached`). Rows have the columns that `WindowOperator` asks of
    them; `columns` are those that the view shows. No row is late.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    by: Literal["event_time", "arrival"] = "event_time"
    lateness_us: int = 0

    def partial(self, rows: pa.Table) -> pa.Table:
        """The last of these rows of each key, for `LatestState.advance`: key, order, and the row whole."""
        rows = rows.combine_chunks()
        ids, keys, hashes = numbered(key_columns(rows, self.keys), rows.num_rows)
        time = numbers(rows, "_event_time")
        if self.by == "arrival":
            time = reached(time, rows["_watermark"], self.lateness_us)
        order = {"_time": time, **{name: numbers(rows, name) for name in _ORDER[1:]}}
        chosen = np.empty(len(hashes), np.int64)
        last = _greatest(list(order.values()), Groups(ids, len(hashes)))
        chosen[ids[last]] = last
        own = rows.select(list(self.columns)).take(pa.array(chosen))
        after = [one_chunk(column) for column in own.columns]
        return pa.table(
            {
                **dict(zip(self.key_names, keys, strict=True)),
                HASH: pa.array(hashes),
                **{name: pa.array(each[chosen]) for name, each in order.items()},
                _AFTER: pa.StructArray.from_arrays(after, fields=list(own.schema)),
            }
        )

    @property
    def key_names(self) -> tuple[str, ...]:
        """What partials and state call the key's columns; a view's own may have any name."""
        return tuple(f"_key{number}" for number in range(len(self.keys)))

    def describe(self) -> dict[str, Any]:
        """Plain values that say what it computes, with the version of its stored state."""
        return {"operator": "last row", "version": 1, "by": list(self.keys), "last": self.by}

    def new_state(self) -> "LatestState":
        return LatestState(self)


class LatestState:
    """Which row each key of one bucket shows, by its order. One user at a time."""

    def __init__(self, operator: LatestOperator) -> None:
        self._names = operator.key_names
        self._held = Runs(lambda table: latest_of(table, self._names))

    @property
    def row_count(self) -> int:
        """Rows held, before those of one key are merged."""
        return self._held.row_count

    def held(self) -> tuple[Held, ...]:
        """The rows, which stay for as long as their keys are shown."""
        return (Held(self._held.row_count),)

    def advance(self, partials: Sequence[pa.Table], watermark_us: int | None) -> Advance:  # noqa: ARG002
        """Takes partials in; the changes are the rows that are now the last of their keys."""
        tables = [table for table in partials if table.num_rows]
        found = self._news(latest_of(in_one_chunk(tables), self._names)) if tables else None
        if found is None or not found.num_rows:
            return Advance(changes=None, delta=encode_state({}, {}), corrected_rows=0, dropped=None)
        shown = found.drop_columns([_AFTER])
        self._held.add(shown)
        changes, delta = _changes(found), encode_state({_SHOWN: shown}, {})
        return Advance(changes=changes, delta=delta, corrected_rows=0, dropped=None)

    def _news(self, arrived: pa.Table) -> pa.Table:
        """Those of the rows, one a key, that are behind what their key shows."""
        held = self._held.find(distinct(hashes_of(arrived)))
        if held is None:
            return arrived
        orders = in_one_chunk([held, arrived.drop_columns([_AFTER])])
        chosen = _latest(orders, self._names) - held.num_rows
        return arrived.take(pa.array(np.sort(chosen[chosen >= 0])))

    def snapshot(self) -> bytes:
        """Everything held; `replay` takes it."""
        return encode_state({_SHOWN: self._held.merged()}, {})

    def replay(self, stored: bytes) -> None:
        """Takes in a snapshot, or the delta of a step."""
        tables, _ = decode_state(stored)
        for table in tables.values():
            self._held.add(table)


def reached(times: Ints, watermarks: pa.ChunkedArray, lateness_us: int) -> Ints:
    """How far in event time the partition of each row had come with it, from its time and its watermark.

    That is the highest event time up to the row, or the highest watermark declared before
    it with the lateness on top. In a partition it never goes back.
    """
    before = one_chunk(watermarks).fill_null(NO_WATERMARK).to_numpy()
    return np.asarray(np.maximum(times, np.maximum(before, _NO_TIME) + lateness_us))


def latest_of(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, ordered by hash."""
    return table.take(pa.array(_latest(table, keys)))


def _latest(table: pa.Table, keys: Sequence[str]) -> Ints:
    """The number of each key's last row, in the order of the keys' hashes."""
    order, groups = grouped(table, keys)
    columns = [numbers(table, name)[order] for name in _ORDER]
    return np.asarray(order[_greatest(columns, groups)])


def _greatest(columns: Sequence[Ints], groups: Groups) -> Ints:
    """The row of each group that is the greatest by these columns; no two rows are equal in all."""
    rows = np.arange(len(groups.ids))
    for values in columns:
        left = groups.of(rows)
        greatest = left.maximum(values[rows], np.iinfo(values.dtype).min)
        rows = rows[values[rows] == greatest[left.ids]]
    return rows


def _changes(rows: pa.Table) -> pa.Table:
    after = one_chunk(rows[_AFTER])
    return pa.table(
        {
            "kind": pa.repeat(pa.scalar(CLOSE, pa.int8()), len(after)),
            "before": pa.nulls(len(after), after.type),
            "after": after,
        }
    )
