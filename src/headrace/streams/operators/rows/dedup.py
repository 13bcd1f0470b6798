"""The first row of a key within a time: what repeats it is left out.

A row is a repetition if a row of the same key came at most `within_us` before it. "Before" is by
event time, partition and offset, so which of two rows counts is decided by the log alone: a row is
held until the watermark has passed its time (and `wait_us` more), and no row before it can come
any more. A row that is later than that, by its own stamps, is dropped, and so is one of a
partition that was idle and not waited for ("state gone"): that one depends on the clock.

Of a key only the time of its last row is remembered, until a row within `within_us` of it cannot
come any more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import RequestError
from headrace.nearest import no_such
from headrace.streams.operators.grouping import Ints, one_chunk
from headrace.streams.operators.hashing import distinct, normal_type
from headrace.streams.operators.joins.columns import keyed
from headrace.streams.operators.joins.lateness import Counters, late, without
from headrace.streams.operators.joins.timed import EARLIEST_US, MARK, TimedRuns, by_hash_and_time, clipped
from headrace.streams.operators.keys import HASH, grouped, hashes_of, of_keys
from headrace.streams.operators.operator import (
    STAMPS,
    WEIGHT,
    OperatorDefaults,
    OperatorStep,
    decode_state,
    encode_state,
    numbers,
    own_fields,
    stamp_fields,
)
from headrace.streams.operators.order import ranks
from headrace.streams.operators.runs import Held, Runs, held_in, in_one_chunk

__all__ = ["Dedup"]

_LONGEST_US = 1 << 61
_TIME = "_event_time"


@dataclass(frozen=True)
class Dedup(OperatorDefaults):
    """Rows of a stream without those whose key came within a time before them; nulls are a key."""

    keys: tuple[str, ...]
    within_us: int
    wait_us: int = 0

    def __post_init__(self) -> None:
        if not self.keys:
            raise RequestError("dedup needs at least one column by which rows are told apart")
        if not 0 <= self.within_us <= _LONGEST_US:
            raise RequestError(f"within is a span of time, not {self.within_us} µs")

    @property
    def inputs(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    @property
    def delay_us(self) -> int:
        return self.wait_us

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        fields = {each.name: each for each in own_fields(schemas[0])}
        for name in self.keys:
            if name not in fields:
                raise RequestError(no_such("column", name, list(fields)))
            fields[name] = fields[name].with_type(normal_type(fields[name].type, name))
        return pa.schema(list(fields.values()))

    def dropped(self, number: int, rows: pa.Table) -> npt.NDArray[np.bool_] | None:  # noqa: ARG002
        return late(rows, self.wait_us)

    def new_state(self, schemas: Sequence[pa.Schema]) -> "DedupState":
        return DedupState(self, self.result(schemas))

    def describe(self) -> dict[str, Any]:
        return {
            "operator": "dedup",
            "version": 1,
            "keys": list(self.keys),
            "within_us": self.within_us,
            "wait_us": self.wait_us,
        }


class DedupState:
    """The rows of one bucket of keys that wait, and when each key came last."""

    def __init__(self, operator: Dedup, schema: pa.Schema) -> None:
        self._operator = operator
        self._schema = schema
        self._names = [*schema.names, *(name for name in STAMPS if name != WEIGHT)]
        self._waiting = TimedRuns(operator.keys)
        self._seen = Runs(self._last)
        self._settled_us = EARLIEST_US

    @property
    def row_count(self) -> int:
        return self._waiting.row_count + self._seen.row_count

    def held(self) -> tuple[Held, ...]:
        return (held_in((self._waiting.held(), self._seen.held())),)

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        counters = Counters()
        rows = self._admitted(arrived[0], counters)
        self._hold(rows)
        first, seen = self._settle(clipped(watermarks[0] - self._operator.wait_us))
        plain = None if rows is None else without(rows, numbers(rows, _TIME) < self._settled_us)
        delta = encode_state({"rows": _unhashed(plain), "seen": _unhashed(seen)}, self._about())
        return OperatorStep(
            changes=self._built(first), delta=delta, counts=counters.counts, aside=counters.aside
        )

    def snapshot(self) -> bytes:
        waiting, seen = self._waiting.stored(), self._seen.merged()
        if seen is not None:
            self._seen.replace(self._last(seen))
        parts = {
            "rows": None if waiting is None else waiting.drop_columns(MARK),
            "seen": _unhashed(self._seen.merged()),
        }
        return encode_state(parts, self._about())

    def replay(self, stored: bytes) -> None:
        parts, about = decode_state(stored)
        self._settled_us = max(self._settled_us, about["settled"])
        if "rows" in parts:
            self._hold(self._keyed(parts["rows"]))
        self._waiting.settle(self._settled_us)
        self._waiting.forget(self._settled_us)
        if "seen" in parts:
            self._seen.add(self._last(keyed(parts["seen"], self._operator.keys, None)))

    def _about(self) -> dict[str, int]:
        return {"settled": self._settled_us}

    def _admitted(self, arrived: pa.Table | None, counters: Counters) -> pa.Table | None:
        if arrived is None or not arrived.num_rows:
            return None
        too_late = late(arrived, self._operator.wait_us)
        counters.drop(0, arrived, too_late, "late")
        rows = without(arrived, too_late)
        gone = numbers(rows, _TIME) < self._settled_us
        counters.drop(0, rows, gone, "state gone", by_clock=True)
        rows = without(rows, gone)
        counters.count(0, "corrected", int(late(rows, 0).sum()))
        return self._keyed(rows) if rows.num_rows else None

    def _keyed(self, rows: pa.Table) -> pa.Table:
        return by_hash_and_time(keyed(rows.select(self._names), self._operator.keys, None))

    def _hold(self, rows: pa.Table | None) -> None:
        if rows is not None:
            self._waiting.add(rows)

    def _settle(self, before_us: int) -> tuple[pa.Table | None, pa.Table | None]:
        """The rows before a time that count, now that none before them can come; and what is remembered."""
        settled_us = max(self._settled_us, before_us)
        parts = [run.table.take(pa.array(rows)) for run, rows in self._waiting.settle(settled_us)]
        self._waiting.forget(settled_us)
        found = self._first(in_one_chunk(parts)) if parts else (None, None)
        self._settled_us = settled_us  # not before: keys that these rows repeat must not be forgotten
        return found

    def _first(self, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """Of rows those that repeat none; and when their keys came last, which is remembered."""
        keys = self._operator.keys
        order, groups = grouped(rows, keys)
        rows = rows.take(pa.array(order)).combine_chunks()
        ranked = np.lexsort((*reversed(self._places(rows)), groups.ids))
        times = numbers(rows, _TIME)[ranked]
        rows = rows.take(pa.array(ranked)).combine_chunks()
        before = np.empty(len(times), np.int64)
        before[1:] = times[:-1]
        starts = groups.representatives
        before[starts] = self._last_before(rows.take(pa.array(starts)))
        last = np.append(starts[1:], len(times)) - 1
        seen = rows.select([*keys, _TIME, HASH]).take(pa.array(last)).combine_chunks()
        self._seen.add(seen)
        is_first = before < np.maximum(times, -_LONGEST_US) - self._operator.within_us
        return rows.filter(pa.array(is_first)), seen

    def _places(self, rows: pa.Table) -> list[Ints]:
        """The order of rows in the log; of several made from one record, that of their values."""
        places = [numbers(rows, name).astype(np.int64) for name in (_TIME, "_partition", "_offset")]
        own = [each.name for each in self._schema if not pa.types.is_nested(each.type)]
        return [*places, *(ranks(one_chunk(rows[name]), exact=True) for name in own)]

    def _last_before(self, firsts: pa.Table) -> Ints:
        """When each key came last, of one row a key; long ago where it is not known."""
        keys = self._operator.keys
        found = self._seen.find(distinct(hashes_of(firsts)))
        times = np.full(firsts.num_rows, EARLIEST_US)
        if found is None:
            return times
        held = of_keys(found, firsts, keys)
        both = in_one_chunk([held.select([*keys, _TIME, HASH]), firsts.select([*keys, _TIME, HASH])])
        order, groups = grouped(both, keys)
        is_held = order < held.num_rows
        latest = groups.maximum(np.where(is_held, numbers(both, _TIME)[order], EARLIEST_US), EARLIEST_US)
        own = order[~is_held] - held.num_rows
        times[own] = np.asarray(latest)[groups.ids[~is_held]]
        return times

    def _last(self, table: pa.Table) -> pa.Table:
        """When each key came last, by the order of hashes; without those that nothing can repeat any more."""
        order, groups = grouped(table, self._operator.keys)
        times = groups.maximum(numbers(table, _TIME)[order], EARLIEST_US)
        chosen = table.take(pa.array(order[groups.representatives]))
        chosen = chosen.set_column(chosen.column_names.index(_TIME), _TIME, pa.array(times))
        needed = np.asarray(times) >= clipped(self._settled_us - self._operator.within_us)
        return chosen.filter(pa.array(needed)).combine_chunks()

    def _built(self, rows: pa.Table | None) -> pa.Table | None:
        """Rows as changes, in the order of the log."""
        if rows is None or not rows.num_rows:
            return None
        rows = rows.take(pa.array(np.lexsort(tuple(reversed(self._places(rows))))))
        columns = [one_chunk(rows[each.name]).cast(each.type) for each in self._schema]
        for field in stamp_fields():
            own = pa.repeat(pa.scalar(1, pa.int64()), rows.num_rows)
            columns.append(own if field.name == WEIGHT else one_chunk(rows[field.name]))
        return pa.Table.from_arrays(columns, schema=pa.schema([*self._schema, *stamp_fields()]))


def _unhashed(table: pa.Table | None) -> pa.Table | None:
    return table.drop_columns(HASH) if table is not None and HASH in table.column_names else table
