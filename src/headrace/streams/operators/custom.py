"""A user's own aggregate, column by column in Arrow.

class Product:
    columns = ("factor",)

    def state_types(self, inputs): return [pa.float64()]
    def result_type(self, inputs): return pa.float64()
    def partial(self, inputs, groups): return [groups.aggregate(inputs[0], "product")]
    def merge(self, states, groups): return [groups.aggregate(states[0], "product")]
    def finish(self, states): return states[0]

orders.window(...).agg(factor=agg.custom(Product()))
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.cells import Columns, type_of
from headrace.streams.operators.grouping import Groups, Ints, one_chunk
from headrace.streams.operators.ranges import merge_ranges

__all__ = ["ArrowAggregate", "CustomCell"]


class ArrowAggregate(Protocol):
    """What to write for an aggregate of your own; `groups.ids` numbers the group of each row.

    `merge` must give the same for any order and any nesting of what it merges, or results
    depend on how rows were batched. Instances are sent to where rows are read, and are
    told apart by identity unless they define equality and hash.
    """

    columns: Sequence[str]

    def state_types(self, inputs: Sequence[pa.DataType]) -> Sequence[pa.DataType]:
        """The types of what is kept per key and window; refuses inputs by `RequestError`."""
        ...

    def result_type(self, inputs: Sequence[pa.DataType]) -> pa.DataType: ...

    def partial(self, inputs: Sequence[pa.Array], groups: Groups) -> Sequence[pa.Array]:
        """What to keep of each group of rows, one value per group in each array."""
        ...

    def merge(self, states: Sequence[pa.Array], groups: Groups) -> Sequence[pa.Array]:
        """What to keep of each group of what was kept."""
        ...

    def finish(self, states: Sequence[pa.Array]) -> pa.Array:
        """The result of each."""
        ...


@dataclass(frozen=True, slots=True)
class CustomCell:
    """Checks that what the user's code returns is what it announced."""

    own: ArrowAggregate

    def columns(self, inputs: pa.Schema) -> list[tuple[str, pa.DataType]]:
        types = self.own.state_types([type_of(inputs, name) for name in self.own.columns])
        return [(str(number), kind) for number, kind in enumerate(types)]

    def partial(self, rows: pa.Table, groups: Groups) -> Columns:
        inputs = [one_chunk(rows[name]) for name in self.own.columns]
        return self._checked(self.own.partial(inputs, groups), groups, "partial")

    def merge(self, columns: Sequence[pa.Array], groups: Groups) -> Columns:
        return self._checked(self.own.merge(list(columns), groups), groups, "merge")

    def over(self, columns: Sequence[pa.Array], begins: Ints, ends: Ints) -> Columns:
        return merge_ranges(self.merge, columns, begins, ends)

    def _checked(self, states: Sequence[pa.Array], groups: Groups, step: str) -> Columns:
        arrays = [one_chunk(each) for each in states]
        for array in arrays:
            if len(array) != groups.count:
                raise RequestError(
                    f"{type(self.own).__name__}.{step} returned {len(array)} values for "
                    f"{groups.count} groups; return one value per group, in the groups' order"
                )
        return arrays
