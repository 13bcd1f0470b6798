"""The distinct rows of an input: SQL's SELECT DISTINCT, kept as rows come and go."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.nearest import no_such
from headrace.streams.operators.grouping import Groups, one_chunk
from headrace.streams.operators.hashing import normal_type
from headrace.streams.operators.keys import HASH, grouped, key_columns, numbered, of_keys
from headrace.streams.operators.operator import (
    WEIGHT,
    OperatorDefaults,
    OperatorStep,
    numbers,
    stamp_fields,
)
from headrace.streams.operators.run_state import RunState
from headrace.streams.operators.runs import Runs, in_one_chunk

__all__ = ["Distinct"]


@dataclass(frozen=True)
class Distinct(OperatorDefaults):
    """A table of the distinct values of these columns. As in SQL, nulls are equal; so are both zeros."""

    columns: tuple[str, ...]

    @property
    def inputs(self) -> tuple[tuple[str, ...], ...]:
        return (self.columns,)

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        for name in self.columns:
            if name not in schemas[0].names:
                raise RequestError(no_such("column", name, schemas[0].names))
        kinds = {name: normal_type(schemas[0].field(name).type, name) for name in self.columns}
        return pa.schema(list(kinds.items()))

    def new_state(self, schemas: Sequence[pa.Schema]) -> "DistinctState":
        return DistinctState(self.columns, self.result(schemas))

    def describe(self) -> dict[str, Any]:
        return {"operator": "distinct", "version": 1, "columns": list(self.columns)}


class DistinctState(RunState):
    """How many rows there are of each that is there, in one bucket."""

    def __init__(self, columns: tuple[str, ...], schema: pa.Schema) -> None:
        self._columns = columns
        self._schema = schema
        super().__init__(Runs(self._merged))

    def _run(self, rows: pa.Table) -> pa.Table:
        ids, keys, hashes = numbered(key_columns(rows, self._columns), rows.num_rows)
        counts = Groups(ids, len(hashes)).sum(numbers(rows, WEIGHT))
        columns = dict(zip(self._columns, keys, strict=True))
        run = pa.table({**columns, HASH: pa.array(hashes), WEIGHT: pa.array(counts)})
        return self._merged(run)  # keys of one hash side by side

    def _step(self, before: pa.Table | None, run: pa.Table) -> OperatorStep:
        return OperatorStep(changes=self._changes(before, run), delta=self._encoded(run))

    def _reduce(self) -> None:
        merged = self._runs.merged()
        if merged is not None:
            self._runs.replace(self._merged(merged))

    def _merged(self, table: pa.Table) -> pa.Table:
        order, groups = grouped(table, self._columns)
        counts = groups.sum(numbers(table, WEIGHT)[order])
        first = table.take(pa.array(order[groups.representatives]))
        first = first.set_column(first.column_names.index(WEIGHT), WEIGHT, pa.array(counts))
        return first.filter(pa.array(counts != 0)).combine_chunks()

    def _changes(self, before: pa.Table | None, run: pa.Table) -> pa.Table | None:
        """Rows that there are now and were not, and the other way round."""
        held = run.slice(0, 0) if before is None else of_keys(before, run, self._columns)
        both = in_one_chunk([held, run])
        order, groups = grouped(both, self._columns)
        weights = numbers(both, WEIGHT)[order]
        old = groups.sum(np.where(order < held.num_rows, weights, 0))
        change = (groups.sum(weights) > 0).astype(np.int64) - (old > 0)
        told = np.flatnonzero(change)
        if not len(told):
            return None
        rows = both.take(pa.array(order[groups.representatives[told]]))
        columns = [one_chunk(rows[each.name]).cast(each.type) for each in self._schema]
        for field in stamp_fields():
            is_weight = field.name == WEIGHT
            columns.append(pa.array(change[told]) if is_weight else pa.nulls(len(told), field.type))
        return pa.Table.from_arrays(columns, schema=pa.schema([*self._schema, *stamp_fields()]))
