"""The first n rows of each group, kept as rows come and go.

All rows of a group are held, since one that goes lets the next one in; where rows only come, the
first n are enough. Rows are ordered by the columns given, nulls last; ties are broken by `ties`,
the columns that tell rows apart, and then by all columns from left to right, ascending and nulls
first. So which rows are the first depends on the rows alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.nearest import no_such
from headrace.streams.operators.grouping import Groups, Ints, one_chunk
from headrace.streams.operators.hashing import normal_type
from headrace.streams.operators.joins.columns import ROW, keyed
from headrace.streams.operators.joins.values import columns_of, summed
from headrace.streams.operators.keys import HASH, grouped, hashes_of, of_keys
from headrace.streams.operators.operator import (
    WEIGHT,
    OperatorDefaults,
    OperatorStep,
    numbers,
    own_fields,
    stamp_fields,
)
from headrace.streams.operators.order import ranks, sorted_by
from headrace.streams.operators.run_state import RunState
from headrace.streams.operators.runs import Runs, in_one_chunk

__all__ = ["Top"]


@dataclass(frozen=True)
class Top(OperatorDefaults):
    """A table of the first `n` rows of each group by `by`: columns, and whether the greatest come first.

    A row that is there several times takes as many places. `append_only` says that rows are
    never taken back.
    """

    n: int
    keys: tuple[str, ...]
    by: tuple[tuple[str, bool], ...]
    ties: tuple[str, ...] = ()
    append_only: bool = False

    def __post_init__(self) -> None:
        if self.n < 1:
            raise RequestError(f"top takes a number of rows, at least 1, and not {self.n}")

    @property
    def inputs(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        if not self.by:
            raise RequestError('top needs the columns by which rows are ordered: by="amount"')
        fields = {each.name: each for each in own_fields(schemas[0])}
        ordering = [*(name for name, _ in self.by), *(self.ties or fields)]
        for name in [*self.keys, *ordering]:
            if name not in fields:
                raise RequestError(no_such("column", name, list(fields)))
        for name in ordering:
            if pa.types.is_nested(fields[name].type):
                raise RequestError(
                    f"rows have no order by {name!r}, which is {fields[name].type}: leave it out by select, "
                    "or take the top of a table, whose key orders equal rows"
                )
        for name in self.keys:
            fields[name] = fields[name].with_type(normal_type(fields[name].type, name))
        return pa.schema(list(fields.values()))

    def new_state(self, schemas: Sequence[pa.Schema]) -> "TopState":
        return TopState(self, self.result(schemas))

    def describe(self) -> dict[str, Any]:
        return {
            "operator": "top",
            "version": 1,
            "n": self.n,
            "per": list(self.keys),
            "by": [[name, "desc" if descending else "asc"] for name, descending in self.by],
            "ties": list(self.ties),
            "append_only": self.append_only,
        }


class TopState(RunState):
    """The rows of one bucket of groups, equal ones once with their number."""

    def __init__(self, operator: Top, schema: pa.Schema) -> None:
        self._operator = operator
        self._schema = schema
        self._beside = [name for name in schema.names if name not in operator.keys]
        plain = [each.name for each in schema if not pa.types.is_nested(each.type)]
        self._ties = tuple(dict.fromkeys([*operator.ties, *plain]))
        super().__init__(Runs(self._needed))

    def _run(self, rows: pa.Table) -> pa.Table:
        return self._needed(self._keyed(rows))

    def _step(self, before: pa.Table | None, run: pa.Table) -> OperatorStep:
        return OperatorStep(changes=self._changes(before, run), delta=self._encoded(run))

    def _encoded(self, run: pa.Table | None) -> bytes:
        return super()._encoded(None if run is None else run.drop_columns([HASH, ROW]))

    def _decoded(self, run: pa.Table) -> pa.Table:
        return self._run(run)

    def _keyed(self, rows: pa.Table) -> pa.Table:
        return keyed(rows.select([*self._schema.names, WEIGHT]), self._operator.keys, self._beside)

    def _needed(self, table: pa.Table) -> pa.Table:
        """Equal rows once, ordered by hash; where rows only come, no more than the first of each group."""
        table = self._summed(table)
        return self._first(table) if self._operator.append_only else table

    def _summed(self, table: pa.Table) -> pa.Table:
        hashes = [hashes_of(table), np.asarray(one_chunk(table[ROW]).to_numpy())]
        order, weights, _ = summed(hashes, columns_of(table, self._schema.names), numbers(table, WEIGHT))
        return _with_weights(table.take(pa.array(order)).combine_chunks(), weights)

    def _first(self, table: pa.Table) -> pa.Table:
        """The first rows of each group, each as often as it is among them."""
        order, groups = grouped(table, self._operator.keys)
        table = table.take(pa.array(order)).combine_chunks()
        ranked = np.lexsort((*reversed(self._order(table)), groups.ids))
        weights = np.maximum(numbers(table, WEIGHT)[ranked], 0)
        places = _places_before(weights, groups)
        taken = np.clip(self._operator.n - places, 0, weights)
        kept = np.flatnonzero(taken)
        return _with_weights(table.take(pa.array(ranked[kept])).combine_chunks(), taken[kept])

    def _order(self, table: pa.Table) -> list[Ints]:
        own = [
            sorted_by(ranks(one_chunk(table[name])), descending=descending)
            for name, descending in self._operator.by
        ]
        return own + [ranks(one_chunk(table[name]), exact=True) for name in self._ties]

    def _changes(self, before: pa.Table | None, run: pa.Table) -> pa.Table | None:
        """What was among the first and is not any more, and the other way round."""
        held = run.slice(0, 0) if before is None else of_keys(before, run, self._operator.keys)
        held = self._summed(held)
        old, new = self._first(held), self._first(self._summed(in_one_chunk([held, run])))
        changes = self._summed(in_one_chunk([_with_weights(old, -numbers(old, WEIGHT)), new]))
        if not changes.num_rows:
            return None
        columns = [one_chunk(changes[each.name]).cast(each.type) for each in self._schema]
        for field in stamp_fields():
            is_weight = field.name == WEIGHT
            columns.append(one_chunk(changes[WEIGHT]) if is_weight else pa.nulls(len(changes), field.type))
        return pa.Table.from_arrays(columns, schema=pa.schema([*self._schema, *stamp_fields()]))


def _places_before(weights: Ints, groups: Groups) -> Ints:
    """How many places of its group are taken before each row; groups stand side by side."""
    before = np.cumsum(weights) - weights
    return np.asarray(before - before[groups.representatives][groups.ids]) if len(before) else before


def _with_weights(table: pa.Table, weights: Ints) -> pa.Table:
    return table.set_column(table.column_names.index(WEIGHT), WEIGHT, pa.array(weights))
