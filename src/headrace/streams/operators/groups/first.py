"""The first row of each key of a table's rows: what a view shows if its key may not tell rows apart.

Of rows with one key the first counts: by `ties`, the columns that are known to tell rows apart, and
then by all columns from left to right, ascending and nulls first. So which row is shown depends on
the rows alone, and not on where batches were cut. Of rows that differ only in arrays, structs and
maps, the hash of their values decides. All rows are held: one that goes lets the next one in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import RequestError
from headrace.nearest import no_such
from headrace.streams.operators.groups.top import Top, TopState
from headrace.streams.operators.hashing import normal_type
from headrace.streams.operators.operator import WEIGHT, OperatorDefaults, OperatorStep, numbers, own_fields
from headrace.streams.operators.runs import Held

__all__ = ["FirstRow"]


@dataclass(frozen=True)
class FirstRow(OperatorDefaults):
    """Rows of a table of which each is the first of its key; the others are counted as `hidden`."""

    keys: tuple[str, ...]
    ties: tuple[str, ...] = ()

    @property
    def inputs(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        fields = {each.name: each for each in own_fields(schemas[0])}
        for name in (*self.keys, *self.ties):
            if name not in fields:
                raise RequestError(no_such("column", name, list(fields)))
        for name in self.keys:
            fields[name] = fields[name].with_type(normal_type(fields[name].type, name))
        return pa.schema(list(fields.values()))

    def new_state(self, schemas: Sequence[pa.Schema]) -> "FirstRowState":
        schema = self.result(schemas)
        return FirstRowState(TopState(Top(1, self.keys, (), self.ties), schema))

    def describe(self) -> dict[str, Any]:
        return {"operator": "first row", "version": 1, "by": list(self.keys), "ties": list(self.ties)}


class FirstRowState:
    """The rows of one bucket of keys."""

    def __init__(self, rows: TopState) -> None:
        self._rows = rows

    @property
    def row_count(self) -> int:
        return self._rows.row_count

    def held(self) -> tuple[Held, ...]:
        return self._rows.held()

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        step = self._rows.advance(arrived, watermarks)
        hidden = _weight(arrived[0]) - _weight(step.changes)
        counts = {0: {"hidden": hidden}} if hidden else {}
        return OperatorStep(changes=step.changes, delta=step.delta, counts=counts)

    def snapshot(self) -> bytes:
        return self._rows.snapshot()

    def replay(self, stored: bytes) -> None:
        self._rows.replay(stored)


def _weight(rows: pa.Table | None) -> int:
    """How many rows more there are."""
    return 0 if rows is None else int(numbers(rows, WEIGHT).sum())
