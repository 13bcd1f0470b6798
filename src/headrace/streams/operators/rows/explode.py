"""A row for each element of an array, as SQL's LATERAL VIEW EXPLODE gives them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.errors import RequestError
from headrace.nearest import no_such
from headrace.streams.operators.grouping import one_chunk
from headrace.streams.operators.operator import STAMPS, OperatorDefaults, own_fields
from headrace.streams.operators.rows.stateless import Stateless

__all__ = ["Explode"]


@dataclass(frozen=True)
class Explode(OperatorDefaults):
    """An array column replaced by its elements, under `name`, each in a row of its own.

    `position` names a column with the element's place, from 0. A row whose array is null or
    empty gives no row; with `outer`, one in which element and position are null. Weights and
    stamps are those of the row, so a row that goes takes its elements along.
    """

    column: str
    name: str
    position: str | None = None
    outer: bool = False

    @property
    def inputs(self) -> tuple[None, ...]:
        return (None,)

    def result(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        fields: list[pa.Field] = []
        names = [each.name for each in own_fields(schemas[0])]
        if self.column not in names:
            raise RequestError(no_such("column", self.column, names))
        for each in own_fields(schemas[0]):
            if each.name != self.column:
                fields.append(each)
                continue
            if not _is_list(each.type):
                raise RequestError(f"{self.column!r} is {each.type}, and only arrays are exploded")
            fields.append(pa.field(self.name, each.type.value_type))
            if self.position is not None:
                fields.append(pa.field(self.position, pa.int32()))
        found = [each.name for each in fields]
        for name in found:
            if found.count(name) > 1 or name.startswith("_"):
                raise RequestError(f"{name!r} cannot name an exploded column; give it another name")
        return pa.schema(fields)

    def new_state(self, schemas: Sequence[pa.Schema]) -> Stateless:
        schema = self.result(schemas)
        return Stateless(lambda arrived: self._exploded(arrived[0], schema))

    def describe(self) -> dict[str, Any]:
        return {
            "operator": "explode",
            "version": 1,
            "column": self.column,
            "name": self.name,
            "position": self.position,
            "outer": self.outer,
        }

    def _exploded(self, rows: pa.Table | None, schema: pa.Schema) -> pa.Table | None:
        if rows is None or not rows.num_rows:
            return None
        lists = one_chunk(rows[self.column])
        sizes = lists.value_lengths().fill_null(0).to_numpy().astype(np.int64)
        counts = np.maximum(sizes, 1) if self.outer else sizes
        parents = np.repeat(np.arange(len(sizes)), counts)
        places = np.arange(len(parents)) - np.repeat(np.cumsum(counts) - counts, counts)
        is_there = places < sizes[parents]
        elements = pa.array(np.cumsum(is_there) - 1, mask=~is_there)
        taken = rows.select([name for name in rows.column_names if name != self.column])
        taken = taken.take(pa.array(parents))
        own = {self.name: lists.flatten().take(elements)}
        if self.position is not None:
            own[self.position] = pa.array(places.astype(np.int32), mask=~is_there)
        columns = {name: own.get(name) for name in schema.names}
        return pa.table(
            {name: taken[name] if each is None else each for name, each in columns.items()}
            | {name: taken[name] for name in STAMPS}
        )


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
