"""The rows of several inputs, all of them: SQL's UNION ALL.

Partitions of different inputs have numbers of their own in what comes out, so that the stamps still
tell every row from every other: partition p of input i is p * inputs + i.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import RequestError
from headrace.streams.operators.grouping import one_chunk
from headrace.streams.operators.operator import STAMPS, OperatorDefaults, own_fields
from headrace.streams.operators.rows.stateless import Stateless
from headrace.streams.operators.widening import common_type, with_types

__all__ = ["Union"]

_PARTITION = "_partition"


@dataclass(frozen=True)
class Union(OperatorDefaults):
    """Rows of inputs with the same columns, by name, in the order of the first input's.

    Of numbers of several widths the widest is taken.
    """

    count: int

    @property
    def inputs(self) -> tuple[None, ...]:
        return (None,) * self.count

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        wanted = {each.name: each.type for each in own_fields(schemas[0])}
        for number, schema in enumerate(schemas[1:], 2):
            found = {each.name: each.type for each in own_fields(schema)}
            for name in [*wanted, *found]:
                kinds = wanted.get(name), found.get(name)
                wide = None if None in kinds else common_type(*kinds)
                if wide is not None:
                    wanted[name] = wide
                else:
                    raise RequestError(
                        "a union is of rows with the same columns: "
                        f"{_told(name, wanted)} in the first and {_told(name, found)} in number {number}"
                    )
        return pa.schema(list(wanted.items()))

    def new_state(self, schemas: Sequence[pa.Schema]) -> Stateless:
        schema = self.result(schemas)
        return Stateless(lambda arrived: self._together(arrived, schema))

    def describe(self) -> dict[str, Any]:
        return {"operator": "union", "version": 1, "inputs": self.count}

    def of_input(self, number: int, rows: pa.Table) -> pa.Table:
        """Of rows that came out, those of one input, with the partitions that they had there."""
        partitions = np.asarray(one_chunk(rows[_PARTITION]).fill_null(0).to_numpy())
        mine = rows.filter(pa.array(partitions % self.count == number))
        restored = pc.divide(one_chunk(mine[_PARTITION]), pa.scalar(self.count, pa.int32()))
        return mine.set_column(mine.column_names.index(_PARTITION), _PARTITION, restored)

    def _together(self, arrived: Sequence[pa.Table | None], schema: pa.Schema) -> pa.Table | None:
        parts = [
            self._numbered(with_types(rows.select([*schema.names, *STAMPS]), schema), number)
            for number, rows in enumerate(arrived)
            if rows is not None and rows.num_rows
        ]
        return pa.concat_tables(parts) if parts else None

    def _numbered(self, rows: pa.Table, number: int) -> pa.Table:
        own = pc.multiply(one_chunk(rows[_PARTITION]), pa.scalar(self.count, pa.int32()))
        own = pc.add(own, pa.scalar(number, pa.int32()))
        return rows.set_column(rows.column_names.index(_PARTITION), _PARTITION, own)


def _told(name: str, columns: dict[str, pa.DataType]) -> str:
    return f"{name} is {columns[name]}" if name in columns else f"there is no {name}"
