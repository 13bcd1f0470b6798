"""The rows of a stream that takes rows back, each once it is certain: what a join corrects, corrected.

A join that corrects what came late holds back its watermark for as long as it may still take a row
back. So a row is final once the watermark is past its time: what was put out of it and taken back
until then is summed, and what is left comes out, never to be taken back again. What operators by
time need: windows, dedup, joins of streams, and joins as of a time.

By `wait_us` the watermark that arrives here is behind what the rows' own stamps say of it. Rows come
out with stamps that say the same as the watermark: so much less. A row that came late within that
is not late any more, and whether one is remains a matter of the log alone.

A row that is behind the watermark when it comes was too late to be waited for; it passes at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.streams.operators.grouping import Ints
from headrace.streams.operators.joins.lateness import watermarks_of
from headrace.streams.operators.joins.timed import EARLIEST_US, MARK, TimedRuns, by_hash_and_time
from headrace.streams.operators.joins.values import columns_of, hash_values, summed
from headrace.streams.operators.keys import HASH, hashes_of
from headrace.streams.operators.operator import (
    STAMPS,
    WEIGHT,
    OperatorDefaults,
    OperatorStep,
    decode_state,
    encode_state,
    numbers,
    own_fields,
)
from headrace.streams.operators.runs import Held, in_one_chunk

__all__ = ["Settled"]

_RECORD = ("_partition", "_offset")
_PLACES = ("_event_time", *_RECORD)


@dataclass(frozen=True)
class Settled(OperatorDefaults):
    """Rows that are not taken back, of rows that are; their watermarks are `wait_us` less."""

    wait_us: int = 0

    @property
    def inputs(self) -> tuple[tuple[str, ...], ...]:
        return (_RECORD,)  # what is taken back is of the same record as what was put out

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        return pa.schema(own_fields(schemas[0]))

    def new_state(self, schemas: Sequence[pa.Schema]) -> "SettledState":
        return SettledState(self, self.result(schemas))

    def describe(self) -> dict[str, Any]:
        return {"operator": "settled", "version": 1, "wait_us": self.wait_us}


class SettledState:
    """The changes of one bucket that are not final. A delta is those that arrived, and the watermark."""

    def __init__(self, operator: Settled, schema: pa.Schema) -> None:
        self._operator = operator
        self._names = [*schema.names, *STAMPS]
        self._compared = [name for name in self._names if name != WEIGHT]
        self._waiting = TimedRuns(())
        self._settled_us = EARLIEST_US

    @property
    def row_count(self) -> int:
        return self._waiting.row_count

    def held(self) -> tuple[Held, ...]:
        return (self._waiting.held(),)

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        rows, before_us = arrived[0], max(self._settled_us, watermarks[0])
        held = None
        if rows is not None and rows.num_rows:
            rows = self._hashed(rows)
            self._waiting.add(rows)
            held = rows.filter(pa.array(numbers(rows, "_event_time") >= before_us)).drop_columns(HASH)
        parts = [run.table.take(pa.array(found)) for run, found in self._waiting.settle(before_us)]
        self._move(before_us)
        return OperatorStep(
            changes=self._final(parts), delta=encode_state({"rows": held}, {"settled": before_us})
        )

    def snapshot(self) -> bytes:
        stored = self._waiting.stored()
        rows = None if stored is None else self._summed(self._hashed(stored.drop_columns(MARK)))
        return encode_state({"rows": rows}, {"settled": self._settled_us})

    def replay(self, stored: bytes) -> None:
        parts, about = decode_state(stored)
        if "rows" in parts:
            self._waiting.add(self._hashed(parts["rows"]))
        self._move(max(self._settled_us, about["settled"]))

    def _move(self, before_us: int) -> None:
        self._waiting.settle(before_us)
        self._waiting.forget(before_us)
        self._settled_us = before_us

    def _hashed(self, rows: pa.Table) -> pa.Table:
        """Rows with the hash of all that tells them apart, in the order of a run."""
        rows = in_one_chunk([rows.select(self._names)])
        hashes = hash_values(columns_of(rows, self._compared), rows.num_rows)
        return by_hash_and_time(rows.append_column(HASH, pa.array(hashes)))

    def _summed(self, rows: pa.Table) -> pa.Table:
        """Equal rows once, with the sum of their weights; none of weight zero."""
        columns = columns_of(rows, self._compared)
        order, weights, _ = summed([hashes_of(rows)], columns, numbers(rows, WEIGHT))
        rows = rows.select(self._names).take(pa.array(order))
        return rows.set_column(rows.column_names.index(WEIGHT), WEIGHT, pa.array(weights))

    def _final(self, parts: Sequence[pa.Table]) -> pa.Table | None:
        """What is left of changes, in the order of the log, with the watermark that counts from here on."""
        if not parts:
            return None
        rows = self._summed(in_one_chunk(parts))
        rows = rows.take(pa.array(self._in_order(rows))).combine_chunks()
        known = watermarks_of(rows)
        is_none = known == EARLIEST_US
        less = pa.array(np.where(is_none, 0, known) - self._operator.wait_us, mask=is_none)
        ones = pa.array(np.ones(rows.num_rows, np.int64))
        for name, column in (("_watermark", less), (WEIGHT, ones)):
            rows = rows.set_column(rows.column_names.index(name), name, column)
        return rows if rows.num_rows else None

    def _in_order(self, rows: pa.Table) -> Ints:
        """The order of the log, each row as often as it is there; rows of one record by their hashes."""
        hashes = hash_values(columns_of(rows, self._compared), rows.num_rows)
        order = np.lexsort((hashes, *reversed([numbers(rows, name) for name in _PLACES])))
        return np.repeat(order, numbers(rows, WEIGHT)[order])
