"""What all joins have in common: two inputs by equal keys, and a row for each pair."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.streams.operators.joins.columns import Columns, Names, comparable
from headrace.streams.operators.operator import OperatorDefaults, State
from headrace.streams.operators.widening import Widened

__all__ = ["JoinByKey"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinByKey(OperatorDefaults):
    """A left and a right input; a null in a key matches nothing.

    `left_names` and `right_names` are pairs of a column's name and the one it has in the result.
    """

    left_on: tuple[str, ...]
    right_on: tuple[str, ...]
    how: str = "inner"
    left_names: Names = ()
    right_names: Names = ()

    @property
    def inputs(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.left_on, self.right_on

    @property
    def placed_by(self) -> tuple[tuple[str, ...], ...]:
        """The key of each side that all rows have; columns that both sides call alike all rows have."""
        left, right = _renamed(self.left_on, self.left_names), _renamed(self.right_on, self.right_names)
        if left == right or self.how in ("left", "semi", "anti"):
            return (left,)
        return {"inner": (left, right), "right": (right,)}.get(self.how, ())

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        return self._columns(comparable(schemas, self.inputs)).schema

    def new_state(self, schemas: Sequence[pa.Schema]) -> State:
        wide = comparable(schemas, self.inputs)
        state = self._state(self._columns(wide))
        return state if wide == list(schemas) else Widened(state, wide)

    def _columns(self, schemas: Sequence[pa.Schema]) -> Columns:
        return Columns.of(schemas, self.inputs, (self.left_names, self.right_names))

    def _state(self, columns: Columns) -> State:
        raise NotImplementedError

    def _described(self, name: str, version: int, **more: Any) -> dict[str, Any]:
        """`describe`, with what a kind of join has besides."""
        return {
            "operator": name,
            "version": version,
            "left_on": list(self.left_on),
            "right_on": list(self.right_on),
            "how": self.how,
            **more,
            "left_names": [list(each) for each in self.left_names],
            "right_names": [list(each) for each in self.right_names],
        }


def _renamed(key: Sequence[str], names: Names) -> tuple[str, ...]:
    new = dict(names)
    return tuple(new.get(name, name) for name in key)
