"""Columns of different types that hold the same numbers: the wider type, and rows that are brought to it."""

from collections.abc import Sequence

import pyarrow as pa

from headrace.streams.operators.operator import OperatorStep, State
from headrace.streams.operators.runs import Held

__all__ = ["Widened", "common_type", "with_types"]


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The type that has the numbers of both as they are; None if there is none."""
    if one == other:
        return one
    for is_kind in (pa.types.is_signed_integer, pa.types.is_floating):
        if is_kind(one) and is_kind(other):
            return max(one, other, key=lambda kind: kind.bit_width)
    return None


def with_types(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows, with those columns that are narrower than in the schema brought to its types."""
    for number, field in enumerate(rows.schema):
        if field.name in schema.names and schema.field(field.name).type != field.type:
            column = rows[field.name].cast(schema.field(field.name).type)
            rows = rows.set_column(number, field.name, column)
    return rows


class Widened:
    """A state whose inputs are brought to these types before it sees them."""

    def __init__(self, state: State, schemas: Sequence[pa.Schema]) -> None:
        self._state = state
        self._schemas = schemas

    @property
    def row_count(self) -> int:
        return self._state.row_count

    def held(self) -> tuple[Held, ...]:
        return self._state.held()

    def advance(self, arrived: Sequence[pa.Table | None], watermarks: Sequence[int]) -> OperatorStep:
        wide = [
            None if rows is None else with_types(rows, schema)
            for rows, schema in zip(arrived, self._schemas, strict=True)
        ]
        return self._state.advance(wide, watermarks)

    def snapshot(self) -> bytes:
        return self._state.snapshot()

    def replay(self, stored: bytes) -> None:
        self._state.replay(stored)
