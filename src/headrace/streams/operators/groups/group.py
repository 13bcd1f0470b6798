"""Aggregates of all rows of each group, kept through rows that come and go.

There are two ways to keep them. Counts, sums, means and variances are *additive*: a row that goes is
one that counts negatively, and a group's state is one row of cells, whatever it holds. Where rows
only ever come, every aggregate is kept so. The others (the least and the greatest, the first and
the last, lists, distinct values, one's own) cannot be taken back from a cell: for these the state
holds the rows of a group, equal ones once with their number, and computes a group again when it
changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.aggregates.aggregates import Aggregate, Count, Mean, Sum, Variance
from headrace.streams.operators.groups.additive import AdditiveState
from headrace.streams.operators.groups.held_rows import HeldRowsState
from headrace.streams.operators.operator import OperatorDefaults

__all__ = ["Group"]


@dataclass(frozen=True)
class Group(OperatorDefaults):
    """A table with one row for each group that has rows: its key columns, then the aggregates.

    `append_only` says that rows are never taken back. `order` are columns by which rows of a table,
    that have no time, are the first or the last, ascending and nulls first; None: rows have a time.
    """

    keys: tuple[str, ...]
    aggregates: tuple[tuple[str, Aggregate], ...]
    append_only: bool = False
    order: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        names = [*self.keys, *(name for name, _ in self.aggregates)]
        for name in names:
            if names.count(name) > 1 or name[:1] in ("_", "#"):
                raise RequestError(f"{name!r} cannot name a column of a group; give it another name")

    @property
    def inputs(self) -> tuple[tuple[str, ...], ...]:
        return (self.keys,)

    @property
    def is_additive(self) -> bool:
        """Whether a row that goes can be taken out of what is kept of its group."""
        return self.append_only or all(
            isinstance(each, Count | Sum | Mean | Variance) for _, each in self.aggregates
        )

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        from headrace.streams.operators.aggregates.layout import layout_for

        layout = layout_for(self.keys, (), self.aggregates, schemas[0])
        return pa.schema([*layout.key_fields, *layout.result_fields])

    def new_state(self, schemas: Sequence[pa.Schema]) -> "AdditiveState | HeldRowsState":
        if self.is_additive:
            return AdditiveState(self.keys, self.aggregates, schemas[0])
        return HeldRowsState(self.keys, self.aggregates, schemas[0], self.order)

    def describe(self) -> dict[str, Any]:
        return {
            "operator": "group",
            "version": 1,
            "by": list(self.keys),
            "aggregates": {name: each.describe() for name, each in self.aggregates},
            "kept": "cells" if self.is_additive else "rows",
            **({} if self.is_additive or self.order is None else {"order": list(self.order)}),
        }
