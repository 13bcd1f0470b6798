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

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa

from headrace.errors import RequestError
from headrace.streams.operators.aggregates.cells import Columns, type_of
from headrace.streams.operators.grouping import Groups, Ints, one_chunk
from headrace.streams.operators.ranges import merge_ranges

__all__ = ["ArrowAggregate", "CustomCell", "describe_own", "own_in_words"]

_PLAIN = (str, bytes, int, float, complex, Decimal, date, time, timedelta, Enum, pa.DataType, type(None))


class ArrowAggregate(Protocol):
    """What to write for an aggregate of your own; `groups.ids` numbers the group of each row.

    `merge` must give the same for any order and any nesting of what it merges, or results
    depend on how rows were batched. Instances are sent to where rows are read, and are
    told apart by identity unless they define equality and hash. A checkpoint knows one by
    the name of its class, its columns and its fields of plain values, never by its code.
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


def describe_own(own: ArrowAggregate) -> dict[str, Any]:
    """Class, columns and fields of a user's aggregate, in plain values that are the same in every process.

    A function in a field is described by its name, any other object by the name of its class:
    what they would print may hold an address in memory.
    """
    fields = {name: _words(value) for name, value in _fields(own) if name != "columns"}
    return {"class": type(own).__name__, "columns": list(own.columns), "fields": dict(sorted(fields.items()))}


def own_in_words(own: ArrowAggregate) -> str:
    """The same as one text."""
    fields = {"columns": own.columns, **dict(_fields(own))}
    return f"{type(own).__name__}({', '.join(f'{name}={_words(fields[name])}' for name in sorted(fields))})"


def _fields(own: object) -> Iterator[tuple[str, object]]:
    """What the instance holds, in a dictionary or in slots."""
    yield from getattr(own, "__dict__", {}).items()
    for kind in type(own).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(own, name):
                yield name, getattr(own, name)


def _words(value: object) -> str:
    if isinstance(value, _PLAIN):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_words(key)}: {_words(each)}" for key, each in value.items()) + "}"
    if isinstance(value, Set):  # whose order is another in every process
        return "{" + ", ".join(sorted(map(_words, value))) + "}"
    if isinstance(value, Sequence):
        return "[" + ", ".join(map(_words, value)) + "]"
    return str(getattr(value, "__qualname__", type(value).__name__))
